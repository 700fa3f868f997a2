"""Arbitrary values of everything that travels."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from landed.ids import AggregateKey
from landed.log import (
    Batch,
    Delete,
    Deleted,
    DeleteLeg,
    Details,
    Event,
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
from landed.wire.messages import (
    AccessLevel,
    Identified,
    Identify,
    LogFacts,
    Operation,
    Probe,
)

# Both sides of every width that MessagePack knows.
EDGES = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0xFFFF,
    0x10000,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
u64 = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
ids = st.sampled_from([0, 1, 12, 2**64 - 1, 2**128 - 1]).map(lambda n: UUID(int=n)) | st.uuids()
correlations = st.none() | st.binary(min_size=16, max_size=16)
keys = st.builds(AggregateKey, ids, ids, ids)
payloads = st.binary(max_size=40) | st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 70_000])

events = st.builds(
    Event,
    u64,
    u64,
    st.none() | ids,
    u64,
    u64,
    u64,
    payloads,
    st.none() | st.binary(min_size=12, max_size=12),
)
some_events = st.lists(events, max_size=4).map(tuple)
legs = st.builds(Leg, keys, some_events, st.none() | u64, st.booleans(), st.booleans())
delete_legs = st.builds(DeleteLeg, keys, st.none() | u64, st.booleans(), st.booleans())


def _each_key_once(legs: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(legs, max_size=3, unique_by=lambda leg: leg.key).map(tuple)


filters = st.builds(
    ReadFilters,
    u64,
    st.none() | u64,
    st.none() | st.lists(u64, max_size=5).map(tuple),
    *[st.none() | ids] * 4,
    *[st.none() | u64] * 8,
)
batches = st.builds(Batch, u64, ids, st.none() | ids, u64, some_events)
texts = st.none() | st.text(max_size=30)
entries = st.builds(
    lambda position, key, batch, version: FeedEntry(
        position, key, FeedKind.WRITTEN, batch, version
    ),
    u64,
    keys,
    batches,
    u64,
) | st.builds(
    lambda position, key, kind, version: FeedEntry(position, key, kind, None, version),
    u64,
    keys,
    st.sampled_from([FeedKind.DELETED, FeedKind.TRIMMED]),
    u64,
)

REQUESTS = {
    Operation.DETAILS: st.builds(GetDetails, keys),
    Operation.READ: st.builds(Read, keys, filters),
    Operation.WRITE: st.builds(Write, ids, _each_key_once(legs), st.none() | ids),
    Operation.TRIM: st.builds(Trim, keys, u64, ids, st.none() | ids),
    Operation.DELETE: st.builds(Delete, ids, _each_key_once(delete_legs), st.none() | ids),
    Operation.IDENTIFY: st.builds(Identify, *[texts] * 5),
    Operation.FEED: st.builds(FeedRead, u64, u64, u64),
    Operation.PROBE: st.just(Probe()),
}

SUCCESSES = {
    Operation.DETAILS: st.builds(
        Details, u64, u64, u64, *[st.booleans()] * 3, u64, ids, st.none() | ids
    ),
    Operation.READ: st.builds(Page, st.lists(batches, max_size=3).map(tuple), st.none() | u64),
    Operation.WRITE: st.builds(Landed, st.just(()) | u64.map(lambda version: (version,))),
    Operation.TRIM: st.just(Trimmed()),
    Operation.DELETE: st.just(Deleted()),
    Operation.IDENTIFY: st.builds(
        Identified,
        st.none() | ids,
        st.none() | st.sampled_from(AccessLevel),
        texts,
        st.none() | st.binary(max_size=300),
    ),
    Operation.FEED: st.builds(
        FeedPage, st.lists(entries, max_size=3).map(tuple), u64, st.booleans()
    ),
    Operation.PROBE: st.builds(LogFacts, ids, u64, u64),
}

any_request = st.one_of(
    *[st.tuples(st.just(operation), values) for operation, values in REQUESTS.items()]
)
any_success = st.one_of(
    *[st.tuples(st.just(operation), values) for operation, values in SUCCESSES.items()]
)
