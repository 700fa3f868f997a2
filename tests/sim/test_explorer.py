"""Worlds of the real code: clean over many seeds, repeatable, and worth their name."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from landed.sim import crew
from landed.sim.crew import explore_together
from landed.sim.explore import count_marks, explore, run_world
from landed.sim.marks import ALL_MARKS
from landed.sim.plan import draw
from landed.sim.story import tell, tell_log

SEEDS = 100
BUSY = range(150, 156)
"""A server that has no room is rare: one world in two hundred."""
MANY = 2000


def clean(seeds: range, **options) -> Counter[str]:
    """Run worlds and insist that nothing is wrong; returns the marks reached."""
    marks: Counter[str] = Counter()
    for report in explore(seeds, **options):
        replay = f"landed explore --seed {report.seed}"
        assert () == report.violations, replay
        marks.update(report.marks)
    return marks


@pytest.mark.scenario("SWA-77", "BC-13")
def test_two_replicas_are_clean_and_go_through_every_interesting_state():
    marks = clean(range(SEEDS)) + clean(BUSY)
    assert set(ALL_MARKS) == set(marks)


def test_five_replicas_are_clean():
    clean(range(1000, 1020), replicas=5)


def test_one_replica_is_clean():
    clean(range(2000, 2020), replicas=1)


def test_the_sqlite_engine_is_clean():
    clean(range(3000, 3020), engine="sqlite")


@pytest.mark.long
@pytest.mark.parametrize(
    ("replicas", "engine", "first"),
    [(2, "memory", 10_000), (3, "memory", 20_000), (2, "sqlite", 30_000)],
)
def test_thousands_of_worlds_are_clean(replicas, engine, first):
    clean(range(first, first + MANY), replicas=replicas, engine=engine)


def story(seed: int, engine: str = "memory") -> list[str]:
    """Everything that happened in a world, to the microsecond."""
    finding = run_world(draw(seed, engine=engine))
    exact = [f"{entry.at!r} {entry.host} {entry.what}" for entry in finding.history.entries]
    return exact + tell(finding.history) + tell_log(finding.history)


def test_a_key_used_for_another_request_is_promised_no_longer_than_its_first_use():
    """In this world it was drawn again behind the window, where it rightly executes again."""
    finding = run_world(draw(276, replicas=3, engine="sqlite"))
    assert len({request.event_id for request in finding.plan.callers[1]}) == 1
    assert finding.violations == []


def test_one_seed_tells_one_story_and_another_seed_another():
    stories = [story(seed) for seed in range(6)]
    assert stories == [story(seed) for seed in range(6)]
    assert len({tuple(lines) for lines in stories}) == len(stories)


def test_a_story_on_sqlite_repeats_too():
    # Ids that the file makes up for itself are not told.
    assert story(3, "sqlite") == story(3, "sqlite")


@pytest.mark.real_loop
def test_a_story_does_not_depend_on_the_hash_seed():
    program = (
        "from test_explorer import story; from hashlib import sha256;"
        "print(*(sha256(chr(10).join(story(s)).encode()).hexdigest() for s in range(4)))"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120
    printed = set()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": here}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        printed.add(done.stdout)
    assert len(printed) == 1


def test_marks_are_counted_by_worlds_not_by_occurrences():
    reports = list(explore(range(5)))
    marks = count_marks(reports)
    assert max(marks.values()) <= 5
    assert sum(marks.values()) == sum(len(report.marks) for report in reports)


@pytest.mark.real_loop
def test_several_processes_see_the_same_worlds_as_one(monkeypatch):
    monkeypatch.setattr(crew, "_CHUNK", 3)
    seeds = range(10)
    alone = list(explore(seeds))
    together = sorted(explore_together(seeds, jobs=2), key=lambda report: report.seed)
    assert alone == together
