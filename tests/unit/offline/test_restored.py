"""A store that was restored from a backup or copied is noticed, and no event of it is lost."""

from uuid import UUID

import pytest

from landed.errors import SequenceRegressedError
from landed.ids import EventId
from landed.log import ANY, Event, Trim, Write
from landed.offline.entry import Entry, Run, Settled
from landed.offline.recovery import plan_repair
from landed.offline.taken import Absurd, Regressed, judge_taken
from tests.stories.faulty import LoseAnswer, LoseRequest
from tests.unit.offline.devices import CLIENT, NOTES, OTHERS, Device, landed, world


def entry(seq: int, *, is_attempted: bool = True, event_id: int | None = None) -> Entry:
    return Entry(seq, EventId(UUID(int=event_id or seq)), 0, 1, 0, b"", None, is_attempted)


def run(*seqs: int, attempted_seq: int) -> Run:
    return Run(1, NOTES, tuple(entry(seq) for seq in seqs), attempted_seq)


def test_a_number_above_anything_sent_is_never_taken_for_ours():
    assert judge_taken(run(6, attempted_seq=5), 6, {}) == Regressed(6, "")
    assert judge_taken(run(6, attempted_seq=6), 8, {}) == Regressed(8, "")


def test_a_number_that_was_sent_and_holds_another_event_is_not_ours():
    verdict = judge_taken(run(6, 7, attempted_seq=7), 7, {6: EventId(UUID(int=6)), 7: None})
    assert isinstance(verdict, Regressed)


def test_what_was_sent_and_is_not_shown_is_ours_up_to_the_mark():
    sent = run(1, 2, 3, attempted_seq=2)
    assert judge_taken(sent, 2, {}) == Settled(sent, 2)
    assert judge_taken(sent, 2, {1: EventId(UUID(int=1))}) == Settled(sent, 2)
    assert judge_taken(run(4, attempted_seq=9), 3, {}) == Absurd(3)


async def restored(device: Device, log) -> None:
    """A backup after two events; then two more land; then the backup is put back."""
    await device.put("1", "2")
    await device.queue.sync(log)
    backup = device.copy_of_disk()
    await device.put("3", "4")
    await device.queue.sync(log)
    device.restore(backup)


async def test_a_restored_store_is_noticed_refused_and_recovered_under_new_numbers():
    async with world() as (device, log):
        await restored(device, log)
        assert await device.put("new") == [3], "the counter went back"
        with pytest.raises(SequenceRegressedError) as regressed:
            await device.queue.sync(log)
        assert (regressed.value.highest_seq, regressed.value.attempted_seq) == (4, 2)
        device.start()
        writes = len(log.writes)
        with pytest.raises(SequenceRegressedError):
            await device.queue.sync(log)
        assert len(log.writes) == writes, "nothing is sent any more, by no process"
        assert "restored or copied" in (await device.queue.status()).fault
        await device.put("newer")
        recovered = await device.queue.recover(log)
        assert recovered == ((), ((3, 5), (4, 6)), ())
        await device.queue.sync(log)
        assert await landed(log) == [
            (1, "1"),
            (2, "2"),
            (3, "3"),
            (4, "4"),
            (5, "new"),
            (6, "newer"),
        ]
        assert await device.put("x") == [7]


async def test_an_unheard_refusal_after_a_restore_does_not_pass_for_a_lost_acknowledgement():
    """The first sending is refused and nobody hears; the second must not mark it."""
    async with world() as (device, log):
        await device.put("1", "2")
        await device.queue.sync(log)
        backup = device.copy_of_disk()
        await device.put("3")
        await device.queue.sync(log)
        device.restore(backup)
        await device.put("new")
        log.on_write(LoseAnswer())
        with pytest.raises(SequenceRegressedError, match="another event's"):
            await device.queue.sync(log)
        assert (await device.queue.recover(log)).renumbered == ((3, 4),)
        await device.queue.sync(log)
        assert await landed(log) == [(1, "1"), (2, "2"), (3, "3"), (4, "new")]


async def test_events_that_the_original_sent_are_recognised_after_a_restore():
    async with world() as (device, log):
        await device.put("1", "2")
        backup = device.copy_of_disk()
        await device.put("3")
        await device.queue.sync(log)
        device.restore(backup)
        await device.put("new")
        with pytest.raises(SequenceRegressedError):
            await device.queue.sync(log)
        assert await device.queue.recover(log) == ((1, 2), ((3, 4),), ())
        await device.queue.sync(log)
        assert await landed(log) == [(1, "1"), (2, "2"), (3, "3"), (4, "new")]


async def test_a_clone_in_use_elsewhere_loses_nothing_of_either():
    async with world() as (device, log):
        await device.put("1")
        await device.queue.sync(log)
        clone = Device()
        clone.restore(device.copy_of_disk())
        await device.put("mine")
        await clone.put("theirs", "too")
        await device.queue.sync(log)
        with pytest.raises(SequenceRegressedError):
            await clone.queue.sync(log)
        await clone.queue.recover(log)
        await clone.queue.sync(log)
        await device.put("again")
        with pytest.raises(SequenceRegressedError):
            await device.queue.sync(log)
        await device.queue.recover(log)
        await device.queue.sync(log)
        values = [value for _, value in await landed(log)]
        assert values == ["1", "mine", "theirs", "too", "again"]
        clone.disk.close()


async def test_where_nobody_can_tell_the_aggregate_is_blocked_and_shown():
    """Tried once unheard, and the part of the history that would tell is trimmed away."""
    async with world() as (device, log):
        await restored(device, log)
        await device.put("new")
        log.on_write(LoseRequest())
        await device.queue.sync(log, timeout_s=0.2)
        snapshot = Event.new(9, b"all", client_seq=0, event_id=None)
        write = Write.to(
            NOTES, [snapshot], client_id=UUID(int=5), expected_version=ANY, enforce_sequence=False
        )
        (version,) = (await log.write(write)).versions
        await log.trim(Trim(NOTES, version, CLIENT))
        with pytest.raises(SequenceRegressedError):
            await device.queue.sync(log)
        assert await device.queue.recover(log) == ((), (), (3,))
        status = await device.queue.status()
        assert status.fault is None
        assert [(one.client_seq, one.queued) for one in status.blocked] == [(3, 1)]
        assert await device.put("x", key=OTHERS) == [5], "above everything the log has seen"
        assert (await device.queue.sync(log)).landed == 1


def test_a_tried_event_that_is_not_shown_is_left_to_a_person():
    entries = (entry(3), entry(4, is_attempted=False))
    repair = plan_repair(1, NOTES, entries, owners={}, reported=9)
    assert (repair.stuck_at, repair.renumber, repair.synced) == (3, (4,), ())
    repair = plan_repair(1, NOTES, entries[1:], owners={}, reported=9)
    assert (repair.stuck_at, repair.renumber, repair.floor) == (None, (4,), 9)


def test_an_event_that_an_earlier_recovery_renumbered_is_recognised_by_its_id():
    """Found by a seed: one backup put back twice."""
    owners = {3: EventId(UUID(int=77)), 5: EventId(UUID(int=3))}
    repair = plan_repair(1, NOTES, (entry(3), entry(4)), owners=owners, reported=5)
    assert (repair.synced, repair.renumber, repair.stuck_at) == ((3,), (), 4)
    entries = (entry(3), entry(4, is_attempted=False))
    repair = plan_repair(1, NOTES, entries, owners=owners, reported=5)
    assert (repair.synced, repair.renumber, repair.stuck_at) == ((3,), (4,), None)


def test_what_lies_above_the_log_s_numbers_moves_too_if_it_is_behind_one_that_moves():
    """Found by a seed: else it would overtake."""
    entries = (entry(3, is_attempted=False), entry(9, is_attempted=False))
    assert plan_repair(1, NOTES, entries, owners={}, reported=5).renumber == (3, 9)


async def test_one_backup_put_back_twice_doubles_nothing():
    async with world() as (device, log):
        await device.put("1")
        backup = device.copy_of_disk()
        await device.put("lost")
        device.store.abandon(1, "so that 2 goes first")
        await device.queue.sync(log)
        for _ in range(2):
            device.restore(backup)
            with pytest.raises(SequenceRegressedError):
                await device.queue.sync(log)
            await device.queue.recover(log)
            await device.queue.sync(log)
        assert [value for _, value in await landed(log)] == ["lost", "1"]


def test_everything_behind_an_event_that_cannot_have_landed_moves_with_it():
    entries = (entry(3), entry(4), entry(9))
    owners = {3: EventId(UUID(int=3)), 4: EventId(UUID(int=77))}
    repair = plan_repair(1, NOTES, entries, owners=owners, reported=0)
    assert (repair.synced, repair.renumber, repair.floor) == ((3,), (4, 9), 4)


def test_numbers_above_everything_the_log_has_seen_stay_as_they_are():
    """Tried or not: nobody else has them, so they are as good as ever."""
    entries = (entry(8), entry(9, is_attempted=False))
    repair = plan_repair(1, NOTES, entries, owners={}, reported=7)
    assert (repair.synced, repair.renumber, repair.stuck_at) == ((), (), None)


async def test_a_recovery_without_a_fault_changes_nothing():
    async with world() as (device, log):
        await device.put("a")
        assert await device.queue.recover(log) == ((), (), ())
        assert (await device.queue.status()).next_seq == 2
