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
from landed.engines.postgres import PostgresEngine, open_postgres
from landed.engines.sqlite import open_sqlite
from landed.limits import Limits
from tests.logs_on_postgres import dsn

Maker = Callable[[pytest.FixtureRequest, Limits], Opener]


def memory(_request: pytest.FixtureRequest, limits: Limits) -> Opener:
    """A log in memory that outlives its lane, as a file would."""
    store = MemoryStore(limits, log_id=UUID(int=1))

    async def open_again(limits: Limits) -> Lane:
        store.check_settings(limits)
        lane = Lane(store, limits=limits, clock=SystemClock())
        await lane.open()
        return lane

    return open_again


def sqlite(request: pytest.FixtureRequest, _limits: Limits) -> Opener:
    """A log in one file."""
    path: Path = request.getfixturevalue("tmp_path")

    async def open_again(limits: Limits) -> Lane:
        return await open_sqlite(path / "log.db", limits=limits, clock=SystemClock())

    return open_again


def postgres(request: pytest.FixtureRequest, _limits: Limits) -> Opener:
    """A log in a schema of a real server."""
    address = dsn(request.getfixturevalue("postgres_place").new_log())

    async def open_again(limits: Limits) -> PostgresEngine:
        return await open_postgres(address, limits=limits, clock=SystemClock())

    return open_again


ENGINES: dict[str, Maker] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}

VARIANTS: dict[str, dict[str, int]] = {
    "": {},
    "-cold": {"cached_heads_max": 0, "cached_marks_max": 0},
    "-one-by-one": {"group_writes_max": 1},
    "-threads": {},
}
"""Settings that must change no answer: nothing cached, a flush for every write, real threads."""

LEFT_OUT = {("postgres", variant) for variant in ("-cold", "-threads", "-one-by-one")}
"""It caches nothing and has real threads anyway. And it judges a group when the one before has settled,
so with a flush for every write nothing is in flight that another write is judged on."""


def marks(engine: str, variant: str, obligation: Obligation) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.scenario(*obligation.scenarios)]
    if variant == "-threads" or engine == "postgres":
        marks.append(pytest.mark.real_loop)
    if variant == "-one-by-one" and engine != "memory":
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
        if (engine, variant) not in LEFT_OUT
        for obligation in all_obligations()
    ]


@pytest.mark.parametrize(("maker", "settings", "obligation"), cases())
async def test_an_engine_meets_its_obligation(
    maker: Maker,
    settings: dict[str, int],
    obligation: Obligation,
    request: pytest.FixtureRequest,
) -> None:
    limits = replace(Limits(), **{**settings, **obligation.settings})
    trial = Trial(maker(request, limits), limits)
    await trial.start()
    try:
        async with asyncio.timeout(10):
            await obligation.check(trial)
    finally:
        trial.release()
        await trial.close()
