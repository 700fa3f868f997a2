"""Two devices and a server under every fault: each queued event in the log exactly once, in order."""

import gc
from collections import Counter

import pytest

from landed.offline import drain
from landed.offline.entry import Settled
from tests.sim.offline_world import lost_by, run_world, wrong_with

SEEDS = 150
MANY = 5_000
RESTORED = 60


def clean(seeds: range) -> Counter[str]:
    """Run worlds and insist that nothing is wrong; returns in how many each mark was reached."""
    marks: Counter[str] = Counter()
    gc.freeze()  # what is there already is not looked at again and again
    gc.disable()
    try:
        for seed in seeds:
            outcome = run_world(seed)
            assert [] == wrong_with(outcome), f"seed {seed}"
            marks.update(set(outcome.marks))
            if not seed % 50:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return marks


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-86", "SWA-87", "SWA-88", "BC-18")
def test_every_queued_event_lands_once_and_in_order():
    marks = clean(range(SEEDS))
    for mark in ("offline.landed.fresh", "offline.landed.taken", "offline.held", "killed"):
        assert marks[mark] > SEEDS // 10, marks
    assert not marks["offline.regressed"], "no store was restored here"
    assert not marks["offline.blocked"]


def lossless(seeds: range) -> Counter[str]:
    """Run worlds whose devices are put back to backups; returns in how many each mark was reached."""
    marks: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_world(seed, is_restored=True)
        assert [] == lost_by(outcome), f"seed {seed}"
        marks.update(set(+outcome.marks))
    return marks


@pytest.mark.real_loop
def test_a_device_put_back_to_a_backup_loses_and_doubles_nothing_it_has():
    marks = lossless(range(500_000, 500_000 + RESTORED))
    assert marks["put back"] > RESTORED // 10, marks
    assert marks["offline.regressed"] > RESTORED // 20, marks
    assert marks["renumbered"], marks


@pytest.mark.long
@pytest.mark.real_loop
def test_a_thousand_devices_put_back_lose_nothing():
    lossless(range(600_000, 601_000))


@pytest.mark.long
@pytest.mark.real_loop
def test_thousands_of_worlds_are_clean():
    clean(range(100_000, 100_000 + MANY))


def finds(seeds: range) -> bool:
    """An event is missing, doubled or out of place in one of the worlds."""
    return any(wrong_with(run_world(seed)) for seed in seeds)


@pytest.mark.real_loop
def test_a_drain_that_marks_a_whole_run_on_a_violation_is_caught(monkeypatch):
    """Rule SW-104 broken on purpose: a regrouped run holds events that never left."""
    monkeypatch.setattr(drain, "judge_taken", lambda run, highest, owners: Settled(run, run.last))
    assert finds(range(SEEDS))


@pytest.mark.real_loop
def test_a_drain_that_takes_an_unknown_for_success_is_caught(monkeypatch):
    """Rule SW-105 broken on purpose."""
    original = drain.Drain._after

    async def after(self, run, error):
        settled = await original(self, run, error)
        return settled or Settled(run, run.last)

    monkeypatch.setattr(drain.Drain, "_after", after)
    assert finds(range(SEEDS))
