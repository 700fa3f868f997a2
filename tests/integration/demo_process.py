"""Asking a running ``landed demo``, and waiting for what it does by itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

import httpx

T = TypeVar("T")

HTTP = httpx.Client(verify=False, timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
"""One for all: to make a client takes longer than to ask. Each request has its own connection."""


def until(condition: Callable[[], T], *, seconds: float = 60.0) -> T:
    """Ask again and again until there is an answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if found := condition():
                return found
        time.sleep(0.02)  # the processes that are asked have the same processors
    raise AssertionError(f"it did not come true in {seconds:.0f} s")
