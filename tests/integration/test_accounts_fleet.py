"""Fleets of real processes over a real log server: keys hold wherever a request lands."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from landed.cli.app import run
from tests.integration.accounts_process import CLIENT_ID, Fleet, Process, replica

LAYOUTS = [
    ("sqlite", "memory"),
    ("sqlite", "postgres"),
    pytest.param(("postgres", "memory"), marks=pytest.mark.long),
    pytest.param(("postgres", "postgres"), marks=pytest.mark.long),
]
"""Where the log lives, and where folded states live."""


@pytest.fixture(scope="module", params=LAYOUTS, ids="-".join)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Three replicas on a log server."""

    def place(kind: str, otherwise: str | None) -> str | None:
        if kind != "postgres":
            return otherwise
        cluster = request.getfixturevalue("postgres_cluster")
        return str(cluster.landed_url(cluster.create()))

    engine, projection = request.param
    with Fleet(
        tmp_path_factory.mktemp("fleet"),
        3,
        engine=place(engine, None),
        projection=place(projection, "memory") or "memory",
    ) as running:
        yield running


async def deposit(http, on, account, cents, key):
    return await http.post(
        f"{on.url}/api/accounts/{account}/deposit",
        json={"amountCents": cents},
        headers={"Idempotency-Key": key},
    )


async def history(http, on, account):
    return (await http.get(f"{on.url}/api/accounts/{account}/history")).json()


@pytest.mark.scenario("BC-17", "SWA-34", "SWA-35")
async def test_twelve_copies_at_once_on_three_processes_land_once(fleet):
    account, key = uuid4(), str(uuid4())
    async with httpx.AsyncClient() as http:
        await deposit(http, fleet.replicas[0], account, 1000, "first")
        copies = [fleet.replicas[number % 3] for number in range(12)]
        answers = await asyncio.gather(*(deposit(http, on, account, 500, key) for on in copies))
        for number, answer in enumerate(answers):
            if answer.status_code != 200:
                assert answer.json()["retryable"] is True
                answers[number] = await deposit(http, copies[number], account, 500, key)
        answers += [await deposit(http, on, account, 500, key) for on in fleet.replicas]
        assert {answer.text for answer in answers} == {
            f'{{"accountId":"{account}","balanceCents":1500,"aggregateVersion":2}}'
        }
        for on in fleet.replicas:
            seen = await history(http, on, account)
            assert [event["amountCents"] for event in seen["events"]] == [1000, 500]


@pytest.mark.scenario("SWA-81")
async def test_a_connection_closed_after_sending_changes_nothing_about_the_request(fleet):
    account, key = uuid4(), str(uuid4())
    first, second = fleet.replicas[:2]
    body = '{"amountCents":50}'
    reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
    writer.write(
        f"POST /api/accounts/{account}/deposit HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    writer.close()
    del reader
    async with httpx.AsyncClient() as http:
        again = await deposit(http, second, account, 50, key)
        assert again.status_code == 200
        seen = await history(http, first, account)
        assert [event["eventId"] for event in seen["events"]] == [key]


async def test_a_body_far_too_large_is_413_and_the_connection_stays_usable(fleet):
    account = uuid4()
    async with httpx.AsyncClient() as http:
        url = f"{fleet.replicas[0].url}/api/accounts/{account}/deposit"
        headers = {"Content-Type": "application/json"}
        answer = await http.post(url, content=b" " * 1_000_000, headers=headers)
        assert answer.status_code == 413
        assert (await deposit(http, fleet.replicas[0], account, 5, "k")).status_code == 200


async def test_headers_without_end_are_refused_and_not_kept(fleet):
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.replicas[0].port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1_000_000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()


@pytest.mark.scenario("SWA-49", "SWA-53")
async def test_a_killed_replica_takes_no_answer_with_it(fleet):
    account, key = uuid4(), str(uuid4())
    victim, other = fleet.add("victim"), fleet.replicas[0]
    async with httpx.AsyncClient() as http:
        asked = [asyncio.create_task(deposit(http, victim, account, 50, key)) for _ in range(5)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        victim.kill()
        await asyncio.gather(*asked, return_exceptions=True)
        original = await deposit(http, other, account, 50, key)
        assert original.headers["idempotency-result"] == "original"
        # A new process knows nothing, and finds it by folding.
        cold = fleet.add("newcomer")
        again = await deposit(http, cold, account, 50, key)
        assert again.headers["idempotency-result"] == "original"
        assert again.text == original.text
        async with http.stream("GET", f"{cold.url}/api/watch/stream") as stream:
            async for line in stream.aiter_lines():
                assert line == "event: resync"
                break
            # A live stream does not keep a replica from stopping.
            code, errors = await asyncio.to_thread(cold.stop)
    assert code == 0, errors
    assert "Traceback" not in errors


async def test_without_its_log_a_replica_says_so_and_recovers(tmp_path):
    with (
        Fleet(tmp_path, 0) as running,
        replica(running.log.port, "lonely", "--deadline", "1", "--attempt-timeout", "0.4") as alone,
    ):
        account = uuid4()
        async with httpx.AsyncClient(timeout=20) as http:
            assert (await deposit(http, alone, account, 5, "a")).status_code == 200
            running.log.kill()
            answer = await deposit(http, alone, account, 5, "b")
            assert (answer.status_code, answer.json()["outcome"]) == (503, "not_applied")
            assert (await http.get(f"{alone.url}/readyz")).status_code == 503
            assert (await http.get(f"{alone.url}/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--listen", "0.0.0.0:0"), "--caller-header"),
        (("--listen", "[::]:0"), "--caller-header"),
        (("--listen", "example.org:80"), "--caller-header"),
        (("--window", "20"), "window"),
        (("--attempt-timeout", "30"), "attempt_timeout"),
        (("--projection", "redis"), "memory"),
        (("--projection", "postgresql://me:secret@db/x"), "PGPASSFILE"),
        (("--projection", "postgresql://me@db/x?colour=red"), "colour"),
        (("--names", __file__), "test_accounts_fleet"),
        (("--client-id", "5eed"), "UUID"),
        (("--client-id", "00000000-0000-0000-0000-000000000000"), "nil"),
        (("--log", "ftp://x"), "ftp://x"),
        (("--replica", "line\nfeed"), "--replica"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(flags, word, capsys):
    first = ["accounts", "--log", "memory:", "--client-id", CLIENT_ID, "--listen", "127.0.0.1:0"]
    assert run([*first, *flags]) == 2
    said = capsys.readouterr().err
    assert word in said
    assert said.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        first = ["accounts", "--log", "memory:", "--client-id", CLIENT_ID]
        assert run([*first, "--listen", listen]) == 1
    said = capsys.readouterr().err
    assert "in use" in said
    assert said.count("\n") == 1


def test_an_address_beyond_loopback_is_served_once_the_caller_is_known():
    with Process(
        *("accounts", "--listen", "0.0.0.0:0", "--log", "memory:", "--client-id", CLIENT_ID),
        *("--caller-header", "X-Caller"),
        ready="landed accounts: listening on http://0.0.0.0:",
    ) as open_one:
        url = f"http://127.0.0.1:{open_one.port}/api/info"
        assert httpx.get(url).status_code == 400
        assert httpx.get(url, headers={"X-Caller": "me"}).status_code == 200
        assert open_one.stop()[0] == 0


def test_a_missing_extra_is_one_sentence():
    program = (
        "import sys; sys.modules['fastapi'] = None; from landed.cli.app import run; "
        f"sys.exit(run(['accounts', '--log', 'memory:', '--client-id', '{CLIENT_ID}']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == ("landed: this needs the service extra: pip install 'landed[service]'\n")
