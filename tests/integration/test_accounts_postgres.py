"""Replicas that share PostgreSQL, while it goes away, comes back, and loses sessions under load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import httpx
import pytest

from tests.handling.postgres import Cluster
from tests.integration.accounts_process import CLIENT_ID, Fleet, Process
from tests.integration.process import run_to_end

ENDED = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = '{}' AND pid <> pg_backend_pid()"
)


class Base:
    """One database that can be closed to everybody."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.name = cluster.create()
        self.url = cluster.landed_url(self.name)

    def end_sessions(self) -> None:
        self._cluster.execute(ENDED.format(self.name))

    @contextmanager
    def away(self) -> Iterator[None]:
        self._cluster.execute(f"ALTER DATABASE {self.name} WITH ALLOW_CONNECTIONS false")
        self.end_sessions()
        try:
            yield
        finally:
            self._cluster.execute(f"ALTER DATABASE {self.name} WITH ALLOW_CONNECTIONS true")


@pytest.fixture(scope="module")
def base(postgres_cluster: Cluster) -> Base:
    return Base(postgres_cluster)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, base: Base) -> Iterator[Fleet]:
    flags = ("--deadline", "2", "--attempt-timeout", "1")
    with Fleet(tmp_path_factory.mktemp("fleet"), 0, projection=base.url) as running:
        for name in "AB":
            running.add(name, *flags)
        yield running


async def deposit(
    http: httpx.AsyncClient, on: Process, account: object, cents: int, key: str
) -> httpx.Response:
    return await http.post(
        f"{on.url}/api/accounts/{account}/deposit",
        json={"amountCents": cents},
        headers={"Idempotency-Key": key},
    )


@pytest.mark.scenario("SWA-55")
async def test_a_projection_that_is_away_means_not_applied_and_nothing_is_lost(
    fleet: Fleet, base: Base
) -> None:
    account, (a, b) = uuid4(), fleet.replicas
    async with httpx.AsyncClient(timeout=20) as http:
        first = await deposit(http, a, account, 50, "before")
        assert first.status_code == 200
        assert (await http.get(f"{a.url}/api/info")).json()["backend"] == "postgres"
        with base.away():
            answer = await deposit(http, a, account, 7, "meanwhile")
            assert (answer.status_code, answer.json()["outcome"]) == (503, "not_applied")
            assert answer.json()["retryable"] is True
            assert (await http.get(f"{a.url}/readyz")).status_code == 503
            assert (await http.get(f"{a.url}/healthz")).status_code == 200
        again = await deposit(http, b, account, 50, "before")
        assert (again.headers["idempotency-result"], again.text) == ("original", first.text)
        fresh = await deposit(http, a, account, 7, "meanwhile")
        assert fresh.headers["idempotency-result"] == "fresh"
        assert fresh.json()["balanceCents"] == 57
        assert (await http.get(f"{a.url}/readyz")).status_code == 200


@pytest.mark.scenario("SWA-48", "SWA-51", "SWA-71")
async def test_sessions_that_are_killed_under_load_double_and_lose_nothing(
    fleet: Fleet, base: Base
) -> None:
    accounts = [uuid4() for _ in range(3)]
    wanted = {str(uuid4()): accounts[number % 3] for number in range(60)}
    answers: dict[str, set[str]] = {key: set() for key in wanted}
    is_over = asyncio.Event()

    async def kill() -> int:
        rounds = 0
        while not is_over.is_set():
            await asyncio.to_thread(base.end_sessions)
            rounds += 1
            await asyncio.sleep(0.02)
        return rounds

    async def ask(http: httpx.AsyncClient, key: str, first: int) -> None:
        for attempt in range(60):
            on = fleet.replicas[(first + attempt) % 2]
            answer = await deposit(http, on, wanted[key], 1, key)
            if answer.status_code == 200:
                answers[key].add(answer.text)
                if attempt:
                    return
            else:
                assert answer.json()["retryable"] is True, answer.text
        raise AssertionError(f"{key} was never answered twice")

    killing = asyncio.create_task(kill())
    async with httpx.AsyncClient(timeout=30) as http:
        for start in range(0, 60, 6):
            keys = list(wanted)[start : start + 6]
            await asyncio.gather(*[ask(http, key, number) for number, key in enumerate(keys)])
        is_over.set()
        assert await killing > 5
        for key in wanted:
            assert len(answers[key]) == 1, "every retry got the first answer"
        for account in accounts:
            for on in fleet.replicas:
                seen = (await http.get(f"{on.url}/api/accounts/{account}/history")).json()
                ids = [event["eventId"] for event in seen["events"]]
                assert sorted(ids) == sorted(k for k, a in wanted.items() if a == account)
                assert seen["balanceCents"] == len(ids)


async def test_a_rebuild_under_running_replicas_changes_no_answer(fleet: Fleet, base: Base) -> None:
    account = uuid4()
    rebuild = ("projection", "rebuild", "--database", base.url, "--json")
    async with httpx.AsyncClient(timeout=20) as http:
        first = await deposit(http, fleet.replicas[0], account, 50, "k")
        done = await asyncio.to_thread(run_to_end, *rebuild)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"projection": "accounts", "folds": 1}
        cold = fleet.add("cold")
        for on in fleet.replicas:
            again = await deposit(http, on, account, 50, "k")
            assert (again.headers["idempotency-result"], again.text) == ("original", first.text)
        assert (await deposit(http, cold, account, 1, "l")).json()["balanceCents"] == 51
        assert (await deposit(http, fleet.replicas[0], account, 1, "m")).json()[
            "balanceCents"
        ] == 52


@pytest.mark.scenario("SWA-76")
def test_a_replica_that_disagrees_is_refused_and_both_values_are_named(
    fleet: Fleet, base: Base
) -> None:
    first = ["accounts", "--listen", "127.0.0.1:0", "--log", f"landed://127.0.0.1:{fleet.log.port}"]
    same = [*first, "--projection", base.url, "--client-id"]
    for flags, words in (
        ([CLIENT_ID, "--window", "60"], ("60.0 here", "90.0 there", "--accept-config")),
        ([CLIENT_ID.replace("1", "2")], ("clientId", CLIENT_ID)),
    ):
        ended = run_to_end(*same, *flags)
        assert ended.returncode == 2
        assert all(word in ended.stderr for word in words), ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda url: url.replace("/t", "/nothing"), "does not exist"),
        (lambda url: url.replace("postgres@", "nobody_at_all@"), "does not exist"),
        (lambda url: url.partition("?")[0] + "?host=/nowhere", "No such file"),
    ],
)
def test_a_database_that_cannot_be_had_is_one_line(fleet: Fleet, base: Base, change, word) -> None:
    ended = run_to_end(
        *("accounts", "--listen", "127.0.0.1:0", "--log", f"landed://127.0.0.1:{fleet.log.port}"),
        *("--client-id", CLIENT_ID, "--projection", change(base.url)),
    )
    assert ended.returncode == 1
    assert word in ended.stderr
    assert ended.stderr.count("\n") == 1
