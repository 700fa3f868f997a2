"""``landed log``: check and repair a closed log file, from the command line."""

import json
from pathlib import Path

import pytest

from landed.cli import app as door
from landed.engines.sqlite.pack import Opened, whole_packs
from tests.unit.engines.sqlite.logfile import A, key, opened, raw


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with opened(path) as log:
        log.fill(key(1), seqs=[1, 2, 2**64 - 1])
        log.delete(key(1))
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = door.run(["log", *(str(argument) for argument in arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def lower(capsys, path: Path, to: int, *more: str) -> tuple[int, str, str]:
    options = ("--key", key(1), "--client-id", A, "--to", to, "--reason", "a typo")
    return run(capsys, "lower-mark", path, *options, *more)


def test_a_sound_log_is_said_to_be_sound(path, capsys):
    code, out, _ = run(capsys, "verify", path)
    assert (0, "4 entries, 1 aggregates: sound\n") == (code, out)
    code, out, _ = run(capsys, "verify", path, "--json")
    told = {"sound": True, "entries": 4, "aggregates": 1, "marks": 0, "findings": []}
    assert (0, told) == (code, json.loads(out))


def test_a_damaged_log_is_told_finding_by_finding_and_fails(path, capsys):
    with raw(path) as connection:
        row = next(whole_packs(connection, 0))
        bodies, at = row[2], next(Opened(row).entries()).size
        bodies = bodies[:at] + bytes(1) + bodies[at + 1 :]
        connection.execute("UPDATE packs SET bodies = ? WHERE position = 1", (bodies,))
    code, out, _ = run(capsys, "verify", path)
    assert code == 1
    assert "the payload at position 2 is not what was written" in out
    assert "1 findings" in out
    code, out, _ = run(capsys, "verify", path, "--json")
    assert (1, 1) == (code, len(json.loads(out)["findings"]))


def test_what_is_no_log_is_one_line_and_no_traceback(tmp_path, capsys):
    code, out, err = run(capsys, "verify", tmp_path / "nothing.db")
    assert (2, "") == (code, out)
    assert err.startswith("landed: there is no log at ")
    assert err.count("\n") == 1


def test_a_log_in_use_is_not_touched(path, capsys):
    with opened(path):
        code, _, err = lower(capsys, path, 2)
    assert code == 1
    assert "use landed serve" in err


def test_a_mark_is_lowered_and_the_repair_is_listed(path, capsys):
    assert (0, f"mark: {2**64 - 1} -> 2\n", "") == lower(capsys, path, 2)
    code, out, _ = lower(capsys, path, 1, "--json")
    assert (0, {"before": 2, "after": 1}) == (code, json.loads(out))
    code, out, _ = run(capsys, "repairs", path)
    assert code == 0
    assert [line.split("  ")[-2:] for line in out.splitlines()] == [
        [f"{2**64 - 1} -> 2", "a typo"],
        ["2 -> 1", "a typo"],
    ]
    code, out, _ = run(capsys, "repairs", path, "--json")
    assert ["lower-mark", "lower-mark"] == [repair["action"] for repair in json.loads(out)]


def test_a_mark_below_a_readable_sequence_is_refused(path, capsys):
    with opened(path) as log:
        log.write(key(1), 2, enforce=False)
    code, _, err = lower(capsys, path, 1)
    assert code == 2
    assert "sequence 2 of client" in err
    assert "is still readable" in err


def test_a_key_that_is_none_is_a_wrong_use(path, capsys):
    code, _, err = run(
        capsys, "lower-mark", path, "--key", "x", "--client-id", A, "--to", 1, "--reason", "y"
    )
    assert code == 2
    assert "org/type/id" in err


def test_a_restored_log_raises_its_epoch(path, capsys):
    code, out, _ = run(capsys, "restored", path, "--reason", "backup of May")
    assert (0, "restore epoch: 0 -> 1\n") == (code, out)
    with opened(path) as log:
        assert log.store.identity.restore_epoch == 1
