"""Every story is told on each pair of an engine below and a projection above.

Engines: memory (the only one that only virtual time moves), SQLite in a file, PostgreSQL. Projections:
replicas that fold for themselves, and replicas that share PostgreSQL. `make test` tells each story on
three of the pairs, in which every engine and both projections are met; `make long` tells the others.

A story of one projection or one engine only says so: ``@pytest.mark.parametrize("backend", ["memory"],
indirect=True)``, and ``"engine"`` likewise.
"""

from __future__ import annotations

import inspect
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from landed.clock import Clock
from landed.conformance.trial import Levered
from landed.engines.postgres import open_postgres
from landed.engines.sqlite import open_sqlite
from landed.limits import Limits
from landed.projections.port import Projection
from tests.logs_on_postgres import Place, dsn
from tests.shared_state import shared_states  # noqa: F401  # a fixture
from tests.stories.fleet import Fleet, Replica, Stage, in_memory, on_memory

BACKENDS = ("memory", "postgres")
LAYOUTS = (
    ("memory", "memory"),
    ("sqlite", "postgres"),
    ("postgres", "memory"),
    pytest.param("sqlite", "memory", marks=pytest.mark.long),
    pytest.param("memory", "postgres", marks=pytest.mark.long),
    pytest.param("postgres", "postgres", marks=pytest.mark.long),
)
"""Where the log lives, and where folded states live."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = " ".join(str(m.args[0]) for m in metafunc.definition.iter_markers("parametrize"))
    if not inspect.iscoroutinefunction(metafunc.function) or "backend" in named:
        return
    if "engine" in named:
        metafunc.parametrize("backend", BACKENDS, indirect=True)
    elif "backend" in metafunc.fixturenames:
        metafunc.parametrize(("engine", "backend"), LAYOUTS, indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Put an engine under the fleets of this test."""
    name: str = getattr(request, "param", "memory")
    opener: Any = on_memory
    if name == "sqlite":
        numbers = count(1)

        async def opener(limits: Limits, clock: Clock) -> Levered:
            path = tmp_path / f"log{next(numbers)}.sqlite"
            return await open_sqlite(path, limits=limits, clock=clock)

    elif name == "postgres":
        place: Place = request.getfixturevalue("postgres_place")

        async def opener(limits: Limits, clock: Clock) -> Levered:
            return await open_postgres(dsn(place.new_log()), limits=limits, clock=clock)

    monkeypatch.setattr(Stage, "open_lane", staticmethod(opener))
    return name


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the fleets of this test on a projection."""
    name: str = getattr(request, "param", "memory")
    make: Any = in_memory
    if name == "postgres":
        states = request.getfixturevalue("shared_states")

        def make(fleet: Fleet, replica: Replica) -> Projection[Any]:
            if replica.shares not in fleet.shared:
                fleet.shared[replica.shares] = states.name()
            name = fleet.shared[replica.shares]
            return states.projection(name, fleet.identity.client_id, fleet.clock.monotonic_ms)

    monkeypatch.setattr(Stage, "make_projection", staticmethod(make))
    return name
