"""A primary that is killed, or that sleeps through its own succession, under a fleet at work.

What fencing is for is shown as well: an old primary that wakes acknowledges nothing, since its standby
is gone, but it still answers reads from the past, and a replica that writes there and reads here finds
that the log is shorter than it was. Only ending the old primary puts an end to that; nothing on our
side of a connection can.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pytest

import landed
from landed.accounts.domain import Deposit
from landed.commands import KeyReused, Rejected
from landed.conformance.trial import key, write
from landed.errors import OutcomeUnknownError
from landed.log import Read
from landed.sim.history import Call
from tests.integration.accounts_process import Process
from tests.integration.fleet import rows
from tests.integration.fleet.deployment import (
    ACCOUNTS,
    ANSWERED_WITHIN_S,
    PATIENCE_S,
    WINDOW_S,
    Deployment,
    Layout,
    Load,
    live,
)
from tests.integration.fleet.recorded import Recorder, tell
from tests.integration.fleet.servers import Pair, ground

ROUNDS = int(os.environ.get("LANDED_TEST_FAILOVERS", "10"))
"""Of ``make long``."""
FEW = 12
"""Successes to wait for between two events."""
MANY = 60
"""The same in ``make long``."""


@contextmanager
def pair_of(*, is_strict: bool) -> Iterator[Pair]:
    with ground() as home:
        pair = Pair(home, is_strict=is_strict)
        try:
            yield pair
        finally:
            pair.stop()


async def audit(
    recorder: Recorder, deployment: Deployment, pair: Pair, excused: Collection[int] = ()
) -> None:
    """What the new primary holds, told by the log and by its rows, against all that was answered."""
    await recorder.read_log(deployment.log)
    assert rows.packed(recorder.landed_ids()) == rows.of_postgres(pair.primary.conninfo)
    recorder.judge(excused)


async def fail_over_and_over(
    layout: Layout, folder: Path, *, replicas: int, rounds: int, told: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"{layout}/{rounds}")
    with pair_of(is_strict=True) as pair:
        deployment = Deployment(layout, folder, pair.hosts)

        def fail_over() -> None:
            pair.primary.kill()
            pair.swap()
            pair.follow()

        blows = {"failover": lambda: asyncio.to_thread(fail_over)}
        recorder, struck = await live(
            deployment,
            blows,
            replicas=replicas,
            order=["failover"] * rounds,
            rng=rng,
            between=FEW if rounds == 1 else MANY,
        )
        await audit(recorder, deployment, pair)
    tell(told, f"{layout}, {replicas} replicas, {dict(struck)}: {recorder.counts()}")


@pytest.mark.scenario("SWA-55", "SWA-77")
async def test_a_standby_takes_over_and_no_acknowledged_write_is_lost_or_doubled(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await fail_over_and_over(
        Layout("postgres", "postgres"), tmp_path, replicas=2, rounds=1, told=request
    )


@pytest.mark.long
@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize(
    "layout", [Layout("postgres", "memory"), Layout("postgres", "postgres")], ids=str
)
async def test_ten_failovers_lose_and_double_nothing(
    layout: Layout, replicas: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await fail_over_and_over(layout, tmp_path, replicas=replicas, rounds=ROUNDS, told=request)


async def sleep_through(layout: Layout, folder: Path, told: pytest.FixtureRequest) -> None:
    """The primary stands still, is succeeded, wakes, and is fenced at last."""
    rng = random.Random(f"{layout}/asleep")
    # Without strict mode, as it is usual: who was promoted acknowledges alone until somebody follows.
    with pair_of(is_strict=False) as pair:
        deployment = Deployment(layout, folder, pair.hosts)
        async with loaded(deployment, rng) as (recorder, load):
            pinned, old = deployment.replicas, pair.primary
            async with load.on():
                await load.until_acknowledged(FEW)
                await asyncio.to_thread(old.freeze)
                await asyncio.to_thread(pair.swap)
                # Whoever connects now finds the new primary, and callers are led there.
                deployment.replicas = [await deployment.replica()]
                await load.until_acknowledged(FEW)
                asked = await ask_pinned(recorder, pinned, rng)
                await asyncio.to_thread(old.thaw)
                await load.until_acknowledged(FEW)
                asked += await ask_pinned(recorder, pinned, rng)
                # It knows nothing of what happened since, and tells so whoever reads from it.
                count = "SELECT count(*) FROM landed_log_entries"
                assert old.ask(count) < pair.primary.ask(count)
                await asyncio.to_thread(old.kill)
                deployment.replicas += pinned
                await load.until_acknowledged(FEW)
            await load.settle()
        await audit(recorder, deployment, pair, {call.number for call in asked})
    heard = Counter(type(call.outcome).__name__ for call in asked)
    tell(
        told,
        f"{layout}, a primary that slept: {recorder.counts()}; its replicas said {dict(heard)}",
    )


async def ask_pinned(recorder: Recorder, pinned: list[Process], rng: random.Random) -> list[Call]:
    """Ask replicas that hold connections to the old primary for something new.

    They may leave it for the new one and say that it landed, and then the audit finds it there; or
    that it is unknown, not applied, or that a human is needed.
    """
    requests = [
        recorder.request(UUID(int=rng.getrandbits(127) | 1), Deposit(account, 1))
        for account in ACCOUNTS
    ]
    asked = [
        recorder.call(on, request, timeout_s=PATIENCE_S) for request in requests for on in pinned
    ]
    calls = await asyncio.gather(*asked)
    for call in calls:
        assert not isinstance(call.outcome, Rejected | KeyReused), call
    return calls


@asynccontextmanager
async def loaded(
    deployment: Deployment, rng: random.Random
) -> AsyncIterator[tuple[Recorder, Load]]:
    """Two replicas and callers that do not look in between; ended afterwards."""
    async with httpx.AsyncClient() as http:
        recorder = Recorder(http, ACCOUNTS, window_s=WINDOW_S)
        load = Load(deployment, recorder, rng)
        load.looks = 0.0
        try:
            await deployment.start(2)
            yield recorder, load
        finally:
            deployment.end()


@pytest.mark.parametrize(
    "layout",
    [
        Layout("postgres", "memory"),
        pytest.param(Layout("postgres", "postgres"), marks=pytest.mark.long),
    ],
    ids=str,
)
async def test_a_primary_that_slept_through_its_succession_acknowledges_nothing(
    layout: Layout, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with asyncio.timeout(2 * ANSWERED_WITHIN_S):
        await sleep_through(layout, tmp_path, request)


@pytest.mark.scenario("BC-08")
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_commit_that_no_standby_had_is_gone_with_its_primary_and_shown_by_its_restart(
    is_restarted: bool,
) -> None:
    bounds = {"commit_wait_s": "0.3", "shutdown_grace_s": "0.1"}
    with pair_of(is_strict=False) as pair:
        url = f"postgresql://postgres@{pair.hosts}/postgres"
        async with await landed.connect(url, **bounds) as log:
            await log.write(write(key(), 1))
            pair.standby.kill()
            with pytest.raises(OutcomeUnknownError):
                await log.write(write(key(), 2, at=1), timeout_s=0.5)
        pair.primary.kill()
        if is_restarted:
            # Why a crashed primary is succeeded rather than restarted: nobody else has this write.
            pair.primary.start(standby_names="*")
        else:
            pair.standby.start()
            pair.swap()
        async with asyncio.timeout(10), await landed.connect(url, **bounds) as log:
            page = await log.read(Read(key()))
            assert [batch.version for batch in page.batches] == [1, 2][: 1 + is_restarted]
            if not is_restarted:
                assert (await log.write(write(key(), 2, at=1))).versions == (2,)


@pytest.mark.long
async def test_without_a_synchronous_standby_the_checkers_find_what_a_failover_lost(
    tmp_path: Path,
) -> None:
    with pair_of(is_strict=False) as pair:
        pair.primary.stop()
        pair.primary.start(standby_names="")
        deployment = Deployment(Layout("postgres", "memory"), tmp_path, pair.hosts)
        async with loaded(deployment, random.Random(0)) as (recorder, load), load.on():
            await load.until_acknowledged(FEW)
            await asyncio.to_thread(pair.standby.kill)
            await load.until_acknowledged(FEW)
            load.stop()
        pair.primary.kill()
        pair.standby.start()
        pair.swap()
        await recorder.read_log(deployment.log)
        with pytest.raises(AssertionError, match=r"is in the log|it has .* versions"):
            recorder.judge()
