"""A part of the demo that ends is started again, and what hinders it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from landed.cli.demo import _telling
from landed.demo import children
from landed.demo.children import Child, State
from landed.facts import forget

pytestmark = pytest.mark.real_loop


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def test_whatever_hinders_a_restart_is_told_and_tried_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(children, "RESTART_PAUSE_S", 0.0)
    commands = iter(
        [
            shell("echo ready :1"),
            ["/no/such/program"],
            shell("echo ready :no-number"),
            shell("echo it broke >&2"),
            shell("echo ready :2; exec sleep 60"),
        ]
    )
    told: list[tuple[str, Mapping[str, Any]]] = []
    child = Child(
        "part",
        lambda _port: next(commands),
        ready="ready",
        folder=tmp_path,
        note=lambda name, fields: told.append((name, fields)),
    )
    await child.start()
    try:
        async with asyncio.timeout(20):
            while child.port != 2:
                await asyncio.sleep(0.01)
        assert (child.state, child.restarts) == (State.RUNNING, 4)
    finally:
        await child.stop()
    failures = [str(fields["error"]) for name, fields in told if name == "child.failed"]
    assert [name for name, _ in told].count("child.ended") == 1
    assert len(failures) == 3
    for error, words in zip(failures, ("/no/such/program", "no-number", "it broke"), strict=True):
        assert words in error


def test_people_are_told_once_of_a_part_that_does_not_come_back(capsys: pytest.CaptureFixture[str]):
    note = _telling(forget)
    for error in ("no room", "no room", "no memory"):
        note("child.failed", {"name": "log", "error": error})
    note("child.ended", {"name": "log", "code": -9})
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.rpartition(" (")[0] for line in err.splitlines()] == [
        "landed demo: log did not start again, which is tried further: no room",
        "landed demo: log did not start again, which is tried further: no memory",
    ]
    assert "log.log" in err
