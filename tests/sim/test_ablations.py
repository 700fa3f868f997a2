"""Rules broken on purpose: a simulator that finds nothing proves nothing unless it finds these.

Each is tried at the seed at which it was caught last; if the worlds have changed since, it is
searched for. ``landed explore --ablations`` prints the whole table.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path

import pytest

from landed.cli.proofs import break_rules
from landed.sim.ablations import table
from landed.sim.ablations.breaking import Ablation, Ground, Swap, Told, Wing
from landed.sim.ablations.hunting import hunt, hunt_again, hunt_all
from landed.sim.ablations.loops import pool_sends_again
from landed.sim.ablations.recorded import SEEDS
from landed.sim.ablations.table import ABLATIONS

STORIES = Path(__file__).parents[2] / "docs" / "reference" / "ablations"

each = pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
pytestmark = pytest.mark.real_loop  # worlds bring a loop of their own


@each
def test_a_broken_rule_is_caught(ablation: Ablation):
    caught = hunt_again(ablation)
    assert caught.seed is not None, f"{ablation.rule}: broken in {caught.worlds} worlds, unnoticed"


@each
def test_nothing_is_caught_at_its_seed_while_the_rule_holds(ablation: Ablation):
    assert _sound(ablation.ground, SEEDS[ablation.name]) == ()


@functools.cache
def _sound(ground: Ground, seed: int) -> tuple[Told, ...]:
    return ground.look(seed)


@pytest.mark.long
@each
def test_a_broken_rule_is_caught_from_the_first_seed_on(ablation: Ablation):
    assert hunt(ablation).seed is not None


def test_every_rule_has_a_name_and_a_seed_of_its_own_and_both_missions_are_there():
    assert set(SEEDS) == {ablation.name for ablation in ABLATIONS}
    assert len(SEEDS) == len(ABLATIONS)
    wings = Counter(ablation.wing for ablation in ABLATIONS)
    assert wings[Wing.LOG] >= 24
    assert wings[Wing.HANDLING] >= 16


def test_what_was_swapped_is_put_back():
    class Owner:
        word = "sound"

    rows = {"row": "sound"}

    def breaks(swap: Swap) -> None:
        swap(Owner, "word", "broken")
        swap.entry(rows, "row", "broken")

    with _made("swapped", breaks, ()).broken():
        assert (Owner.word, rows["row"]) == ("broken", "broken")
    assert (Owner.word, rows["row"]) == ("sound", "sound")


def test_a_rule_that_is_broken_uncaught_is_told_so(monkeypatch, capsys):
    told = Told("other", "something else is wrong")
    monkeypatch.setattr(table, "ABLATIONS", (_made("nothing", lambda swap: None, (told,)),))
    assert break_rules(save=None, as_json=False) == 1
    assert "UNCAUGHT in 1000 worlds" in capsys.readouterr().out


def test_the_table_and_the_stories_are_printed_and_saved(monkeypatch, capsys, tmp_path: Path):
    told = Told("that", "this is wrong")
    monkeypatch.setattr(table, "ABLATIONS", (_made("that", lambda swap: None, (told,)),))
    assert break_rules(save=tmp_path, as_json=True) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["caught_by"], row["seed"], row["sentence"]) == ("that", 0, "this is wrong")
    lines = (tmp_path / "did-it-land.md").read_text().splitlines()
    assert lines[0] == "# Rules broken on purpose: did it land?"
    at = lines.index("## 1. a rule")
    assert lines[at + 2 :] == [
        "`that`, nowhere. Broken: nothing.",
        "",
        "```",
        "a story of that",
        "```",
    ]


def test_every_rule_of_the_table_has_its_story_on_the_page_of_its_wing():
    pages = {
        wing: (STORIES / f"{name}.md").read_text().split("\n## ")
        for wing, name in ((Wing.LOG, "did-it-land"), (Wing.HANDLING, "did-it-happen"))
    }
    assert sum(len(sections) - 1 for sections in pages.values()) == len(ABLATIONS)
    for number, ablation in enumerate(ABLATIONS, start=1):
        head = f"{number}. {ablation.rule}\n\n`{ablation.name}`, {ablation.source}. "
        told = [section for section in pages[ablation.wing] if section.startswith(head)]
        assert len(told) == 1, ablation.name
        assert f"Broken: {ablation.patch}." in told[0]
        assert f"\nwrong: {ablation.caught_by.replace('_', ' ')}\n" in told[0]
        assert len(told[0].splitlines()) < 60


def test_several_processes_catch_what_one_catches(monkeypatch):
    monkeypatch.setattr(table, "ABLATIONS", ABLATIONS[:1])
    alone = [one._replace(took_s=0) for one in hunt_all(jobs=1, is_told=False)]
    together = [one._replace(took_s=0) for one in hunt_all(jobs=2, is_told=False)]
    assert alone == together


def test_a_story_is_short_and_tells_what_is_wrong():
    name = pool_sends_again.caught_by
    with pool_sends_again.broken():
        lines = pool_sends_again.ground.shorten(SEEDS[pool_sends_again.name], name)
    assert len(lines) < 40
    assert f"wrong: {name.replace('_', ' ')}" in lines


def _made(name: str, breaks, told: tuple[Told, ...]) -> Ablation:
    ground = Ground("made up", lambda seed: told, lambda seed, name: [f"a story of {name}"])
    return Ablation(
        name=name,
        wing=Wing.LOG,
        rule="a rule",
        source="nowhere",
        patch="nothing",
        caught_by="that",
        ground=ground,
        breaks=breaks,
    )
