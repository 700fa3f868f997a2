"""Days of the shop: the handling wing under crashes and lost answers, as ``landed explore`` shows it."""

import json
from collections import Counter

import pytest
from sqlalchemy import event

from landed.cli import app as door
from landed.sim.ablations import deeds, shop
from landed.sim.crew import live_days_together
from landed.sim.days import MARKS, explore_days, tell_day

DAYS = 5
MANY = 400


def clean(seeds: range) -> Counter[str]:
    """Live days and insist that nothing is wrong; returns the marks reached."""
    marks: Counter[str] = Counter()
    for report in live_days_together(seeds, jobs=1):
        assert () == report.violations, f"landed explore --world shop --seed {report.seed}"
        marks.update(report.marks)
    return marks


@pytest.mark.real_loop
def test_some_days_are_clean():
    marks = clean(range(DAYS))
    assert set(marks) <= set(MARKS)
    assert len(marks) > len(MARKS) // 2


@pytest.mark.long
@pytest.mark.real_loop
def test_hundreds_of_days_are_clean_and_go_through_everything():
    assert set(clean(range(1_000, 1_000 + MANY))) == set(MARKS)


@pytest.mark.real_loop
def test_one_seed_tells_one_day():
    assert tell_day(3) == tell_day(3)


@pytest.mark.real_loop
def test_a_day_on_which_something_is_wrong_is_told_with_its_replay(monkeypatch, capsys):
    live = shop.live
    monkeypatch.setattr(
        "landed.sim.days.live", lambda day: (live(day)[0], [("a_rule", "it was broken")])
    )
    assert door.run(["explore", "--world", "shop", "--seeds", "2", "--jobs", "1"]) == 1
    out, _ = capsys.readouterr()
    assert "1 days of the shop from seed 0: wrong on the day of seed 0" in out
    assert "what is wrong\n  a rule: it was broken" in out
    assert out.endswith("replay it: landed explore --world shop --seed 0\n")
    assert door.run(["explore", "--world", "shop", "--seed", "0", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["violations"] == [{"invariant": "a_rule", "sentence": "it was broken"}]
    assert told["timeline"]


@pytest.mark.real_loop
def test_marks_are_those_of_the_deeds():
    (report,) = explore_days([5])
    assert report.calls == len(deeds.draw(5).deeds)
    assert any(mark.startswith("a crash at") for mark in MARKS)


@pytest.mark.real_loop
def test_a_life_keeps_the_connections_that_it_opens():
    """Each life closes its ledger on the one engine; the next one goes on with it."""
    opened: list[object] = []
    engine = shop._place().engine

    def note(connection: object, _entry: object) -> None:
        opened.append(connection)

    event.listen(engine, "connect", note)
    shop.live(deeds.draw(3))
    event.remove(engine, "connect", note)
    lives = sum(1 for deed in deeds.draw(3).deeds if deed.crash) + 2
    assert 0 < len(opened) <= 3 * lives


def test_a_day_is_not_drawn(capsys, tmp_path):
    page = tmp_path / "day.html"
    assert door.run(["explore", "--world", "shop", "--seed", "1", "--html", str(page)]) == 2
    assert "told, not drawn" in capsys.readouterr().err
