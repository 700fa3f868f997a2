"""Sending one attempt over HTTP, and the closed list of what proves that nothing was sent (AT-4).

No redirect is followed and nothing is sent a second time down here: a repeat is a decision, and is
made where its attempt is on record.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from typing import Any, Final, Self

import httpx

from landed.effects.answer import Ambiguous, AttemptAnswer, NotSent
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.outbound.addresses import check_address
from landed.outbound.port import Outgoing

NOT_SENT: Final = (
    httpx.ConnectError,  # name not found, refused, unreachable, TLS failed: before any request byte
    httpx.ConnectTimeout,  # likewise, in time
    httpx.PoolTimeout,  # no connection became free
    httpx.UnsupportedProtocol,  # no such scheme: nothing was opened
    httpx.InvalidURL,
)
"""Every exception that proves that no byte of the request can have left. Everything else may have:
write errors, read errors, resets, protocol errors and timeouts after connecting are ambiguous."""

_BODY_BYTES_MAX: Final = 1024 * 1024


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted unless told otherwise: loading them takes tens of milliseconds."""
    return httpx.create_ssl_context()


def answer_to(error: BaseException) -> AttemptAnswer:
    """Say what an exception of an HTTP client proves: not sent, or nothing at all."""
    detail = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, NOT_SENT):
        return NotSent(detail)
    return Ambiguous(detail)


class HttpOut:
    """Sends attempts over HTTP with httpx.

    Args:
        client: one of your own; its redirects are switched off for our requests and its transport
            must not retry by itself. None: a client of ours.
        user_supplied: addresses come from outside: each is resolved once, refused if private, and
            connected to as resolved (rule SE-3).
        note: takes the facts.
        limits: of the pool of our own client.
    """

    def __init__(
        self,
        client: httpx.AsyncClient | None = None,
        *,
        user_supplied: bool = False,
        note: Note = forget,
        connections: int = 100,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        if client is not None and _retries_by_itself(client):
            raise ConfigurationError(
                "this httpx client's transport retries by itself; a repeat is decided where the "
                "attempt is on record: use retries=0"
            )
        self._is_own = client is None
        self._client = client or httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                retries=0,
                verify=_trusted() if verify is True else verify,
                limits=httpx.Limits(max_connections=connections),
            ),
            follow_redirects=False,
            trust_env=False,
        )
        self._user_supplied = user_supplied
        self._note = note

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of the connections, if they are ours."""
        if self._is_own:
            await self._client.aclose()

    async def send(
        self,
        call: Outgoing,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        ref_header: str | None = None,
    ) -> AttemptAnswer:
        """Make one attempt: the call's exact bytes under its headers, within its time.

        Args:
            call: what ``@effect.send`` was given.
            url: where to.
            method: POST, PUT, PATCH or DELETE.
            headers: more of them (authentication); they cannot replace those of the call.
            ref_header: the answer's header that holds the recipient's own id.

        Returns:
            What the contract makes of the answer; ``NotSent`` only with proof; else ``Ambiguous``.
        """
        merged = {**(headers or {}), **call.headers}
        extensions: dict[str, Any] = {"trace": self._traced}
        target = url
        if self._user_supplied:
            checked = await check_address(url)
            if isinstance(checked, str):
                return NotSent(checked)
            target = checked.url
            merged["Host"] = checked.host
            extensions["sni_hostname"] = checked.name
        try:
            request = self._client.build_request(
                method, target, content=call.body, headers=merged, timeout=call.timeout_s
            )
            request.extensions = {**request.extensions, **extensions}
            response = await self._client.send(request, follow_redirects=False, stream=True)
        except Exception as e:  # noqa: BLE001  # sorted by the closed list above
            return answer_to(e)
        try:
            await self._read(response)
        except Exception as e:  # noqa: BLE001  # it was sent: nothing that fails now proves anything
            await response.aclose()
            return Ambiguous(f"{type(e).__name__}: {e}"[:500])
        ref = response.headers.get(ref_header) if ref_header is not None else None
        return call.http(response, recipient_ref=ref)

    async def _read(self, response: httpx.Response) -> None:
        """Read the body whole, up to a bound: half an answer is no answer."""
        kept = bytearray()
        async for chunk in response.aiter_bytes():
            kept += chunk
            if len(kept) > _BODY_BYTES_MAX:
                raise httpx.DecodingError("the answer's body is larger than 1 MiB")
        response._content = bytes(kept)  # what ``aread`` does, with a bound
        await response.aclose()

    async def _traced(self, event: str, _info: Mapping[str, Any]) -> None:
        # Headers are out, the body is not: part of the request is written.
        if event.endswith("send_request_headers.complete"):
            self._note("kp", {"point": "KP-17"})


def _retries_by_itself(client: httpx.AsyncClient) -> bool:
    pool = getattr(client._transport, "_pool", None)  # there is no public way
    return bool(getattr(pool, "_retries", 0))
