"""Webhooks out, after Standard Webhooks: the same id on every try, a fresh signature for each."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final
from urllib.parse import urlsplit

from landed.clock import Clock, SystemClock
from landed.deliveries.verify import SigningKey
from landed.errors import ConfigurationError
from landed.relay.port import CLOUDEVENT, Gone, Handed, NotHanded, Outgoing, Taken

try:
    import httpx
except ImportError:  # said when a sink is made
    httpx = None  # type: ignore[assignment]

ANSWER_BYTES_MAX: Final = 16 * 1024
"""How much of an answer is read; none of it is needed."""
RETRY_AFTER_MAX_S: Final = 86_400.0
_THROTTLING: Final = frozenset({429, 502, 503, 504})
_THROTTLE_S: Final = 5.0


class HttpSink:
    """One URL. A 2xx answer proves the hand-off; 410 retires it; redirects are not followed.

    Args:
        url: where to, ``https://`` or ``http://``.
        keys: signing keys; all that are valid sign, so that keys can be rotated. None: unsigned.
        timeout_s: one try, from dialling to the answer.
        clock: stamps tries and decides which keys are valid.
    """

    proof = "a 2xx answer"
    dedup_window_s: float | None = None

    def __init__(
        self,
        url: str,
        *,
        keys: tuple[SigningKey, ...] = (),
        timeout_s: float = 15.0,
        clock: Clock | None = None,
    ) -> None:
        if httpx is None:
            raise ConfigurationError("webhooks out need an extra: pip install 'landed[effects]'")
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(f"a webhook goes to an http(s) address, not {url!r}")
        self._url = url
        self._keys = keys
        self._timeout_s = timeout_s
        self._clock = SystemClock() if clock is None else clock
        self._client: httpx.AsyncClient | None = None

    async def hand_on(self, message: Outgoing) -> Handed:
        """Send one message once."""
        body = message.cloudevent()
        headers = self._headers(message.message_id, body)
        async with self._open().stream(
            "POST", self._url, content=body, headers=headers
        ) as response:
            status = response.status_code
            await _drain(response)
        if 200 <= status < 300:
            return Taken({"status": status})
        if status == 410:
            return Gone("it answered 410: gone for good")
        wait = _seconds(response.headers.get("retry-after"))
        if wait is None and status in _THROTTLING:
            wait = _THROTTLE_S
        if 300 <= status < 400:
            return NotHanded(f"it answered {status}; redirects are not followed", wait)
        return NotHanded(f"it answered {status}", wait)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=self._timeout_s, follow_redirects=False, trust_env=False
            )
        return self._client

    def _headers(self, message_id: str, body: bytes) -> dict[str, str]:
        now_ms = self._clock.wall_ms()
        stamp = str(now_ms // 1000)
        headers = {
            "content-type": CLOUDEVENT,
            "webhook-id": message_id,
            "webhook-timestamp": stamp,
        }
        signed = f"{message_id}.{stamp}.".encode() + body
        signatures = [
            "v1," + base64.b64encode(hmac.digest(key.secret, signed, hashlib.sha256)).decode()
            for key in self._keys
            if key.is_valid_at(now_ms * 1000)
        ]
        if self._keys and not signatures:
            raise ConfigurationError(f"no signing key for {self._url} is valid now")
        if signatures:
            headers["webhook-signature"] = " ".join(signatures)
        return headers


async def _drain(response: httpx.Response) -> None:
    """Read a little, so that the connection can be used again; the rest is not waited for."""
    read = 0
    async for chunk in response.aiter_raw():
        read += len(chunk)
        if read > ANSWER_BYTES_MAX:
            break


def _seconds(text: str | None) -> float | None:
    if text is None or not (text.strip().isascii() and text.strip().isdigit()):
        return None
    return min(float(text.strip()[:9]), RETRY_AFTER_MAX_S)
