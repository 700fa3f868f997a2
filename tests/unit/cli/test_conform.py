"""``landed conform``: what it prints, and the page that is printed from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from landed.cli import app as door
from landed.cli.conform import MEMORY, POSTGRES, SQLITE, page
from landed.conformance import all_obligations, registry
from landed.conformance.running import Result

PAGE = Path(__file__).parents[3] / "docs/reference/obligations.md"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = door.run(["conform", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_page_of_obligations_names_each_as_held_by_every_engine():
    """That each is held is what ``tests/conformance`` shows, engine by engine."""
    held = [
        Result(obligation, engine, "")
        for obligation in all_obligations()
        for engine in (MEMORY, SQLITE, POSTGRES)
    ]
    assert PAGE.read_text() == page(held)


@pytest.mark.real_loop
def test_obligations_are_run_on_scratch_logs_and_counted(capsys):
    code, out, err = run(capsys, "--only", "versions follow one another")
    assert (0, "") == (code, err)
    assert out == "versions follow one another: held\nheld: memory 1 of 1, SQLite 1 of 1\n"
    _, out, _ = run(capsys, "--only", "versions follow one another", "--json")
    assert [(found["engine"], found["held"]) for found in json.loads(out)] == [
        ("memory", True),
        ("SQLite", True),
    ]


@pytest.mark.real_loop
def test_a_database_of_one_s_own_is_held_to_them_and_left_as_it_was(capsys, postgres_place):
    url = postgres_place.new_log()
    with postgres_place.admin() as admin:
        before = admin.execute("SELECT count(*) FROM pg_namespace").fetchone()
        code, out, _ = run(capsys, "--only", "versions follow one another", "--database", url)
        assert admin.execute("SELECT count(*) FROM pg_namespace").fetchone() == before
    assert code == 0
    assert "PostgreSQL 1 of 1" in out


@pytest.mark.real_loop
def test_one_that_is_not_held_is_named_with_its_place_and_fails(capsys, monkeypatch):
    obligations = {each.name: each for each in all_obligations()}

    async def broken(trial):
        assert trial.engine.position > 0, "nothing was written"

    name = "versions_follow_one_another"
    wrong = registry.Obligation(name, ("SC-02",), frozenset(), {}, broken)
    monkeypatch.setattr(registry, "_obligations", {**obligations, name: wrong})
    code, out, _ = run(capsys, "--only", "versions follow one another")
    assert code == 1
    assert "versions follow one another: FAILED on memory, SQLite\n" in out
    assert "test_conform.py:" in out
    assert "nothing was written" in out
    assert "held: memory 0 of 1, SQLite 0 of 1" in out


def test_words_that_are_in_no_obligation_are_one_line(capsys):
    code, out, err = run(capsys, "--only", "no such thing")
    assert (2, "") == (code, out)
    assert err == "landed: no obligation has 'no such thing' in it: leave out --only to see all\n"
