"""What proves over HTTP that nothing was sent: a closed list. And addresses that others chose."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections import deque
from dataclasses import replace

import httpx
import pytest

from landed.effects import headers
from landed.effects.answer import Ambiguous, NotSent, Success
from landed.effects.headers import FenceText
from landed.errors import ConfigurationError
from landed.outbound import HttpOut, answer_to
from landed.outbound.addresses import check_address, is_public
from landed.registry import Call
from tests.handling import lives
from tests.handling.far_side import far_side

REQUEST = httpx.Request("POST", "http://acme.test/")


def call(**more) -> Call:
    values = {
        "effect_id": uuid.UUID(int=1),
        "effect_key": "k1",
        "idempotency_key": uuid.UUID(int=2),
        "attempt_no": 1,
        "body": b'{"id": "i1", "key": "k1"}',
        "headers": {"Idempotency-Key": "k1", "Content-Type": "application/json"},
        "timeout_s": 5.0,
        "version": None,
        "contract": lives.REPLAYS,
    }
    return Call(**{**values, **more})


ALL = [
    kind
    for kind in vars(httpx).values()
    if isinstance(kind, type) and issubclass(kind, httpx.TransportError | httpx.RequestError)
]
PROVEN = {
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
}


@pytest.mark.scenario("AS-57")
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_list_of_what_proves_not_sent_is_closed(kind):
    answer = answer_to(kind("it failed"))
    assert isinstance(answer, NotSent if kind in PROVEN else Ambiguous)


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError("x"), ssl.SSLError("x"), TimeoutError()]
)
def test_an_error_that_is_not_on_the_list_proves_nothing(error):
    assert isinstance(answer_to(error), Ambiguous)


@pytest.mark.real_loop
@pytest.mark.scenario("AS-57")
@pytest.mark.parametrize("url", ["http://name.invalid/", "ftp://acme.test/"])
async def test_a_name_nobody_knows_and_a_scheme_nobody_speaks_are_not_sent(url):
    async with HttpOut() as out:
        assert isinstance(await out.send(call(), url), NotSent)


@pytest.mark.real_loop
@pytest.mark.scenario("AS-57")
async def test_tls_that_fails_before_the_request_is_not_sent():
    with far_side() as far:
        async with HttpOut() as out:
            answer = await out.send(call(), far.url.replace("http:", "https:"))
        assert isinstance(answer, NotSent)
        assert far.requests == []


@pytest.mark.real_loop
@pytest.mark.scenario("AS-57")
async def test_no_free_connection_is_not_sent():
    with far_side(fault="wait") as far:
        async with HttpOut(connections=1) as out:
            first = asyncio.ensure_future(out.send(call(), far.url + "/effects"))
            async with asyncio.timeout(5):
                while not far.requests:
                    await asyncio.sleep(0.01)
            second = await out.send(call(timeout_s=0.1), far.url + "/effects")
            assert isinstance(second, NotSent)
            far.gate.set()
            assert isinstance(await first, Success)
        assert len(far.requests) == 1


@pytest.mark.real_loop
@pytest.mark.scenario("AS-57", "BC-13")
@pytest.mark.parametrize("fault", ["drop", "half", "wait"])
async def test_what_breaks_after_connecting_is_ambiguous_and_sent_once(fault):
    with far_side(fault=fault) as far:
        async with HttpOut() as out:
            answer = await out.send(call(timeout_s=0.5), far.url + "/effects")
        assert isinstance(answer, Ambiguous)
        assert len(far.requests) == 1


@pytest.mark.real_loop
@pytest.mark.scenario("BC-13")
async def test_a_kept_connection_that_breaks_is_not_used_for_a_second_try():
    body = b'{"key": "k1", "pad": "%b"}' % (b"x" * 2_198)
    assert len(body) == 2_222
    with far_side(has_keys=False) as far:
        async with HttpOut() as out:
            assert isinstance(await out.send(call(body=body), far.url + "/effects"), Success)
            far.fault = "drop"
            assert isinstance(await out.send(call(body=body), far.url + "/effects"), Ambiguous)
        assert [len(sent) for _, _, sent in far.requests] == [2_222, 2_222]


@pytest.mark.real_loop
async def test_an_answer_whose_body_breaks_off_is_no_answer():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HttpOut() as out:
        answer = await out.send(call(), f"http://127.0.0.1:{port}/")
    assert isinstance(answer, Ambiguous)


@pytest.mark.real_loop
async def test_a_redirect_is_not_followed():
    with far_side(faults=deque(["status:307"])) as far:
        async with HttpOut() as out:
            assert isinstance(await out.send(call(), far.url + "/effects"), Ambiguous)
        assert len(far.requests) == 1


@pytest.mark.real_loop
async def test_the_calls_own_headers_cannot_be_replaced():
    with far_side() as far:
        async with HttpOut() as out:
            await out.send(
                call(), far.url + "/effects", headers={"Idempotency-Key": "other", "X-Auth": "s"}
            )
        assert [key for key, _, _ in far.requests] == ["k1"]


async def test_a_client_that_retries_by_itself_is_refused():
    client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=2))
    with pytest.raises(ConfigurationError, match="retries=0"):
        HttpOut(client)
    with contextlib.suppress(RuntimeError):
        await client.aclose()


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "fe80::1%eth0", "fd00::1",
     "::ffff:10.0.0.1", "0.0.0.0", "224.0.0.1", "100.64.0.1", "nonsense"],
)  # fmt: skip
def test_addresses_that_point_inside_are_not_public(address):
    assert not is_public(address)


def test_an_address_outside_is_public():
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


@pytest.mark.real_loop
async def test_a_user_supplied_address_inside_is_not_called():
    with far_side() as far:
        async with HttpOut(user_supplied=True) as out:
            for url in (far.url, f"http://localhost:{far.port}/", "file:///etc/passwd", "http://"):
                assert isinstance(await out.send(call(), url), NotSent)
        assert far.requests == []


@pytest.mark.real_loop
async def test_a_checked_address_is_connected_to_as_it_was_resolved():
    checked = await check_address("http://93.184.216.34:8080/hook?a=1")
    assert checked.url == "http://93.184.216.34:8080/hook?a=1"
    assert checked.host == "93.184.216.34:8080"


@pytest.mark.parametrize("key", ["i1", "a/b", "é ü", "100%", ""])
def test_a_fence_is_read_as_it_was_written(key):
    fence = FenceText("invoice/x", key, 7)
    text = headers.fence_text(fence)
    assert text.isascii()
    assert headers.parse_fence(text) == fence


@pytest.mark.parametrize("text", ["", "a/b", "a/b/c", "a/b/-1", "a/b/1/2", "a/b/²"])
def test_what_is_no_fence_is_refused(text):
    with pytest.raises(ValueError, match="fence"):
        headers.parse_fence(text)


def test_a_deadline_is_never_later_than_it_was():
    assert headers.parse_expires(headers.expires_text(1_999_999)) == 1_999_000
    with pytest.raises(ValueError, match="deadline"):
        headers.parse_expires("soon")


def test_an_answer_is_what_the_contract_says():
    silent = replace(lives.REPLAYS, answers=replace(lives.REPLAYS.answers, success=()))
    assert isinstance(call(contract=silent).http(httpx.Response(200)), Ambiguous)
