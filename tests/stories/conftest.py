"""Every story is told twice: replicas that fold for themselves, and replicas that share PostgreSQL.

A story of one projection only says so: ``@pytest.mark.parametrize("backend", ["memory"],
indirect=True)``. Here is also the place for another engine below: ``fleet`` takes any lane.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from landed.projections.port import Projection
from tests.shared_state import shared_states  # noqa: F401  # a fixture
from tests.stories.fleet import Fleet, Replica, Stage, in_memory

BACKENDS = ("memory", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_named = any(
        "backend" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")
    )
    is_story = inspect.iscoroutinefunction(metafunc.function)
    if is_story and not is_named and "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BACKENDS, indirect=True)


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the fleets of this test on a projection."""
    name = getattr(request, "param", "memory")
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
