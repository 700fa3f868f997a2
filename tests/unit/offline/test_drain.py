"""Every queued event lands once, in order, under the number it was saved with."""

import asyncio
from uuid import UUID

import pytest

from landed.errors import (
    BusyError,
    ConnectFailedError,
    DrainFaultError,
    InvalidWriteError,
    NotAllowedError,
    OutcomeUnknownError,
    PoolClosedError,
    SequenceInFlightError,
    SequenceTakenError,
    VersionConflictError,
)
from landed.log import ANY, Delete, DeleteLeg, Event, Trim, Write
from landed.offline import DrainPolicy, QueueLimits
from landed.sim import sim_loop
from tests.stories.faulty import Answer, DelayApply, LoseAnswer, LoseRequest
from tests.unit.offline.devices import CLIENT, NOTES, OTHERS, landed, world


@pytest.mark.scenario("SWA-84")
async def test_three_events_queued_offline_land_in_order_with_numbers_one_to_three():
    async with world() as (device, log):
        log.is_down = True
        assert await device.put("a", "b", "c") == [1, 2, 3]
        synced = await device.queue.sync(log, timeout_s=5)
        assert (synced.landed, synced.left, synced.is_in_time) == (0, 3, False)
        log.is_down = False
        synced = await device.queue.sync(log)
        assert (synced.landed, synced.left, synced.is_in_time) == (3, 0, True)
        assert await landed(log) == [(1, "a"), (2, "b"), (3, "c")]
        assert len(log.writes) == 1, "one request for the whole run"


async def test_no_guard_is_sent_and_the_sequence_is_enforced():
    async with world() as (device, log):
        await device.put("a")
        await device.queue.sync(log)
        (write,) = log.writes
        assert write.client_id == CLIENT
        assert write.legs[0].expected_version is ANY
        assert write.legs[0].enforce_sequence
        assert write.legs[0].allow_create


@pytest.mark.scenario("SWA-85")
async def test_a_lost_acknowledgement_is_recognised_and_nothing_doubles():
    async with world() as (device, log):
        await device.put("a", "b")
        log.on_write(LoseAnswer())
        synced = await device.queue.sync(log)
        assert (synced.landed, synced.left) == (2, 0)
        assert [write.legs for write in log.writes] == [log.writes[0].legs] * 2
        assert await landed(log) == [(1, "a"), (2, "b")]
        assert [fact["how"] for fact in device.numbers("offline.landed")] == ["taken"]


@pytest.mark.scenario("SWA-87")
async def test_a_regrouped_run_is_marked_only_as_far_as_the_log_got():
    async with world() as (device, log):
        await device.put("1", "2", "3")
        log.on_write(LoseAnswer())
        await device.queue.sync(log, timeout_s=0.2)
        device.start()
        await device.put("4", "5")
        log.writes.clear()
        await device.queue.sync(log)
        sent = [[event.client_seq for event in write.legs[0].events] for write in log.writes]
        assert sent == [[1, 2, 3, 4, 5], [4, 5]]
        assert await landed(log) == [(n, str(n)) for n in range(1, 6)]


async def test_a_late_copy_of_a_shorter_run_doubles_nothing():
    async with world() as (device, log):
        await device.put("1", "2")
        log.on_write(DelayApply(3.0), LoseRequest(), LoseRequest())
        syncing = asyncio.create_task(device.queue.sync(log))
        await asyncio.sleep(0.1)
        await device.put("3")
        await syncing
        await log.settle()
        await device.queue.sync(log)
        assert await landed(log) == [(1, "1"), (2, "2"), (3, "3")]


@pytest.mark.scenario("SWA-88")
async def test_in_flight_and_ten_unknowns_are_held_with_the_same_numbers():
    async with world() as (device, log):
        await device.put("a")
        in_flight = SequenceInFlightError(highest_seq=1, attempted_seq=1)
        log.on_write(Answer(in_flight), *[LoseRequest()] * 10)
        await device.queue.sync(log)
        assert {write.legs for write in log.writes} == {log.writes[0].legs}
        assert len(log.writes) == 12
        assert await landed(log) == [(1, "a")]


async def test_pauses_grow_to_a_cap_and_news_of_a_network_ends_them():
    async with world() as (device, log):
        await device.put("a")
        log.is_down = True
        syncing = asyncio.create_task(device.queue.sync(log))
        await asyncio.sleep(600)
        pauses = [fact["pause_s"] for fact in device.numbers("offline.held")]
        assert 0.25 <= pauses[0] <= 0.5
        assert pauses == sorted(pauses[:7]) + pauses[7:], "each longer than the one before"
        assert all(30 <= pause <= 60 for pause in pauses[8:])
        log.is_down = False
        before = sim_loop().time()
        device.queue.connected()
        await syncing
        assert sim_loop().time() - before < 0.1
        assert await landed(log) == [(1, "a")]


async def test_a_busy_log_is_left_alone_as_long_as_it_asks():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(Answer(BusyError(retry_after_s=7.0)))
        before = sim_loop().time()
        await device.queue.sync(log)
        assert sim_loop().time() - before >= 7.0


@pytest.mark.scenario("SWA-90")
async def test_an_event_refused_for_good_stops_its_aggregate_there_and_no_other():
    async with world() as (device, log):
        await device.put("1", "2", "3")
        await device.put("x", key=OTHERS)
        refusal = InvalidWriteError("no such kind of note", code=2020)

        class Picky:
            def __getattr__(self, name):
                return getattr(log, name)

            async def write(self, write, *, timeout_s=None):
                if any(event.value == b"2" for event in write.legs[0].events):
                    raise refusal
                return await log.write(write, timeout_s=timeout_s)

        synced = await device.queue.sync(Picky())
        assert await landed(log) == [(1, "1")]
        assert await landed(log, OTHERS) == [(4, "x")]
        (blocked,) = synced.blocked
        assert blocked == (NOTES, 2, 2020, "no such kind of note", 2)
        assert synced.left == 2
        await device.put("4")
        assert (await device.queue.sync(Picky())).landed == 0
        device.start()
        assert (await device.queue.status()).blocked[0].client_seq == 2, "it is durable"
        await device.queue.abandon(2, "the user said so")
        await device.queue.sync(Picky())
        assert await landed(log) == [(1, "1"), (3, "3"), (5, "4")]
        assert (await device.queue.status()).abandoned == 1


async def test_an_aggregate_is_tried_again_once_it_is_unblocked():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(Answer(NotAllowedError("", code=10001)))
        assert len((await device.queue.sync(log)).blocked) == 1
        assert await device.queue.unblock(NOTES)
        assert not await device.queue.unblock(NOTES)
        await device.queue.sync(log)
        assert await landed(log) == [(1, "a")]


async def test_a_deleted_aggregate_blocks_its_queue():
    async with world() as (device, log):
        await device.put("a")
        await device.queue.sync(log)
        await log.delete(Delete(CLIENT, (DeleteLeg(NOTES, ANY, False, False),)))
        await device.put("b")
        (blocked,) = (await device.queue.sync(log)).blocked
        assert (blocked.client_seq, blocked.code) == (2, 2006)


async def test_a_conflict_is_a_fault_and_marks_nothing():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(Answer(VersionConflictError(expected=1, actual=2)))
        with pytest.raises(DrainFaultError):
            await device.queue.sync(log)
        assert (await device.queue.status()).queued == 1


async def test_a_mark_below_the_number_it_refuses_is_a_fault():
    async with world() as (device, log):
        await device.put("a", "b")
        await device.queue.sync(log)
        await device.put("c")
        log.on_write(Answer(SequenceTakenError(highest_seq=2, attempted_seq=3)))
        with pytest.raises(DrainFaultError):
            await device.queue.sync(log)
        assert (await device.queue.status()).queued == 1


async def test_a_closed_log_is_told_to_the_caller():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(Answer(PoolClosedError()))
        with pytest.raises(PoolClosedError):
            await device.queue.sync(log)


async def test_where_the_mark_is_not_said_events_go_one_by_one():
    async with world() as (device, log):
        await device.put("1", "2")
        log.on_write(LoseAnswer())
        await device.queue.sync(log, timeout_s=0.2)
        await device.put("3")

        class Silent:
            def __getattr__(self, name):
                return getattr(log, name)

            async def write(self, write, *, timeout_s=None):
                try:
                    return await log.write(write, timeout_s=timeout_s)
                except SequenceTakenError as taken:
                    raise SequenceTakenError(highest_seq=None, attempted_seq=None) from taken

        log.writes.clear()
        await device.queue.sync(Silent())
        sent = [[event.client_seq for event in write.legs[0].events] for write in log.writes]
        assert sent == [[1, 2, 3], [1], [2], [3]]
        assert await landed(log) == [(1, "1"), (2, "2"), (3, "3")]


async def test_runs_are_bounded_by_events_and_by_bytes():
    limits = QueueLimits(run_events_max=3, run_bytes_max=10)
    async with world(limits=limits) as (device, log):
        await device.put("1", "2", "3", "4")
        await device.put("a" * 6, "b" * 6, "c" * 40, "d", key=OTHERS)
        await device.queue.sync(log)
        sizes = [(w.legs[0].key, len(w.legs[0].events)) for w in log.writes]
        assert [n for key, n in sizes if key == NOTES] == [3, 1]
        assert [n for key, n in sizes if key == OTHERS] == [1, 1, 1, 1]


async def test_aggregates_take_turns():
    async with world(limits=QueueLimits(run_events_max=1)) as (device, log):
        for value in "123":
            await device.put(value)
            await device.put(value, key=OTHERS)
        await device.queue.sync(log)
        assert [write.legs[0].key for write in log.writes] == [NOTES, OTHERS] * 3


async def test_a_lost_acknowledgement_in_a_trimmed_history_is_still_ours():
    async with world() as (device, log):
        await device.put("1", "2")
        log.on_write(LoseAnswer())
        await device.queue.sync(log, timeout_s=0.2)
        snapshot = Event.new(9, b"all", client_seq=0, event_id=None)
        write = Write.to(
            NOTES,
            [snapshot],
            client_id=UUID(int=5),
            expected_version=ANY,
            enforce_sequence=False,
        )
        await log.write(write)
        await log.trim(Trim(NOTES, 2, CLIENT))
        synced = await device.queue.sync(log)
        assert (synced.landed, synced.left) == (2, 0)
        assert await landed(log) == [(0, "all")]


async def test_a_failed_look_at_the_log_marks_nothing_and_is_repeated():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(LoseAnswer())
        log.on_read(Answer(ConnectFailedError("")), Answer(ConnectFailedError("")))
        synced = await device.queue.sync(log)
        assert (synced.landed, synced.left) == (1, 0)
        assert len(log.reads) == 3


async def test_what_is_saved_while_a_sync_runs_for_ever_is_sent_as_well():
    async with world() as (device, log):
        syncing = asyncio.create_task(device.queue.keep_syncing(log))
        for value in "abc":
            await device.put(value)
            await asyncio.sleep(1)
            assert (await device.queue.status()).queued == 0
        syncing.cancel()
        await asyncio.wait([syncing])
        assert await landed(log) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_policy_that_cannot_work_is_refused():
    with pytest.raises(ValueError, match="backoff_max_s"):
        DrainPolicy(backoff_first_s=2, backoff_max_s=1)


@pytest.mark.scenario("BC-18")
async def test_two_drains_of_one_queue_send_each_event_once_and_in_order():
    """Parts (a), (b) and (d): a second loop, an event added while the first is retried, errors."""
    async with world() as (device, log):
        await device.put("1", "2", "3", "4", "5")
        log.on_write(*[Answer(ConnectFailedError("no"))] * 3)
        first = asyncio.create_task(device.queue.sync(log))
        second = asyncio.create_task(device.queue.sync(log))
        await asyncio.sleep(0.1)
        assert await device.put("6") == [6]
        synced = [await first, await second]
        assert sum(one.landed for one in synced) == 6
        assert await landed(log) == [(n, str(n)) for n in range(1, 7)]
        lowest = [write.legs[0].events[0].client_seq for write in log.writes]
        assert lowest[:4] == [1, 1, 1, 1], "nothing after 1 before 1 is settled"


@pytest.mark.scenario("BC-18")
async def test_a_second_drain_sends_nothing_while_the_first_one_runs():
    async with world() as (device, log):
        await device.put("1", "2")
        pause = log.pause("after_send")
        first = asyncio.create_task(device.queue.sync(log))
        await pause.reached.wait()
        second = asyncio.create_task(device.queue.sync(log))
        await asyncio.sleep(60)
        assert len(log.writes) == 1
        pause.go_on()
        assert [(await first).landed, (await second).landed] == [2, 0]
        assert len(log.writes) == 1


@pytest.mark.scenario("BC-18")
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4, 5])
async def test_a_death_after_send_and_before_mark_resends_and_marks(dies_at):
    """Part (c), at each of the five entries."""
    async with world(limits=QueueLimits(run_events_max=1)) as (device, log):
        await device.put("1", "2", "3", "4", "5")
        pauses = [log.pause("after_send") for _ in range(dies_at)]
        syncing = asyncio.create_task(device.queue.sync(log))
        for pause in pauses[:-1]:
            await pause.reached.wait()
            pause.go_on()
        await pauses[-1].reached.wait()
        syncing.cancel()
        await asyncio.wait([syncing])
        device.start()
        assert [entry.client_seq for _, entry in await device.queue.pending()] == list(
            range(dies_at, 6)
        )
        await device.put("6")
        await device.queue.sync(log)
        assert await landed(log) == [(n, str(n)) for n in range(1, 7)]
        assert device.numbers("offline.landed")[dies_at - 1]["how"] == "taken"


async def test_an_unknown_outcome_of_any_kind_is_never_marked():
    async with world() as (device, log):
        await device.put("a")
        log.on_write(*[Answer(OutcomeUnknownError(reason)) for reason in ("server", "closing")])
        synced = await device.queue.sync(log, timeout_s=0.2)
        assert (synced.landed, synced.left) == (0, 1)
        assert (await device.queue.status()).attempted == 1
