"""``kill -9`` of replicas and of the database under load, on each layout of the account service."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from landed.commands import Done, Reject, Rejected
from landed.sim.history import Truth
from tests.integration.fleet import rows
from tests.integration.fleet.deployment import LAYOUTS, Blow, Deployment, Layout, live
from tests.integration.fleet.recorded import Recorder, tell
from tests.integration.fleet.servers import Server, ground

ROUNDS = int(os.environ.get("LANDED_TEST_ROUNDS", "20"))
"""Of ``make long``."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL of its own, to be killed."""
    with ground() as home, ExitStack() as stack:
        server = Server(home, "base")
        stack.callback(server.stop)
        server.make()
        server.start()
        yield server


def blows_on(deployment: Deployment, server: Server | None, rng: random.Random) -> dict[str, Blow]:
    """What may be killed here."""

    async def kill_replica() -> None:
        await deployment.kill_replica(rng.randrange(len(deployment.replicas)))

    async def kill_database() -> None:
        assert server is not None
        server.kill()
        server.start()

    async def crash_database() -> None:
        assert server is not None
        server.crash()
        server.start()

    blows: dict[str, Blow] = {"kill replica": kill_replica}
    if server is not None:
        blows |= {"kill database": kill_database, "crash database": crash_database}
    if deployment.layout.log == "sqlite":
        blows["kill log server"] = deployment.kill_server
    return blows


async def suffer(
    layout: Layout,
    server: Server | None,
    folder: Path,
    *,
    replicas: int,
    rounds: int,
    told: pytest.FixtureRequest,
) -> None:
    rng = random.Random(f"{layout}/{rounds}")
    hosts = f"127.0.0.1:{server.port}" if server else ""
    deployment = Deployment(layout, folder, hosts)
    blows = blows_on(deployment, server, rng)
    # Each kind once, then any.
    order = [*blows, *(rng.choice(list(blows)) for _ in range(rounds))][:rounds]
    recorder, struck = await live(deployment, blows, replicas=replicas, order=order, rng=rng)
    if layout.log == "sqlite":
        found = rows.of_sqlite(deployment.path)
        await recorder.read_log(f"sqlite:///{deployment.path}")
    else:
        assert server is not None
        found = rows.of_postgres(server.conninfo)
        await recorder.read_log(deployment.log)
    assert rows.packed(recorder.landed_ids()) == found
    recorder.judge()
    check_the_checkers(recorder)
    tell(told, f"{layout}, {replicas} replicas, {dict(struck)}: {recorder.counts()}")


def check_the_checkers(recorder: Recorder) -> None:
    """Of the very history that they found nothing wrong with, each of these changes is noticed."""
    history = recorder.history
    done = next(call for call in history.calls if call.is_last and call.done is not None)
    told, answer = done.outcome, done.done
    assert answer is not None
    key = done.request.targets[0]
    truth, batches = history.truth, history.truth.batches[key]
    at = next(
        number
        for number, batch in enumerate(batches)
        if done.request.event_id in {event.event_id for event in batch.events}
    )
    for changed in (batches[:at] + batches[at + 1 :], (*batches, batches[at])):
        history.truth = Truth({**truth.batches, key: changed}, truth.feed)
        with pytest.raises(AssertionError):
            recorder.judge()
    history.truth = truth
    wrong = msgspec.structs.replace(answer.result, balance_cents=answer.result.balance_cents + 1)
    for lie in (Done((wrong, *answer.results[1:]), answer.versions, answer.how), None):
        done.outcome = lie or Rejected(Reject("insufficient_funds", ""), ())
        with pytest.raises(AssertionError):
            recorder.judge()
    done.outcome = told


@pytest.mark.scenario("SWA-49", "SWA-53", "SWA-77")
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout("sqlite", "postgres"), marks=pytest.mark.long),
        Layout("postgres", "memory"),
    ],
    ids=str,
)
async def test_kills_of_replicas_and_databases_lose_and_double_nothing(
    layout: Layout, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await suffer(layout, server, tmp_path, replicas=2, rounds=3, told=request)


@pytest.mark.long
@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
async def test_twenty_rounds_of_kills_lose_and_double_nothing(
    layout: Layout, replicas: int, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    of_layout = server if "postgres" in layout else None
    await suffer(layout, of_layout, tmp_path, replicas=replicas, rounds=ROUNDS, told=request)
