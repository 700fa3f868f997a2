"""Cold lookups: everything one loop turn misses, looked up in one hop, one hop at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor

from landed.engines.port import Store, Stored
from landed.engines.tail import AcceptedTail
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId

Damaged = Mapping[AggregateKey, StorageDamagedError]
"""Aggregates that cannot be looked up, and why."""
_KeyAndClient = tuple[AggregateKey, ClientId]


class Loader:
    """Bring heads and marks from the store into the tail.

    One lookup at a time: what it finds can then not be older than what was published before it
    began, and shared first touches of one pair share one lookup (log rule I17).
    """

    __slots__ = (
        "_busy_keys",
        "_busy_pairs",
        "_executor",
        "_is_busy",
        "_keys",
        "_loaded",
        "_loop",
        "_pairs",
        "_store",
        "_tail",
    )

    def __init__(
        self,
        store: Store,
        tail: AcceptedTail,
        executor: Executor,
        loaded: Callable[[BaseException | None, Damaged], None],
    ) -> None:
        """``loaded`` is called after each lookup, with what went wrong or None, and what is damaged."""
        self._store = store
        self._tail = tail
        self._executor = executor
        self._loaded = loaded
        self._loop = asyncio.get_running_loop()
        # Dictionaries as ordered sets: the order of lookups must not depend on hashes.
        self._keys: dict[AggregateKey, None] = {}
        self._pairs: dict[_KeyAndClient, None] = {}
        self._busy_keys: dict[AggregateKey, None] = {}
        self._busy_pairs: dict[_KeyAndClient, None] = {}
        self._is_busy = False

    def want(self, keys: Iterable[AggregateKey], pairs: Iterable[_KeyAndClient]) -> None:
        """Look these up soon: with the rest of this loop turn, or after the lookup under way.

        What is being looked up already is not looked up again: it could be found, changed and
        evicted while the second lookup runs, which would then bring back the past.
        """
        self._keys.update((key, None) for key in keys if key not in self._busy_keys)
        self._pairs.update((pair, None) for pair in pairs if pair not in self._busy_pairs)
        if not self._is_busy and (self._keys or self._pairs):
            self._is_busy = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._busy_keys, self._keys = self._keys, {}
        self._busy_pairs, self._pairs = self._pairs, {}
        self._tail.expect()
        future = self._loop.run_in_executor(
            self._executor, self._look, list(self._busy_keys), list(self._busy_pairs)
        )
        future.add_done_callback(self._finish)

    def _look(self, keys: list[AggregateKey], pairs: list[_KeyAndClient]) -> tuple[Stored, Damaged]:
        """Look all of it up; where something is damaged, each aggregate by itself."""
        try:
            return self._store.load(keys, pairs), {}
        except StorageDamagedError:
            pass  # it is found again below, and then it is known whose it is
        found, damaged = Stored({}, {}), {}
        for key in dict.fromkeys([*keys, *(key for key, _ in pairs)]):
            own = [pair for pair in pairs if pair[0] == key]
            try:
                part = self._store.load([key] if key in keys else [], own)
            except StorageDamagedError as error:
                damaged[key] = error
            else:
                found = Stored({**found.heads, **part.heads}, {**found.marks, **part.marks})
        return found, damaged

    def _finish(self, future: asyncio.Future[tuple[Stored, Damaged]]) -> None:
        keys, self._busy_keys = self._busy_keys, {}
        pairs, self._busy_pairs = self._busy_pairs, {}
        error = future.exception()
        damaged: Damaged = {}
        if error is None:
            stored, damaged = future.result()
            self._tail.learn(
                [key for key in keys if key not in damaged],
                [pair for pair in pairs if pair[0] not in damaged],
                stored,
            )
        else:
            self._tail.give_up()
        self._is_busy = False
        self.want((), ())
        self._loaded(error, damaged)
