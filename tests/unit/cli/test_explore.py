"""``landed explore``: what a person sees of many worlds, and of one that went wrong."""

import json

import pytest

from landed.cli import app as door
from landed.projections import MemoryProjection


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = door.run(["explore", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def broken(monkeypatch):
    """A projection that does not look into its index."""
    view = MemoryProjection._view
    monkeypatch.setattr(
        MemoryProjection, "_view", lambda self, key, _id, domain: view(self, key, None, domain)
    )


def test_clean_worlds_are_counted_with_what_they_went_through(capsys):
    code, out, err = run(capsys, "--seeds", "3", "--start", "40")
    assert (0, "") == (code, err)  # no bar where nobody looks
    assert out.startswith("3 worlds from seed 40, 2 to 5 replicas on memory or SQLite: clean\n")
    assert "worlds/s" in out
    assert "unknown outcome" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--ablations --seed 3", "go alone"),
        ("--small --engine sqlite", "go alone"),
        ("--small --ablations", "go alone"),
        ("--small --save x", "go alone"),
        ("--ablations --world shop", "go alone"),
        ("--world shop --replicas 3", "leave out"),
        ("--world shop --engine sqlite", "leave out"),
        ("--world shop --html x", "leave out"),
    ],
)
def test_an_option_that_would_not_be_heard_is_refused(capsys, options, said):
    code, out, err = run(capsys, *options.split())
    assert (2, "") == (code, out)
    assert said in err
    assert err.count("\n") == 1


def test_the_same_as_json(capsys):
    code, out, _ = run(capsys, "--seeds", "2", "--json")
    told = json.loads(out)
    assert (0, True, 2, None) == (code, told["clean"], told["worlds"], told["failure"])
    assert told["marks"]["outcome: done, fresh"] >= 1
    assert told["calls"] > 0


def test_a_failure_is_a_story_with_the_command_that_replays_it(capsys, broken):
    code, out, _ = run(capsys, "--seeds", "25", "--replicas", "3")
    assert code == 1
    assert "\nwhat is wrong\n  a " in out
    assert "expecting version" in out
    replay = out.strip().splitlines()[-1]
    assert replay.startswith("replay it whole: landed explore --seed ")

    arguments = replay.partition("landed explore ")[2].split()
    code, whole, _ = run(capsys, *arguments)
    assert code == 1
    assert whole.partition("what is wrong")[2].strip() in out
    assert whole.count("\n") > out.count("s  replica-")


def test_a_failure_as_json_names_the_seed_and_the_command(capsys, broken):
    code, out, _ = run(capsys, "--seeds", "25", "--json")
    failure = json.loads(out)["failure"]
    assert code == 1
    assert failure["replay"].startswith(f"landed explore --seed {failure['seed']} ")
    assert failure["violations"][0]["sentence"]


def test_one_world_is_replayed_with_its_whole_timeline(capsys):
    code, out, _ = run(capsys, "--seed", "3")
    assert code == 0
    assert out.startswith("seed 3\n    0.0000s  server     server.listening")
    assert out.endswith("nothing is wrong\n")
    code, out, _ = run(capsys, "--seed", "3", "--json")
    assert (0, 3, []) == (code, json.loads(out)["seed"], json.loads(out)["violations"])


def test_the_sqlite_engine_can_be_chosen(capsys):
    code, out, _ = run(capsys, "--seeds", "1", "--engine", "sqlite")
    assert code == 0
    assert "on sqlite: clean" in out


@pytest.mark.parametrize(
    "arguments", [("--seeds", "0"), ("--replicas", "9"), ("--engine", "paper"), ("--seed", "x")]
)
def test_what_cannot_be_meant_is_refused(capsys, arguments):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert arguments[0] in err


def test_a_world_is_drawn_as_one_page_that_needs_nothing_else(capsys, tmp_path):
    page = tmp_path / "world.html"
    code, _, err = run(capsys, "--seed", "56", "--engine", "sqlite", "--html", str(page))
    assert (0, f"drawn in {page}\n") == (code, err)
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    for lane in ("caller", "replica-1", "server", "disk"):
        assert f">{lane}</span>" in html
    assert "landed explore --seed 56 --replicas 0 --engine sqlite" in html
    assert "Nothing is wrong" in html
    assert 'class="lost"' in html
    assert "prefers-color-scheme" in html
    for foreign in ("http:", "https:", "<script", "@import", "url("):
        assert foreign not in html


def test_what_went_wrong_is_saved_as_story_and_page(capsys, broken, tmp_path):
    folder = tmp_path / "wrong"
    code, out, err = run(capsys, "--seeds", "60", "--jobs", "1", "--save", str(folder))
    assert code == 1
    (story,) = folder.glob("*.txt")
    assert "what is wrong" in story.read_text()
    assert "Something is wrong" in story.with_suffix(".html").read_text()
    assert str(story.with_suffix("")) in err
    assert story.stem in f"seed-{out.partition('--seed ')[2].split()[0]}"


def test_a_page_of_clean_worlds_needs_a_seed(capsys, tmp_path):
    page = tmp_path / "world.html"
    code, _, err = run(capsys, "--seeds", "1", "--html", str(page))
    assert (0, False) == (code, page.exists())
    assert "name a world by --seed" in err


def test_a_page_that_cannot_be_written_is_told_in_one_sentence(capsys, tmp_path):
    code, _, err = run(capsys, "--seed", "1", "--html", str(tmp_path / "no" / "world.html"))
    assert code == 2
    assert "cannot write" in err
    assert "Traceback" not in err
