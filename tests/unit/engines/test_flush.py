"""The test knobs of a flush, and that they are inert unless a process says it is a test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from landed.conformance.trial import key, write
from landed.engines.ask import ask
from landed.engines.flush import FlushGate
from landed.errors import StorageError
from landed.log import Landed, Unknown
from tests.unit.engines.scripted import open_scripted


def test_without_the_switch_the_environment_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "fail"
    file.touch()
    knobs = {"LANDED_TEST_SLOW_FLUSH_MS": "200", "LANDED_TEST_FAIL_FLUSH_FILE": str(file)}
    for environment in (knobs, {**knobs, "LANDED_TEST": "0"}, {"LANDED_TEST": "1"}, {}):
        gate = FlushGate(environment)
        assert gate.slow_s == 0
        gate.raise_if_failing()
    assert file.exists()


def test_the_next_flush_fails_while_the_file_exists_and_removes_it(tmp_path: Path) -> None:
    file = tmp_path / "fail"
    gate = FlushGate({"LANDED_TEST": "1", "LANDED_TEST_FAIL_FLUSH_FILE": str(file)})
    gate.raise_if_failing()
    file.touch()
    with pytest.raises(StorageError):
        gate.raise_if_failing()
    assert not file.exists()
    gate.raise_if_failing()


async def test_the_knobs_of_the_environment_reach_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fail"
    monkeypatch.setenv("LANDED_TEST", "1")
    monkeypatch.setenv("LANDED_TEST_SLOW_FLUSH_MS", "5000")
    monkeypatch.setenv("LANDED_TEST_FAIL_FLUSH_FILE", str(file))
    lane, _ = await open_scripted()
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await ask(lane, write(key(1), 1)) == Landed((1,))
    assert loop.time() - start >= 5
    file.touch()
    assert isinstance(await ask(lane, write(key(1), 2)), Unknown)
    assert await ask(lane, write(key(1), 2)) == Landed((2,))
    await lane.close()


async def test_a_held_flush_waits_for_its_release() -> None:
    lane, store = await open_scripted()
    lane.gate.hold()
    pending = ask(lane, write(key(1), 1))
    await asyncio.sleep(10)
    assert not pending.done()
    assert store.commits == []
    lane.gate.release()
    assert await pending == Landed((1,))
    await lane.close()


async def test_closing_lets_a_held_flush_go() -> None:
    lane, _ = await open_scripted()
    lane.gate.hold()
    pending = ask(lane, write(key(1), 1))
    await asyncio.sleep(10)
    await lane.close()
    assert await pending == Landed((1,))
