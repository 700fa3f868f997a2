"""Values to plain tuples in the order of the wire, and back.

What is legal in a body beyond its shape is refused here, both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from landed.ids import AggregateKey, ClientId
from landed.log import (
    Batch,
    Delete,
    Deleted,
    DeleteLeg,
    Details,
    FeedEntry,
    FeedKind,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    Trim,
    Trimmed,
    Write,
)
from landed.wire.cursor import MalformedBodyError
from landed.wire.messages import (
    AccessLevel,
    Identified,
    Identify,
    LogFacts,
    Probe,
    WireRequest,
)

Correlation = bytes | None
Decoded = tuple[WireRequest, Correlation]

# What is made most often is made past the named tuple's own constructor, a Python function that
# would take as long as reading the bytes.
_new = tuple.__new__
_new_object = object.__new__
_KINDS: Final = {kind.value: kind for kind in FeedKind}
_LEVELS: Final = {level.value: level for level in AccessLevel}
_WRITERS_MAX: Final = 1024
"""Writers whose id is made once, and not again for each of their writes."""

# --- Plain tuples to values -----------------------------------------------------------------------


def details_request(raw: Any) -> Decoded:
    """Build GetDetails from an AggregateDetailsRequest's elements."""
    correlation, key = raw
    return GetDetails(_key(key)), correlation


def read_request(raw: Any) -> Decoded:
    """Build a Read from a ReadRequest's elements."""
    correlation, key, filters = raw
    from_version, to_version, types, *rest = filters
    if types is not None:
        types = tuple(types)
    return Read(_key(key), ReadFilters(from_version, to_version, types, *rest)), correlation


def write_request(raw: Any) -> Decoded:
    """Build a Write from a WriteRequest's elements."""
    correlation, client_id, user_id, writes = raw
    legs = []
    for key, (events, allow_create, expected_version, enforce_sequence) in writes.items():
        leg = (_key(key), tuple(events), expected_version, allow_create, enforce_sequence)
        legs.append(_new(Leg, leg))
    return _new(Write, (_client_id(client_id), tuple(legs), user_id)), correlation


@lru_cache(_WRITERS_MAX)
def _client_id(data: bytes) -> ClientId:
    return ClientId(UUID(bytes=data))


def trim_request(raw: Any) -> Decoded:
    """Build a Trim from a TrimStartRequest's elements."""
    correlation, key, keep_from, client_id, user_id = raw
    return Trim(_key(key), keep_from, client_id, user_id), correlation


def delete_request(raw: Any) -> Decoded:
    """Build a Delete from a DeleteRequest's elements."""
    correlation, client_id, user_id, legs = raw
    return Delete(
        client_id, tuple([_delete_leg(*leg) for leg in legs.items()]), user_id
    ), correlation


def _delete_leg(key: tuple[bytes, bytes, bytes], raw: Any) -> DeleteLeg:
    allow_recreate, allow_continuation, expected_version = raw
    return DeleteLeg(_key(key), expected_version, allow_recreate, allow_continuation)


def identify_request(raw: Any) -> Decoded:
    """Build Identify from an IdentifyRequest's elements."""
    correlation, *fields = raw
    return Identify(*fields), correlation


def feed_request(raw: Any) -> Decoded:
    """Build a FeedRead from a FeedRequest's elements."""
    correlation, *fields = raw
    return FeedRead(*fields), correlation


def probe_request(raw: Any) -> Decoded:
    """Build a Probe from a ProbeRequest's elements."""
    (correlation,) = raw
    return Probe(), correlation


def _key(parts: tuple[bytes, bytes, bytes]) -> AggregateKey:
    key = _new_object(AggregateKey)  # past ``from_packed``: each part has been read as 16 bytes
    key.packed = b"".join(parts)
    return key


def _batch(raw: Any) -> Batch:
    version, client_id, user_id, server_ms, events = raw
    return _new(Batch, (version, client_id, user_id, server_ms, tuple(events)))


def landed(_correlation: Correlation, version: int | None) -> Landed:
    """Build Landed; a write of several legs is not told its versions (log rule W12)."""
    return Landed(() if version is None else (version,))


def page(_correlation: Correlation, batches: list[Any], next_version: int | None) -> Page:
    """Build a Page from a ReadResponse's elements."""
    return Page(tuple([_batch(batch) for batch in batches]), next_version)


def identified(_correlation: Correlation, *fields: Any) -> Identified:
    """Build Identified.

    Raises:
        MalformedBodyError: an access level that does not exist.
    """
    client_id, level, sha256, dictionary = fields
    if level is not None and level not in _LEVELS:
        raise MalformedBodyError(f"there is no access level {level}")
    return Identified(
        client_id,
        None if level is None else _LEVELS[level],
        sha256,
        None if dictionary is None else bytes(dictionary),
    )


def feed_page(
    _correlation: Correlation, entries: list[Any], next_after: int, is_at_end: bool
) -> FeedPage:
    """Build a FeedPage.

    Raises:
        MalformedBodyError: an entry of no known kind, or with a batch where none belongs.
    """
    return FeedPage(tuple([_feed_entry(entry) for entry in entries]), next_after, is_at_end)


def _feed_entry(raw: Any) -> FeedEntry:
    position, key, kind, version, batch = raw
    if kind not in _KINDS:
        raise MalformedBodyError(f"there is no kind {kind} of feed entry")
    if (kind == FeedKind.WRITTEN) != (batch is not None):
        raise MalformedBodyError("a feed entry carries a batch exactly if one was written")
    return FeedEntry(
        position, _key(key), _KINDS[kind], None if batch is None else _batch(batch), version
    )


# --- Values to plain tuples -----------------------------------------------------------------------


def _parts(key: AggregateKey) -> tuple[bytes, bytes, bytes]:
    packed = key.packed
    return packed[:16], packed[16:32], packed[32:]


def _once(count: int, legs: dict[Any, Any]) -> dict[Any, Any]:
    if len(legs) != count:
        raise MalformedBodyError("an aggregate key occurs twice")
    return legs


def request_tuple(request: WireRequest, correlation: Correlation) -> tuple[Any, ...]:
    """Lay out a request as its message's elements.

    Raises:
        MalformedBodyError: an aggregate key occurs twice (log rule M9).
    """
    match request:
        case Write(client_id, legs, user_id):
            writes = {
                _parts(leg.key): (
                    leg.events,
                    leg.allow_create,
                    leg.expected_version,
                    leg.enforce_sequence,
                )
                for leg in legs
            }
            return correlation, client_id, user_id, _once(len(legs), writes)
        case Read(key, filters):
            return correlation, _parts(key), filters
        case GetDetails(key):
            return correlation, _parts(key)
        case Trim(key, keep_from, client_id, user_id):
            return correlation, _parts(key), keep_from, client_id, user_id
        case Delete(client_id, delete_legs, user_id):
            deletes = {
                _parts(leg.key): (leg.allow_recreate, leg.allow_continuation, leg.expected_version)
                for leg in delete_legs
            }
            return correlation, client_id, user_id, _once(len(delete_legs), deletes)
        case FeedRead() | Identify() | Probe():
            return (correlation, *request)


def _landed_elements(answer: Landed, correlation: Correlation) -> tuple[Any, ...]:
    versions = answer.versions
    return correlation, versions[0] if len(versions) == 1 else None


def _feed_elements(answer: FeedPage, correlation: Correlation) -> tuple[Any, ...]:
    sent = [(e.position, _parts(e.key), e.kind, e.version, e.batch) for e in answer.entries]
    return correlation, sent, answer.next_after, answer.is_at_end


def _identified_elements(answer: Identified, correlation: Correlation) -> tuple[Any, ...]:
    client_id, level, sha256, dictionary = answer
    return correlation, client_id, level, sha256, None if dictionary is None else list(dictionary)


def _same_elements(answer: tuple[Any, ...], correlation: Correlation) -> tuple[Any, ...]:
    return (correlation, *answer)


ELEMENTS: Final[Mapping[type, Callable[[Any, Correlation], tuple[Any, ...]]]] = {
    Landed: _landed_elements,
    Page: _same_elements,
    Details: _same_elements,
    Trimmed: _same_elements,
    Deleted: _same_elements,
    FeedPage: _feed_elements,
    Identified: _identified_elements,
    LogFacts: _same_elements,
}
"""How each success is laid out as its message's elements. What is not here is no success."""
