"""The operator's port: three pages, GET only, and nothing that could hurt the log."""

import asyncio

import pytest

from landed.server.admin import serve_admin
from landed.server.metrics import FactCounts, pages
from landed.wire.messages import Probe
from tests.unit.server.harness import running
from tests.unit.server.peer import dial, write


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_the_pages_say_what_the_counters_and_the_facts_say():
    async with running() as scene, dial(scene.port) as peer:
        facts = FactCounts(scene.note)
        facts("lane.committed", {})
        admin = await serve_admin(pages(scene.server, facts), host="127.0.0.1", port=0)
        await peer.send(write(1), write(1), Probe())
        await peer.answers(3)
        head, _, body = (await ask(admin.port, get("/metrics"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert f"Content-Length: {len(body)}".encode() in head
        lines = body.decode().splitlines()
        for line in (
            'landed_requests_total{operation="write"} 2',
            'landed_requests_total{operation="probe"} 1',
            'landed_facts_total{name="lane.committed"} 1',
            "landed_connections 1",
            "landed_log_position 2",
            "landed_admitted_bytes 0",
            "landed_answers_total 3",
        ):
            assert line in lines
        named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
        samples = {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")}
        assert samples <= named
        await admin.close()


async def test_it_is_alive_from_the_start_and_ready_until_the_server_closes():
    async with running() as scene:
        facts = FactCounts(scene.note)
        admin = await serve_admin(pages(scene.server, facts), host="127.0.0.1", port=0)
        assert b" 200 " in await ask(admin.port, get("/healthz"))
        assert b" 200 " in await ask(admin.port, get("/readyz?probe=1"))
        await scene.server.close()
        assert b" 200 " in await ask(admin.port, get("/healthz"))
        assert b" 503 " in await ask(admin.port, get("/readyz"))
        await admin.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", b" 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b" 405 "),
        (b"\x03\x00\x00\x00 nonsense\r\n\r\n", b" 400 "),
        (b"GET /healthz\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000, b" 431 "),
    ],
)
async def test_what_it_does_not_serve_is_refused(request_, status):
    async with running() as scene:
        admin = await serve_admin(
            pages(scene.server, FactCounts(scene.note)), host="127.0.0.1", port=0
        )
        assert status in (await ask(admin.port, request_)).split(b"\r\n")[0]
        await admin.close()


async def test_a_request_that_never_ends_is_cut_off():
    async with running() as scene:
        admin = await serve_admin(
            pages(scene.server, FactCounts(scene.note)), host="127.0.0.1", port=0
        )
        began = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        assert b"" == await reader.read()
        assert 4 < asyncio.get_running_loop().time() - began < 6
        writer.close()
        await admin.close()
