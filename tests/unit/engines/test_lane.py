"""The lane: order of arrival, groups, lookups, and what it does when the store fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from landed.clock import SystemClock
from landed.conformance.trial import A, count, delete, key, leg, write
from landed.engines.ask import ask, ask_all
from landed.engines.lane import Lane
from landed.errors import ConfigurationError, StorageError, StorageForeignError
from landed.limits import Limits
from landed.log import (
    AggregateMissing,
    Answer,
    BelowFloor,
    Busy,
    FeedPage,
    FeedRead,
    GetDetails,
    Head,
    Landed,
    NotLoaded,
    Page,
    Read,
    ReadFilters,
    SequenceTaken,
    Trim,
    Trimmed,
    Unknown,
    Write,
)
from tests.unit.engines.scripted import Facts, ScriptedStore, open_scripted


async def warm(lane: Lane, *ids: int) -> None:
    await ask_all(lane, [write(key(id), 1) for id in ids])


# --- groups


@pytest.mark.scenario("C4")
async def test_what_arrives_in_one_turn_shares_a_flush_and_a_lone_write_has_its_own() -> None:
    lane, store = await open_scripted()
    await ask(lane, write(key(1), 1))
    assert len(store.commits) == 1
    await ask_all(lane, [write(key(1), seq) for seq in range(2, 102)])
    assert [len(group) for group in store.commits] == [1, 100]
    await lane.close()


@pytest.mark.scenario("C4")
async def test_those_answered_together_flush_together_again() -> None:
    lane, store = await open_scripted()
    await warm(lane, *range(8))
    store.commits.clear()
    finished = [asyncio.get_running_loop().create_future() for _ in range(8)]

    def again(id: int, seq: int) -> None:
        def done(answer: Answer) -> None:
            if seq < 10:
                again(id, seq + 1)
            else:
                finished[id].set_result(answer)

        lane.submit(write(key(id), seq), done)

    for id in range(8):
        again(id, 2)
    assert [await each for each in finished] == [Landed((10,))] * 8
    assert [len(group) for group in store.commits] == [8] * 9
    await lane.close()


@pytest.mark.parametrize(
    "limits", [replace(Limits(), group_writes_max=10), replace(Limits(), group_bytes_max=10_000)]
)
async def test_a_group_is_bounded_in_changes_and_bytes(limits: Limits) -> None:
    lane, store = await open_scripted(limits)
    await warm(lane, 1)
    store.commits.clear()
    writes = [write(key(1), seq, value=bytes(1_000 - 64)) for seq in range(2, 37)]
    assert count(Landed, await ask_all(lane, writes)) == 35
    assert [len(group) for group in store.commits] == [10, 10, 10, 5]
    await lane.close()


async def test_positions_rise_over_groups_and_are_not_reused_after_a_failed_one() -> None:
    lane, store = await open_scripted()
    await ask(lane, write(key(1), 1))
    store.fail["commit"] = StorageError("disk full")
    await ask(lane, write(key(1), 2))
    await ask(lane, write(key(1), 2))
    assert [staged.position for group in store.commits for staged in group] == [1, 2, 3]
    assert lane.position == 3
    await lane.close()


# --- lookups


@pytest.mark.scenario("I17", "I18")
async def test_one_turn_is_one_lookup_and_unenforced_writes_look_up_no_mark() -> None:
    lane, store = await open_scripted()
    await ask_all(
        lane,
        [write(key(1), 1), write(key(2), 1, enforce=False), write(key(1), 2), write(key(3), 1)],
    )
    assert store.loads == [([key(1), key(2), key(3)], [(key(1), A), (key(3), A)])]
    await ask_all(lane, [write(key(id), 5) for id in (1, 2, 3)])
    assert len(store.loads) == 1, "a mark of an aggregate never written before needs no lookup"
    await lane.close()


@pytest.mark.scenario("C1", "W16")
async def test_a_warm_change_does_not_overtake_one_that_waits_for_a_lookup() -> None:
    lane, store = await open_scripted()
    await warm(lane, 1)
    both = Write(A, (leg(key(1), 2), leg(key(2), 1)))
    answers = await ask_all(lane, [both, write(key(1), 3), delete(key(1), at=3)])
    assert [type(answer).__name__ for answer in answers] == ["Landed", "Landed", "Deleted"]
    assert [staged.key for staged in store.commits[-1]] == [key(1), key(2), key(1), key(1)]
    await lane.close()


@pytest.mark.scenario("I17")
async def test_a_key_is_not_looked_up_again_while_it_is_being_looked_up() -> None:
    lane, store = await open_scripted(replace(Limits(), cached_heads_max=0, cached_marks_max=0))
    first = ask(lane, write(key(1), 1))
    while not store.loads:
        await asyncio.sleep(0.000_01)
    second = ask(lane, write(key(1), 2))
    assert await first == Landed((1,))
    assert await second == Landed((2,))
    assert store.loads == [([key(1)], [(key(1), A)])]
    await lane.close()


@pytest.mark.scenario("I5", "I17", "I18")
async def test_a_mark_published_while_it_is_looked_up_is_not_lost() -> None:
    """The lookup begins before the write is durable and ends after it was published."""
    lane, store = await open_scripted(replace(Limits(), cached_marks_max=0))
    await ask(lane, write(key(1), 3))
    unenforced = ask(lane, write(key(1), 8, enforce=False))
    lane._tail.expect()
    found = store.load([], [(key(1), A)])
    assert await unenforced == Landed((2,))
    lane._tail.learn([], [(key(1), A)], found)
    assert lane._tail.mark(key(1), A) == 8
    await lane.close()


@pytest.mark.scenario("I19")
async def test_caches_are_bounded_and_what_is_in_flight_stays() -> None:
    lane, store = await open_scripted(replace(Limits(), cached_heads_max=5, cached_marks_max=3))
    for turn in range(3):
        await ask_all(lane, [write(key(id), turn + 1) for id in range(50)])
        assert len(lane._tail._standings) <= 5
        assert len(lane._tail._marks) <= 3
    lane.gate.hold()
    pending = [ask(lane, write(key(id), 4)) for id in range(50)]
    last = ask(lane, write(key(99), 1))
    assert await ask(lane, write(key(0), 4, at=3)) != Landed((4,)), "judged after all of them"
    lookups = len(store.loads)
    for id in range(50):
        assert (await ask(lane, GetDetails(key(id)))).version == 3  # type: ignore[union-attr]
    assert len(store.loads) == lookups, "a head that is looked up again may not be visible yet"
    lane.gate.release()
    assert [await answer for answer in pending] == [Landed((4,))] * 50
    await last
    assert len(lane._tail._standings) <= 5
    await lane.close()


async def test_the_least_recently_used_head_is_evicted_first() -> None:
    lane, store = await open_scripted(replace(Limits(), cached_heads_max=2))
    await warm(lane, 1)
    await warm(lane, 2)
    await ask(lane, GetDetails(key(1)))
    await warm(lane, 3)
    store.loads.clear()
    await ask(lane, GetDetails(key(1)))
    assert store.loads == []
    await ask(lane, GetDetails(key(2)))
    assert store.loads == [([key(2)], [])]
    await lane.close()


async def test_a_lookup_that_fails_refuses_changes_and_fails_reads_and_nothing_more() -> None:
    facts = Facts()
    lane, store = await open_scripted(facts=facts)
    store.fail["load"] = StorageError("cannot read")
    change, read = ask(lane, write(key(1), 1)), ask(lane, Read(key(1)))
    assert await change == Busy(), "nothing was applied, and it may be sent again"
    assert isinstance(await read, Unknown)
    assert "lane.load_failed" in facts.names
    assert await ask(lane, write(key(1), 1)) == Landed((1,))
    await lane.close()


@pytest.mark.scenario("C12")
async def test_damage_is_told_to_those_who_need_what_is_damaged_and_to_nobody_else() -> None:
    """And not as busy: sent again it would only be found again."""
    facts = Facts()
    lane, store = await open_scripted(facts=facts)
    store.damaged.add(key(2))
    answers = await ask_all(
        lane,
        [
            write(key(1), 1),
            write(key(2), 1),
            delete(key(2)),
            Trim(key(2), 1, A),
            write(key(3), 1),
            Read(key(2)),
            GetDetails(key(2)),
            GetDetails(key(4)),
        ],
    )
    sound = [Landed, NotLoaded, NotLoaded, NotLoaded, Landed, Unknown, Unknown, AggregateMissing]
    assert [type(answer) for answer in answers] == sound
    for answer in answers:
        if isinstance(answer, NotLoaded | Unknown):
            assert "is damaged" in answer.detail
    assert "lane.load_failed" in facts.names
    assert await ask(lane, write(key(2), 1)) == NotLoaded(f"the head of {key(2)} is damaged")
    store.damaged.clear()
    assert await ask(lane, write(key(2), 1)) == Landed((1,)), "nothing was applied, or remembered"
    await lane.close()


async def test_resubmitting_on_a_failed_lookup_does_not_spin() -> None:
    lane, store = await open_scripted()
    store.fail["load"] = StorageError("cannot read")
    answered = asyncio.get_running_loop().create_future()

    def again(answer: Answer) -> None:
        assert answer == Busy()
        lane.submit(write(key(1), 1), answered.set_result)

    lane.submit(write(key(1), 1), again)
    assert await answered == Landed((1,))
    await lane.close()


# --- failures


@pytest.mark.scenario("SC-74", "C6")
async def test_a_known_failure_is_noted_and_the_lane_goes_on() -> None:
    facts = Facts()
    lane, store = await open_scripted(facts=facts)
    await warm(lane, 1)
    store.fail["commit"] = StorageError("disk full")
    answers = await ask_all(lane, [write(key(1), 2), write(key(1), 3)])
    assert count(Unknown, answers) == 2
    assert "lane.flush_failed" in facts.names
    assert await ask(lane, write(key(1), 2, at=1)) == Landed((2,))
    assert lane.is_stopped is False
    await lane.close()


@pytest.mark.scenario("C7")
@pytest.mark.parametrize(
    "error", [StorageError("disk gone", is_outcome_known=False), OSError("disk gone")]
)
async def test_an_unknown_outcome_stops_the_lane_for_good(error: BaseException) -> None:
    facts = Facts()
    lane, store = await open_scripted(replace(Limits(), group_writes_max=1), facts=facts)
    await warm(lane, 1)
    feed = ask(lane, FeedRead(lane.position, wait_ms=30_000))
    lane.gate.hold()
    in_doubt = ask(lane, write(key(1), 2))
    on_top = ask(lane, write(key(1), 3))
    gone = ask(lane, delete(key(1)))
    put_off = ask(lane, write(key(1), 4))
    store.lose_answer = error
    lane.gate.release()
    waiting = ask(lane, write(key(2), 1))
    for answer in (in_doubt, on_top, gone, put_off, waiting):
        assert isinstance(await answer, Unknown)
    assert await feed == FeedPage((), 1, True)
    assert lane.is_stopped is True
    assert "lane.stopped" in facts.names
    for request in (write(key(1), 5), Read(key(1)), GetDetails(key(1)), FeedRead(0)):
        assert isinstance(await ask(lane, request), Unknown)
    assert len(store.commits) == 2, "nothing was committed behind the one in doubt"
    await lane.close()


async def test_a_read_that_fails_does_not_spoil_its_neighbours() -> None:
    facts = Facts()
    lane, store = await open_scripted(replace(Limits(), readers_max=1), facts=facts)
    await warm(lane, 1, 2)
    store.fail["read"] = StorageError("bad checksum")
    bad, good = await ask_all(lane, [Read(key(1)), Read(key(2))])
    assert isinstance(bad, Unknown)
    assert "bad checksum" in bad.detail
    assert isinstance(good, Page)
    store.fail["read"] = RuntimeError("a bug")
    bad, other = await ask_all(lane, [Read(key(1)), Read(key(2))])
    assert isinstance(bad, Unknown)
    assert isinstance(other, Unknown), "a bug fails the whole hop, and nobody waits for ever"
    store.fail["feed"] = StorageError("bad checksum")
    assert isinstance(await ask(lane, FeedRead(0)), Unknown)
    assert facts.names.count("lane.read_failed") == 3
    await lane.close()


@pytest.mark.real_loop
async def test_one_done_that_raises_keeps_nobody_from_his_answer() -> None:
    lane, _ = await open_scripted()
    await warm(lane, 1)
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: raised.append(context["exception"])
    )

    def bad(answer: Answer) -> None:
        raise ValueError(answer)

    lane.submit(write(key(1), 2), bad)
    lane.submit(write(key(1), 3), bad)
    assert await ask(lane, write(key(1), 4)) == Landed((4,))
    assert len(raised) == 2
    assert await ask(lane, write(key(1), 5)) == Landed((5,))
    lane.gate.hold()
    lane.submit(delete(key(1)), bad)
    later = ask(lane, Trim(key(1), 2, A))
    lane.gate.release()
    assert isinstance(await later, AggregateMissing)
    await lane.close()


async def test_after_a_lookup_that_failed_nothing_is_remembered_for_it() -> None:
    lane, store = await open_scripted()
    await warm(lane, 1)
    store.fail["load"] = StorageError("not now")
    assert await ask(lane, write(key(2), 1)) == Busy()
    for seq in range(2, 6):
        await ask(lane, write(key(1), seq))
    assert lane._tail._published is None
    await lane.close()


# --- opening and closing


async def test_what_the_store_says_at_open_is_raised() -> None:
    limits = Limits()
    store = ScriptedStore(limits)
    store.fail["open"] = StorageForeignError("not a log")
    with pytest.raises(StorageForeignError):
        await open_scripted(limits, store=store)


@pytest.mark.parametrize(
    "limits", [replace(Limits(), routing_rule="org"), replace(Limits(), num_shards=0)]
)
def test_placement_that_cannot_work_is_a_configuration_error(limits: Limits) -> None:
    with pytest.raises(ConfigurationError):
        Lane(ScriptedStore(limits), limits=limits, clock=SystemClock())


async def test_after_close_everything_is_refused_and_waiting_feeds_have_ended() -> None:
    lane, _ = await open_scripted()
    waiting = ask(lane, FeedRead(0, wait_ms=30_000))
    pending = ask(lane, write(key(1), 1))
    closing = asyncio.ensure_future(lane.close())
    assert await waiting == FeedPage((), 0, True)
    assert await ask(lane, write(key(1), 2)) == Busy()
    await closing
    assert await pending == Landed((1,))
    assert await ask(lane, Read(key(1))) == Busy()


async def test_a_store_that_fails_to_close_says_so_once() -> None:
    lane, store = await open_scripted()
    store.fail["close"] = StorageError("cannot sync")
    with pytest.raises(StorageError):
        await lane.close()
    await lane.close()


# --- reads


@pytest.mark.scenario("R3")
async def test_a_read_above_the_newest_version_touches_no_store() -> None:
    lane, store = await open_scripted()
    await warm(lane, 1)
    answer = await ask(lane, Read(key(1), ReadFilters(2)))
    assert answer == Page((), None)
    assert store.reads == []
    await lane.close()


@pytest.mark.scenario("C13", "R11")
async def test_a_page_that_was_being_reclaimed_is_decided_again() -> None:
    lane, store = await open_scripted()
    await ask_all(lane, [write(key(1), seq) for seq in (1, 2, 3)])
    fetch = store.read

    def cut_short(read: Read, head: Head, budget: int) -> Page:
        """What a trim and a reclaim that came in between leave of the page."""
        page = fetch(read, head, budget)
        return page._replace(batches=page.batches[2:])

    store.read = cut_short  # type: ignore[method-assign]
    answer = ask(lane, Read(key(1)))
    lane._reads.reclaiming()
    lane._tail._standings[key(1).packed].visible = lane._tail.visible(key(1))._replace(floor=3)
    assert await answer == BelowFloor(1, 3)
    answer = ask(lane, Read(key(1), ReadFilters(3)))
    lane._reads.reclaiming()
    del lane._tail._standings[key(1).packed]
    assert isinstance(await answer, Page), "looked up again and decided again"
    await lane.close()


async def test_a_feed_read_is_told_nothing_that_is_not_published() -> None:
    lane, _ = await open_scripted()
    await ask_all(lane, [write(key(1), seq) for seq in (1, 2, 3)])
    lane._reads.position = 2  # as if the third were durable but not published yet
    page = await ask(lane, FeedRead(0))
    assert isinstance(page, FeedPage)
    assert [entry.position for entry in page.entries] == [1, 2]
    assert (page.next_after, page.is_at_end) == (2, True)
    await lane.close()


async def test_feed_reads_that_wait_for_the_same_entry_share_one_look() -> None:
    lane, store = await open_scripted()
    looks = 0
    feed = store.feed

    def counted(read: FeedRead, budget: int) -> FeedPage:
        nonlocal looks
        looks += 1
        return feed(read, budget)

    store.feed = counted  # type: ignore[method-assign]
    waiting = [ask(lane, FeedRead(0, wait_ms=30_000)) for _ in range(20)]
    await ask(lane, write(key(1), 1))
    pages = [await answer for answer in waiting]
    assert all(page == pages[0] for page in pages)
    assert looks == 1
    await lane.close()


async def test_a_feed_read_from_beyond_the_end_waits_on() -> None:
    lane, _ = await open_scripted()
    beyond = ask(lane, FeedRead(5, wait_ms=30_000))
    await ask_all(lane, [write(key(1), seq) for seq in range(1, 6)])
    assert not beyond.done()
    await ask(lane, write(key(1), 6))
    page = await beyond
    assert isinstance(page, FeedPage)
    assert [entry.position for entry in page.entries] == [6]
    await lane.close()


async def test_a_slice_under_way_at_close_is_finished_and_the_last() -> None:
    lane, store = await open_scripted()
    await ask_all(lane, [write(key(1), seq) for seq in range(1, 4)])
    await ask(lane, Trim(key(1), 3, A))
    reclaiming = asyncio.ensure_future(lane.reclaim())
    await asyncio.sleep(0)
    await lane.close()
    assert await reclaiming == 2
    assert list(store._lives[(key(1), 1)]) == [3]


@pytest.mark.parametrize("when", ["while an empty slice runs", "long before its flush"])
async def test_what_dies_beside_a_look_for_the_dead_is_dropped_after_a_while(when: str) -> None:
    lane, store = await open_scripted()
    await ask_all(lane, [write(key(1), seq) for seq in range(1, 4)])
    if when == "long before its flush":
        lane.gate.hold()
        trimming = ask(lane, Trim(key(1), 3, A))
        await asyncio.sleep(2 * Limits().reclaim_after_s)
        lane.gate.release()
    else:
        looking = asyncio.ensure_future(lane.reclaim())
        await asyncio.sleep(0)
        trimming = ask(lane, Trim(key(1), 3, A))
        assert await looking == 0
    assert await trimming == Trimmed()
    await asyncio.sleep(Limits().reclaim_after_s + 1)
    assert list(store._lives[(key(1), 1)]) == [3]
    await lane.close()


async def test_dead_batches_are_dropped_after_a_while_without_being_asked() -> None:
    facts = Facts()
    lane, store = await open_scripted(facts=facts)
    await ask_all(lane, [write(key(1), seq) for seq in range(1, 11)])
    assert await ask(lane, Trim(key(1), 8, A)) == Trimmed()
    await asyncio.sleep(Limits().reclaim_after_s + 1)
    assert facts.names.count("lane.reclaimed") == 1
    assert [b.version for b in store._lives[(key(1), 1)].values()] == [8, 9, 10]
    store.fail["reclaim"] = StorageError("busy")
    await ask(lane, delete(key(1)))
    await asyncio.sleep(Limits().reclaim_after_s + 1)
    assert "lane.reclaim_failed" in facts.names
    await asyncio.sleep(Limits().reclaim_after_s + 1)
    assert facts.names.count("lane.reclaimed") == 2
    assert await ask(lane, write(key(1), 10)) != SequenceTaken(key(1), 10, 10)
    await lane.close()
