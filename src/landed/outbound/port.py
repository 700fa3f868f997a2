"""What sending over HTTP needs of a call; ``landed.registry.Call`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import httpx

from landed.effects.answer import AttemptAnswer


class Outgoing(Protocol):
    """One attempt: exact bytes, headers with key, fence and expiry, and the time it may take."""

    @property
    def body(self) -> bytes: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def timeout_s(self) -> float: ...

    def http(
        self, response: httpx.Response, *, recipient_ref: str | None = None
    ) -> AttemptAnswer: ...
