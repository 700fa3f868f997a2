"""Rules broken on purpose: a simulator that finds nothing proves nothing unless it finds these.

Each test patches one rule away, in the test only, and counts how many seeds it takes to notice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from landed.client.pool import Pool
from landed.commands import steps
from landed.commands.moves import At, Saw
from landed.engines import lane
from landed.engines.memory import MemoryStore
from landed.engines.sqlite.append import Appender
from landed.errors import OutcomeUnknownError
from landed.log import SequenceInFlight, SequenceTaken
from landed.log.write import ANY
from landed.projections import MemoryProjection
from landed.sim.disk import Disk
from landed.sim.explore import explore, run_world
from landed.sim.plan import draw

SEEDS = 150


def is_found(invariant: str, *, start: int = 0, worlds: int = 3) -> bool:
    """Whether an invariant is broken in the first worlds that are not clean; one often breaks another.

    ``start``: a seed not far before the one that found it last, so that a test need not live them all.
    """
    broken = (report for report in explore(range(start, start + SEEDS)) if report.violations)
    return any(
        violation.invariant == invariant
        for report in islice(broken, worlds)
        for violation in report.violations
    )


def test_a_loop_that_takes_a_fresh_sequence_after_unknown_without_looking_is_found(monkeypatch):
    recognise = steps._recognise

    def look_only_once(call):
        return recognise(call) if call.attempts == 1 else Saw.NO_HIT

    async def judge_nothing(call):
        return Saw.DEAD if call.unknown else Saw.CLEAR

    monkeypatch.setattr(steps, "_recognise", look_only_once)
    monkeypatch.setitem(steps.STEPS, At.JUDGE, judge_nothing)
    assert is_found("a_request_lands_at_most_once", start=10)


def test_a_projection_without_its_index_is_found(monkeypatch):
    view = MemoryProjection._view

    def forgetful(self, key, event_id, domain):
        return view(self, key, None, domain)

    monkeypatch.setattr(MemoryProjection, "_view", forgetful)
    assert is_found("a_request_lands_at_most_once", worlds=5)


def test_a_cursor_that_moves_without_its_answer_is_found(monkeypatch):
    record = MemoryProjection.record

    async def moves_only_the_cursor(self, steps):
        await record(self, [step._replace(entries=()) for step in steps])

    monkeypatch.setattr(MemoryProjection, "record", moves_only_the_cursor)
    assert is_found("a_request_lands_at_most_once", start=15)


def test_a_judge_that_asks_for_the_sequence_before_the_guard_is_found(monkeypatch):
    judge = lane.judge_write

    def swapped(write, tail, **rest):
        unguarded = write._replace(
            legs=tuple(leg._replace(expected_version=ANY) for leg in write.legs)
        )
        result = judge(unguarded, tail, **rest)
        is_sequence = isinstance(result, SequenceTaken | SequenceInFlight)
        return result if is_sequence else judge(write, tail, **rest)

    monkeypatch.setattr(lane, "judge_write", swapped)
    assert is_found("taken_is_said_behind_the_guard", start=25)


def test_a_pool_that_sends_again_after_unknown_is_found(monkeypatch):
    write_once = Pool.write

    async def sends_again(self, write, *, timeout_s=None):
        try:
            return await write_once(self, write, timeout_s=timeout_s)
        except OutcomeUnknownError:
            return await write_once(self, write, timeout_s=timeout_s)

    monkeypatch.setattr(Pool, "write", sends_again)
    assert is_found("a_write_is_sent_at_most_once")


def test_a_loop_that_takes_taken_for_success_is_found(monkeypatch):
    async def believes(call):
        return Saw.OURS

    monkeypatch.setattr(steps, "_ask_owners", lambda call, attempt, legs: believes(call))
    assert is_found("every_success_is_in_the_log", start=50)


def test_a_lane_that_answers_before_the_flush_is_found(monkeypatch):
    roll_back = lane.Lane._roll_back

    def claims_success(self, error):
        for group in list(self._groups):
            for done, answer in group.answers:
                done(answer)
            group.answers.clear()
        roll_back(self, error)

    monkeypatch.setattr(lane.Lane, "_roll_back", claims_success)
    assert is_found("at_the_moment", worlds=10)


def test_a_store_that_keeps_half_a_transfer_is_found(monkeypatch):
    commit = MemoryStore.commit

    def half(self, group):
        commit(self, group[:1])

    monkeypatch.setattr(MemoryStore, "commit", half)
    assert is_found("a_transfer_lands_whole", start=10, worlds=10)


def test_a_store_that_commits_a_group_in_two_is_found(monkeypatch):
    append = Appender.append

    def one_by_one(self, group):
        for staged in group:
            append(self, [staged])

    monkeypatch.setattr(Appender, "append", one_by_one)
    monkeypatch.setattr(Disk, "prefers_large", lambda self: True)
    torn = {"disturbances": ("crash_torn",), "disturb_every_s": 0.02, "is_mortal": True}
    plans = (replace(draw(seed, engine="sqlite"), **torn) for seed in range(SEEDS))
    assert any(run_world(plan, is_told=False).violations for plan in plans)


def test_a_lane_that_takes_a_doubtful_commit_for_undone_is_found(monkeypatch):
    monkeypatch.setattr(lane.Lane, "_stop", lane.Lane._roll_back)
    assert any(report.violations for report in explore(range(10, 600)))


def test_a_lane_that_begins_anew_at_the_numbers_of_a_life_before_is_found(monkeypatch):
    open_store = MemoryStore.open
    monkeypatch.setattr(MemoryStore, "open", lambda self: (0, open_store(self)[1]))
    assert is_found("at_the_moment", worlds=20)


def test_nothing_is_found_where_nothing_is_broken():
    assert not any(report.violations for report in explore(range(5)))
