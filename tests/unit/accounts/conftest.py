"""Every test of the service over HTTP runs twice: folded states in memory, and shared in PostgreSQL."""

from __future__ import annotations

import inspect

import pytest

from landed.accounts import AccountService
from landed.sim import HostClock
from tests.shared_state import shared_states  # noqa: F401  # a fixture
from tests.unit.accounts.replicas import CLIENT_ID, Stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_named = any(
        "backend" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")
    )
    if inspect.iscoroutinefunction(metafunc.function) and not is_named:
        metafunc.parametrize("backend", ["memory", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the replicas of this test on a projection."""
    if getattr(request, "param", "memory") == "memory":
        return
    states = request.getfixturevalue("shared_states")
    name = states.name()

    def put(service: AccountService, clock: HostClock) -> None:
        service._safe._projection = states.projection(name, CLIENT_ID, clock.monotonic_ms)

    monkeypatch.setattr(Stage, "put", staticmethod(put))
