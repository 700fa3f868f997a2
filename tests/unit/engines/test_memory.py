"""The store in memory by itself: pages, the feed, reclaiming, frozen placement."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.conformance.trial import A, B, delete, key, write
from landed.engines.ask import ask, ask_all
from landed.engines.memory import _RECLAIM_SLICE, MemoryStore, open_memory
from landed.errors import StorageDamagedError, StorageForeignError
from landed.limits import Limits
from landed.log import (
    NEVER,
    AggregateMissing,
    BelowFloor,
    Delete,
    FeedPage,
    FeedRead,
    Landed,
    Page,
    Read,
    ReadFilters,
    Trim,
)
from tests.unit.engines.scripted import ScriptedStore, open_scripted


async def filled(count: int, *, size: int = 0, limits: Limits | None = None) -> ScriptedStore:
    lane, store = await open_scripted(limits)
    answers = await ask_all(
        lane, [write(key(1), seq, value=bytes(size)) for seq in range(1, count + 1)]
    )
    assert answers[-1] == Landed((count,))
    await lane.close()
    return store


async def test_a_log_in_memory_opens_empty_and_with_an_identity_of_its_own() -> None:
    lane = await open_memory(limits=Limits(), clock=SystemClock())
    assert lane.position == 0
    assert lane.identity.log_id != UUID(int=0)
    assert await ask(lane, FeedRead(0)) == FeedPage((), 0, True)
    await lane.close()


@pytest.mark.scenario("R10")
async def test_a_page_may_be_empty_and_carry_a_cursor() -> None:
    store = await filled(9, size=400)
    head = store._heads[key(1)]
    page = store.read(Read(key(1), ReadFilters(include_types=(7,))), head, 1_500)
    assert page == Page((), 3)


@pytest.mark.scenario("R7")
async def test_a_point_lookup_passes_other_batches_for_nothing() -> None:
    store = await filled(100, size=400)
    head = store._heads[key(1)]
    filters = ReadFilters(min_client_seq=99, max_client_seq=99, include_client=A)
    page = store.read(Read(key(1), filters), head, 500)
    assert [batch.version for batch in page.batches] == [99]
    assert store.read(Read(key(1), filters._replace(include_client=B)), head, 500) == Page((), None)


async def test_a_read_is_bounded_by_the_head_it_is_given() -> None:
    store = await filled(9)
    head = store._heads[key(1)]._replace(version=5, floor=4)
    page = store.read(Read(key(1), ReadFilters(1)), head, 1_000_000)
    assert [batch.version for batch in page.batches] == [4, 5]
    other_life = head._replace(incarnation=2)
    assert store.read(Read(key(1)), other_life, 1_000_000) == AggregateMissing(key(1))


@pytest.mark.scenario("R11")
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (Trim(key(1), 3, A), BelowFloor(1, 3)),
        (delete(key(1)), AggregateMissing(key(1))),
    ],
)
async def test_a_page_whose_batches_were_dropped_meanwhile_is_refused_and_not_told_with_a_hole(
    change: Trim | Delete, refusal: BelowFloor | AggregateMissing
) -> None:
    """The explorer's find (seed 4409): dropped behind the commit, before readers saw the commit."""
    lane, store = await open_scripted(None)
    await ask_all(lane, [write(key(1), seq) for seq in range(1, 6)])
    seen = store._heads[key(1)]
    await ask(lane, change)
    await lane.close()
    store.reclaim()
    assert store.read(Read(key(1)), seen, 1_000_000) == refusal


async def test_a_page_with_a_hole_that_nothing_explains_is_damage_and_so_is_such_a_feed() -> None:
    store = await filled(3)
    head = store._heads[key(1)]
    del store._lives[key(1), head.incarnation][2]
    with pytest.raises(StorageDamagedError, match="version 2 of"):
        store.read(Read(key(1)), head, 1_000_000)
    with pytest.raises(StorageDamagedError, match="version 2 of"):
        store.feed(FeedRead(0), 1_000_000)
    assert store.feed(FeedRead(2), 1_000_000).is_at_end


@pytest.mark.scenario("C13")
async def test_reclaiming_goes_in_bounded_slices() -> None:
    store = await filled(2 * _RECLAIM_SLICE + 10)
    lane, _ = await open_scripted(store=store)
    await ask(lane, Trim(key(1), 2 * _RECLAIM_SLICE + 6, A))
    assert [store.reclaim() for _ in range(4)] == [_RECLAIM_SLICE, _RECLAIM_SLICE, 5, 0]
    await ask(lane, delete(key(1)))
    assert [store.reclaim(), store.reclaim()] == [5, 0]
    assert store._lives == {}
    await lane.close()


async def test_what_is_not_stored_was_never_written() -> None:
    store = await filled(1)
    stored = store.load([key(1), key(2)], [(key(1), A), (key(1), B)])
    assert stored.heads.get(key(2), NEVER) == NEVER
    assert set(stored.heads) == {key(1)}
    assert stored.marks == {(key(1), A): 1}


@pytest.mark.scenario("SC-75", "G3")
def test_other_placement_is_refused() -> None:
    store = MemoryStore(replace(Limits(), num_shards=2), log_id=UUID(int=1))
    store.check_settings(replace(Limits(), num_shards=2))
    with pytest.raises(StorageForeignError):
        store.check_settings(Limits())
    with pytest.raises(StorageForeignError):
        store.check_settings(replace(Limits(), num_shards=2, routing_rule="org_id"))
