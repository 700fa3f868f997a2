"""The field lists of every message, as data.

Each shape knows two ways to read itself: the type that the fast reader is built from, and the slow
reading by hand. Both yield the same plain tuples, lists and dicts, in the order of the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

from msgspec import Meta

from landed import log
from landed.ids import EventId
from landed.wire.cursor import Cursor, MalformedBodyError


class Shape(NamedTuple):
    """How one value looks in a body."""

    name: str
    fast: Any
    """The type from which the fast reader is built. It takes a little more than it should; the
    codec therefore believes it only where the value encodes back to the very same bytes."""
    read: Callable[[Cursor], Any]
    """Read it by hand, in any form that must or should be accepted."""


# msgspec takes no bound above 2**63, and an unsigned 64-bit number cannot be larger anyway.
_FastU64 = Annotated[int, Meta(ge=0)]
_FastIv = Annotated[bytes, Meta(min_length=12, max_length=12)]
_FastIdBytes = Annotated[bytes, Meta(min_length=16, max_length=16)]


def _number(name: str, fast: Any, bits: int) -> Shape:
    def read(cursor: Cursor) -> int:
        value = cursor.integer()
        if value >> bits:
            raise MalformedBodyError(f"{value} does not fit {bits} bits")
        return value

    return Shape(name, fast, read)


def _iv(cursor: Cursor) -> bytes:
    data = cursor.payload()
    if len(data) != 12:
        raise MalformedBodyError("an iv has 12 bytes")
    return data


U8: Final = _number("u8", Annotated[int, Meta(ge=0, le=2**8 - 1)], 8)
U32: Final = _number("u32", Annotated[int, Meta(ge=0, le=2**32 - 1)], 32)
U64: Final = _number("u64", _FastU64, 64)
ID: Final = Shape("u128", UUID, Cursor.id)
_ID_BYTES: Final = Shape("u128", _FastIdBytes, Cursor.id_bytes)
BOOL: Final = Shape("bool", bool, Cursor.flag)
TEXT: Final = Shape("string", str, Cursor.text)
BYTES: Final = Shape("bytes", bytes, Cursor.payload)
IV: Final = Shape("12 bytes", _FastIv, _iv)
BYTE_LIST: Final = Shape("list of u8", list[U8.fast], Cursor.byte_list)  # type: ignore[name-defined]  # built at run time


def maybe(shape: Shape) -> Shape:
    """The shape, or nil."""
    return Shape(
        shape.name + "?",
        shape.fast | None,
        lambda cursor: None if cursor.is_nil() else shape.read(cursor),
    )


def list_of(shape: Shape) -> Shape:
    """An array of any length, all elements alike.

    A list, not a tuple, in the fast reader: that one grows it as elements arrive, where a tuple
    would be made as long as the header says.
    """
    item_type, read_item = shape.fast, shape.read
    return Shape(
        "list of " + shape.name,
        list[item_type],  # type: ignore[valid-type]  # built at run time
        lambda cursor: [read_item(cursor) for _ in range(cursor.array())],
    )


def map_of(key: Shape, value: Shape) -> Shape:
    """A map in which every key occurs once (log rule M9)."""
    key_type, value_type = key.fast, value.fast

    def read(cursor: Cursor) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for _ in range(cursor.map()):
            name = key.read(cursor)
            if name in entries:
                raise MalformedBodyError("a key occurs twice")
            entries[name] = value.read(cursor)
        return entries

    return Shape(
        f"map of {key.name} to {value.name}",
        dict[key_type, value_type],  # type: ignore[valid-type]  # built at run time
        read,
    )


def struct(name: str, *fields: tuple[str, Shape], optional_tail: int = 0) -> Shape:
    """An array with one element a field; the last ``optional_tail`` fields may be missing."""
    shapes = [shape for _, shape in fields]
    at_least, at_most = len(shapes) - optional_tail, len(shapes)

    def read(cursor: Cursor) -> tuple[Any, ...]:
        count = cursor.array()
        if not at_least <= count <= at_most:
            raise MalformedBodyError(f"{name} has {at_most} fields, not {count}")
        found = [shape.read(cursor) for shape in shapes[:count]]
        return (*found, *[None] * (at_most - count))

    fast = tuple[tuple(shape.fast for shape in shapes)]  # type: ignore[misc,valid-type]  # built at run time
    return Shape(name, fast, read)


# --- Shared structures (protocol section 6.1) -----------------------------------------------------

CORRELATION: Final = ("correlation_id", maybe(_ID_BYTES))

KEY: Final = struct(
    "AggregateKey",
    ("org_id", _ID_BYTES),
    ("aggregate_type_id", _ID_BYTES),
    ("aggregate_id", _ID_BYTES),
)


class Event(log.Event):
    """The log's event, annotated with what the wire allows in each field.

    The fast reader makes these without a step between, which takes a third off the reading of a
    write. They equal the log's own events and are as good.
    """

    __slots__ = ()

    client_seq: _FastU64
    event_seq: _FastU64
    event_id: EventId | None
    event_ms: _FastU64
    type_major: _FastU64
    type_minor: _FastU64
    value: bytes
    iv: _FastIv | None


_EVENT: Final = struct(
    "Event",
    ("client_seq", U64),
    ("event_seq", U64),
    ("event_id", maybe(ID)),
    ("event_timestamp", U64),
    ("event_type_major", U64),
    ("event_type_minor", U64),
    ("event_value", BYTES),
    ("iv", maybe(IV)),
    optional_tail=1,
)

EVENT: Final = Shape("Event", Event, lambda cursor: Event._make(_EVENT.read(cursor)))

EVENTS: Final = list_of(EVENT)

BATCH: Final = struct(
    "EventBatch",
    ("aggregate_version", U64),
    ("client_id", ID),
    ("user_id", maybe(ID)),
    ("server_timestamp", U64),
    ("events", EVENTS),
)

FILTERS: Final = struct(
    "ReadFilters",
    ("from_aggregate_version", U64),
    ("to_aggregate_version", maybe(U64)),
    ("include_event_types", maybe(list_of(U64))),
    ("exclude_client_id", maybe(ID)),
    ("include_client_id", maybe(ID)),
    ("exclude_user_id", maybe(ID)),
    ("include_user_id", maybe(ID)),
    ("min_server_timestamp", maybe(U64)),
    ("max_server_timestamp", maybe(U64)),
    ("min_client_seq", maybe(U64)),
    ("max_client_seq", maybe(U64)),
    ("min_event_timestamp", maybe(U64)),
    ("max_event_timestamp", maybe(U64)),
    ("min_event_seq", maybe(U64)),
    ("max_event_seq", maybe(U64)),
)

WRITE_LEG: Final = struct(
    "SingleAggregateWrite",
    ("events", EVENTS),
    ("allow_create", BOOL),
    ("expected_version", maybe(U64)),
    ("enforce_client_idempotency", BOOL),
)

DELETE_LEG: Final = struct(
    "SingleAggregateDelete",
    ("allow_recreate", BOOL),
    ("allow_sequence_continuation", BOOL),
    ("expected_version", maybe(U64)),
)

# --- Requests (6.2; the extensions are ours) ------------------------------------------------------

DETAILS_REQUEST: Final = struct("AggregateDetailsRequest", CORRELATION, ("aggregate_key", KEY))

READ_REQUEST: Final = struct(
    "ReadRequest", CORRELATION, ("aggregate_key", KEY), ("filters", FILTERS)
)

WRITE_REQUEST: Final = struct(
    "WriteRequest",
    CORRELATION,
    # As bytes: few writers send nearly all writes, and what is made of these is looked up there.
    ("client_id", _ID_BYTES),
    ("user_id", maybe(ID)),
    ("writes", map_of(KEY, WRITE_LEG)),
)

TRIM_REQUEST: Final = struct(
    "TrimStartRequest",
    CORRELATION,
    ("aggregate_key", KEY),
    ("keep_from_aggregate_version", U64),
    ("client_id", ID),
    ("user_id", maybe(ID)),
)

DELETE_REQUEST: Final = struct(
    "DeleteRequest",
    CORRELATION,
    ("client_id", ID),
    ("user_id", maybe(ID)),
    ("deletes", map_of(KEY, DELETE_LEG)),
)

IDENTIFY_REQUEST: Final = struct(
    "IdentifyRequest",
    CORRELATION,
    ("public_key", maybe(TEXT)),
    ("nonce", maybe(TEXT)),
    ("signature", maybe(TEXT)),
    ("api_key", maybe(TEXT)),
    ("known_dict_sha256", maybe(TEXT)),
    optional_tail=1,
)

FEED_REQUEST: Final = struct(
    "FeedRequest", CORRELATION, ("after", U64), ("limit", U64), ("wait_ms", U64)
)

PROBE_REQUEST: Final = struct("ProbeRequest", CORRELATION)

# --- Answers (6.3) --------------------------------------------------------------------------------

DETAILS_ANSWER: Final = struct(
    "AggregateDetailsResponse",
    CORRELATION,
    ("min_aggregate_version", U64),
    ("max_aggregate_version", U64),
    ("max_event_seq", U64),
    ("is_deleted", BOOL),
    ("allow_recreate", BOOL),
    ("allow_sequence_continuation", BOOL),
    ("last_server_timestamp", U64),
    ("last_client_id", ID),
    ("last_user_id", maybe(ID)),
)

READ_ANSWER: Final = struct(
    "ReadResponse",
    CORRELATION,
    ("event_batches", list_of(BATCH)),
    ("next_aggregate_version", maybe(U64)),
)

WRITE_ANSWER: Final = struct("WriteResponse", CORRELATION, ("max_aggregate_version", maybe(U64)))

TRIM_ANSWER: Final = struct("TrimStartResponse", CORRELATION)

DELETE_ANSWER: Final = struct("DeleteResponse", CORRELATION)

PROTOCOL_ERROR: Final = struct("ProtocolErrorResponse")

ERROR_ANSWER: Final = struct(
    "ErrorResponse", CORRELATION, ("error_code", U32), ("error_message", TEXT)
)

IDENTIFY_ANSWER: Final = struct(
    "IdentifyResponse",
    CORRELATION,
    ("client_id", maybe(ID)),
    ("access_level", maybe(U8)),
    ("compression_dict_sha256", maybe(TEXT)),
    ("compression_dict_bytes", maybe(BYTE_LIST)),
    optional_tail=2,
)

FEED_ENTRY: Final = struct(
    "FeedEntry",
    ("position", U64),
    ("aggregate_key", KEY),
    ("kind", U8),
    ("version", U64),
    ("batch", maybe(BATCH)),
)

FEED_ANSWER: Final = struct(
    "FeedResponse",
    CORRELATION,
    ("entries", list_of(FEED_ENTRY)),
    ("next_after", U64),
    ("is_at_end", BOOL),
)

PROBE_ANSWER: Final = struct(
    "ProbeResponse", CORRELATION, ("log_id", ID), ("restore_epoch", U64), ("position", U64)
)
