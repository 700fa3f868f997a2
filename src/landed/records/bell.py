"""Tells the workers of this process that something was committed, so that nobody waits for a look.

A lost ring costs latency and nothing else (rule OB-11): every worker also looks by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Ring = Callable[[], None]
"""Say that there may be work. From any thread; does not wait, and does not fail."""


def silent() -> None:
    """A bell that nobody hears."""


class Bell:
    """One ledger's in one process. Its workers may run on other event loops than who rings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hearing: tuple[tuple[asyncio.AbstractEventLoop, Ring], ...] = ()

    @contextmanager
    def heard(self, wake: Ring) -> Iterator[None]:
        """Have ``wake`` called on this event loop at every ring within the block."""
        mine = (asyncio.get_running_loop(), wake)
        with self._lock:
            self._hearing = (*self._hearing, mine)
        try:
            yield
        finally:
            with self._lock:
                self._hearing = tuple(one for one in self._hearing if one is not mine)

    def ring(self) -> None:
        """There may be work. To be called after the commit: who looks before it finds nothing."""
        for loop, wake in self._hearing:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:  # that loop was closed with its worker still on it
                continue
