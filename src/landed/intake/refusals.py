"""Counts of what was refused, gathered in memory and written now and then (rule AU-7).

A flood of refusals costs memory for one number per producer and reason, and one transaction a second.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine

from landed.errors import LandedError
from landed.facts import Note
from landed.records import rejections
from landed.records.session import Books, transact

REASONS_MAX: Final = 256
"""Pairs of producer and reason in memory; both are declared or fixed words."""


class _Key(NamedTuple):
    namespace: str
    reason: str


class Refusals:
    """Counts refusals. Safe to use from several threads."""

    def __init__(self, engine: Engine, books: Books, *, note: Note) -> None:
        self._engine = engine
        self._books = books
        self._note = note
        self._lock = threading.Lock()
        self._counts: dict[_Key, tuple[int, str]] = {}

    def count(self, namespace: str | None, reason: str, detail: str) -> None:
        """Count one. ``detail`` is ours, never text of the delivery."""
        key = _Key(namespace or rejections.UNVERIFIED, reason)
        with self._lock:
            if key in self._counts or len(self._counts) < REASONS_MAX:
                times, sample = self._counts.get(key, (0, detail))
                self._counts[key] = (times + 1, sample)
        self._note("intake.refused", {"namespace": key.namespace, "reason": reason})

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def write(self) -> None:
        """Write down what was counted; what cannot be written now stays counted."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return

        def _work(conn: Connection) -> None:
            for key, (times, sample) in sorted(counts.items()):
                rejections.count(
                    conn,
                    self._books,
                    namespace=key.namespace,
                    reason=key.reason,
                    sample=sample,
                    times=times,
                )

        try:
            transact(self._engine, _work, is_durable=False)
        except LandedError:
            with self._lock:
                for key, (times, sample) in counts.items():
                    more, _ = self._counts.get(key, (0, sample))
                    self._counts[key] = (times + more, sample)
