"""Async tests need no plugin: a coroutine test runs on a loop of its own.

That loop is the simulated one (virtual time, no ports, one history a seed), and a test that leaves
a task, an exception or a coroutine behind fails. Tests that need real sockets, threads or processes
are marked ``real_loop`` or live in tests/integration, tests/pages or tests/handling.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from landed import sim
from tests.handling import postgres
from tests.logs_on_postgres import Place

# One commit, one verdict: what is drawn depends on the test alone, and nothing on how busy the machine
# is. `make long` draws afresh, and leaves what it finds behind as an example.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **_PATIENT)
settings.register_profile("afresh", **_PATIENT)
settings.load_profile("afresh" if os.environ.get("LANDED_TEST_AFRESH") else "same")

_REAL_ROOMS = tuple(Path(__file__).parent / name for name in ("integration", "pages", "handling"))


def _needs_real_loop(item: pytest.Function) -> bool:
    is_marked = item.get_closest_marker("real_loop") is not None
    return is_marked or any(item.path.is_relative_to(room) for room in _REAL_ROOMS)


def _patience_s(config: pytest.Config) -> float:
    """A little less than pytest-timeout has: it ends the whole worker, and this one test."""
    told = config.getoption("timeout") or config.getini("timeout")
    return 0.9 * float(told or math.inf)


async def _bounded(test: Coroutine[Any, Any, None], within_s: float) -> None:
    """A test that waits for ever fails where it waits, and what it started is ended as it would be."""
    async with asyncio.timeout(within_s):
        await test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if _needs_real_loop(pyfuncitem):
        asyncio.run(_bounded(test, _patience_s(pyfuncitem.config)))
    else:
        sim.run(test)
    return True


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[postgres.Cluster]:
    """A real PostgreSQL, started when the first test of a worker asks for it."""
    with postgres.cluster() as running:
        yield running


@pytest.fixture
def postgres_url(postgres_cluster: postgres.Cluster) -> Iterator[str]:
    """Our URL of an empty database of its own."""
    name = postgres_cluster.create()
    yield postgres_cluster.landed_url(name)
    postgres_cluster.drop(name)


@pytest.fixture(scope="session")
def postgres_place(postgres_cluster: postgres.Cluster) -> Place:
    """The same server, with room for logs."""
    return Place.on(postgres_cluster)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts that tests tell of themselves: ``request.node.user_properties``, "told"."""
    told = [
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "told" and report.when == "call"
    ]
    if told:
        terminalreporter.section("what was counted")
    for nodeid, text in told:
        terminalreporter.line(f"{nodeid.rpartition('::')[2]}: {text}")
