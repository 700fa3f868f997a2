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


ENGINES: dict[str, Maker] = {"memory": memory}

VARIANTS = {
    "": {},
    "-cold": {"cached_heads_max": 0, "cached_marks_max": 0},
    "-one-by-one": {"group_writes_max": 1},
}
"""Settings that must change no answer: nothing cached, and a flush for every write."""


def cases() -> list[object]:
    return [
        pytest.param(
            maker,
            settings,
            obligation,
            id=f"{engine}{variant}-{obligation.name}",
            marks=pytest.mark.scenario(*obligation.scenarios),
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
