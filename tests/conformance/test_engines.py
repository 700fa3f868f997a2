"""Every obligation, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.conformance import Obligation, Opener, Trial, all_obligations
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.engines.sqlite import open_sqlite
from landed.limits import Limits

Maker = Callable[[Path, Limits], Opener]


def memory(_path: Path, limits: Limits) -> Opener:
    """A log in memory that outlives its lane, as a file would."""
    store = MemoryStore(limits, log_id=UUID(int=1))

    async def open_again(limits: Limits) -> Lane:
        store.check_settings(limits)
        lane = Lane(store, limits=limits, clock=SystemClock())
        await lane.open()
        return lane

    return open_again


def sqlite(path: Path, _limits: Limits) -> Opener:
    """A log in one file."""

    async def open_again(limits: Limits) -> Lane:
        return await open_sqlite(path / "log.db", limits=limits, clock=SystemClock())

    return open_again


ENGINES: dict[str, Maker] = {"memory": memory, "sqlite": sqlite}

VARIANTS: dict[str, dict[str, int]] = {
    "": {},
    "-cold": {"cached_heads_max": 0, "cached_marks_max": 0},
    "-one-by-one": {"group_writes_max": 1},
    "-threads": {},
}
"""Settings that must change no answer: nothing cached, a flush for every write, real threads."""


def marks(engine: str, variant: str, obligation: Obligation) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.scenario(*obligation.scenarios)]
    if variant == "-threads":
        marks.append(pytest.mark.real_loop)
    if variant == "-one-by-one" and engine == "sqlite":
        marks.append(pytest.mark.long)
    return marks


def cases() -> list[object]:
    return [
        pytest.param(
            maker,
            settings,
            obligation,
            id=f"{engine}{variant}-{obligation.name}",
            marks=marks(engine, variant, obligation),
        )
        for engine, maker in ENGINES.items()
        for variant, settings in VARIANTS.items()
        for obligation in all_obligations()
    ]


@pytest.mark.parametrize(("maker", "settings", "obligation"), cases())
async def test_an_engine_meets_its_obligation(
    maker: Maker, settings: dict[str, int], obligation: Obligation, tmp_path: Path
) -> None:
    limits = replace(Limits(), **{**settings, **obligation.settings})
    trial = Trial(maker(tmp_path, limits), limits)
    await trial.start()
    try:
        async with asyncio.timeout(10):
            await obligation.check(trial)
    finally:
        trial.release()
        await trial.close()
