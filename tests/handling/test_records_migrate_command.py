"""``landed migrate``: what it applies, what it says, and its exit codes."""

from __future__ import annotations

import json

import pytest

from landed.cli.app import run


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    return request.getfixturevalue("empty_postgres")


def test_migrate_applies_what_is_missing_once(url, capsys):
    assert run(["migrate", "--database", url, "--check"]) == 1
    assert "missing 1 records" in capsys.readouterr().out
    assert run(["migrate", "--database", url]) == 0
    assert capsys.readouterr().out == "applied 1 records\napplied 2 evidence\n"
    assert run(["migrate", "--database", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 2, "applied": [], "missing": []}
    assert run(["migrate", "--database", url, "--check"]) == 0


@pytest.mark.parametrize(
    ("database", "code", "said"),
    [
        ("mysql://x/y", 2, "sqlite:///PATH or postgresql://"),
        ("postgresql://x:secret@host:port/y", 2, "sqlite:///PATH or postgresql://"),
        ("sqlite:y", 2, "sqlite:///PATH or postgresql://"),
        ("postgresql://nobody@127.0.0.1:1/x", 1, "cannot be reached"),
        ("sqlite:////no/such/folder/x.db", 1, "cannot be reached"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(database, code, said, capsys):
    assert run(["migrate", "--database", database]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
