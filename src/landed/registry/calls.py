"""What a sender, a look-up and a seal are given, and how they say what came back.

The contract decides what an answer means; a sender only passes it on. There is no way here to change
the key or the bytes (rule PY-3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from landed.effects.answer import (
    Absent,
    AlreadyActed,
    AttemptAnswer,
    Inconclusive,
    InProgress,
    LookupAnswer,
    Present,
    SealAnswer,
    Sealed,
)
from landed.effects.contract import Contract

RESULT_BYTES_MAX = 64 * 1024
"""How much of an answer's body is kept as the result; the digest covers what is kept."""


class HttpResponse(Protocol):
    """What is needed of an HTTP client's response; httpx's and requests' have it."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt. Send ``body`` with ``headers``, within ``timeout_s``, and pass the answer on."""

    effect_id: UUID
    effect_key: str
    idempotency_key: UUID
    attempt_no: int
    body: bytes
    headers: Mapping[str, str]
    """Content type, the key, and the fence and expiry if the contract has them."""
    timeout_s: float
    """On the monotonic clock; ends before the attempt counts as abandoned."""
    version: int | None
    contract: Contract

    def http(self, response: HttpResponse, *, recipient_ref: str | None = None) -> AttemptAnswer:
        """Say what an HTTP answer means, under the contract."""
        return self.answer(
            str(response.status_code),
            result=bytes(response.content[:RESULT_BYTES_MAX]),
            recipient_ref=recipient_ref,
            retry_after_s=_seconds(response.headers.get("retry-after")),
        )

    def answer(
        self,
        code: str,
        *,
        result: bytes = b"",
        recipient_ref: str | None = None,
        retry_after_s: float | None = None,
    ) -> AttemptAnswer:
        """Say what an answer of any transport means, under the contract."""
        return self.contract.meaning_of(
            code, result=result, recipient_ref=recipient_ref, retry_after_s=retry_after_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question about an effect in doubt."""

    effect_id: UUID
    effect_key: str | None
    idempotency_key: UUID
    recipient_ref: str | None
    correlation: Mapping[str, str]
    """Values recorded at the request for this purpose."""
    version: int | None
    timeout_s: float
    contract: Contract

    def present(self, result: bytes = b"", *, recipient_ref: str | None = None) -> LookupAnswer:
        """It acted; ``result`` is what was found."""
        return Present(result[:RESULT_BYTES_MAX], recipient_ref)

    def absent(self) -> LookupAnswer:
        """It has no trace of it. Whether that is final is decided by the contract, not here."""
        return Absent()

    def in_progress(self) -> LookupAnswer:
        """It is at it."""
        return InProgress()

    def inconclusive(self, detail: str = "") -> LookupAnswer:
        """The question got no usable answer."""
        return Inconclusive(detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealAsk:
    """One request to seal an effect's identity at the recipient."""

    effect_id: UUID
    effect_key: str | None
    idempotency_key: UUID
    timeout_s: float

    def sealed(self) -> SealAnswer:
        """It never acted and never will."""
        return Sealed()

    def already_acted(self, result: bytes = b"", *, recipient_ref: str | None = None) -> SealAnswer:
        """It acted before the seal."""
        return AlreadyActed(result[:RESULT_BYTES_MAX], recipient_ref)

    def inconclusive(self, detail: str = "") -> SealAnswer:
        """The seal got no usable answer; it is asked for again."""
        return Inconclusive(detail)


def _seconds(text: str | None) -> float | None:
    """Seconds of a Retry-After; a date is left to the ordinary delay."""
    if text is None or re.fullmatch(r"\s*[0-9]{1,18}\s*", text) is None:
        return None
    return float(text)
