"""``Queue`` and ``AsyncQueue``: what an application holds. The same queue, waited for or awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from landed.client.log import Log, for_decisions
from landed.clock import Clock, SystemClock
from landed.facts import Note, forget
from landed.ids import AggregateKey, ClientId
from landed.offline.drain import Drain, DrainPolicy, Synced
from landed.offline.entry import Entry, QueueLimits, Saved, Status
from landed.offline.recovery import Recovered
from landed.offline.saving import Saving
from landed.offline.store import Store

T = TypeVar("T")


class AsyncQueue:
    """A device's queue for asyncio. Its file is touched on one thread of its own.

    Several tasks may save and sync at once: saves follow one another, and a second sync waits for
    the first and then finds nothing left (case BC-18).
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: DrainPolicy | None = None,
        rng: Random | None = None,
        note: Note = forget,
    ) -> None:
        """Take over an open store. ``open`` makes one from a path."""
        self._store = store
        self._policy = policy or DrainPolicy()
        self._rng = rng or Random()  # noqa: S311  # jitter, no secret
        self._note = note
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="landed-queue")
        self._is_closed = False
        self._one_drain = asyncio.Lock()
        self._connected = asyncio.Event()
        self._has_news = asyncio.Event()

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        client_id: UUID | None = None,
        limits: QueueLimits | None = None,
        policy: DrainPolicy | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        note: Note = forget,
    ) -> AsyncQueue:
        """Open or make the store at a path, and own it until ``close``.

        ``client_id`` is the device's identity; None: the store's own, made when the file is.

        Raises:
            StorageInUseError: a living process owns it.
            StorageForeignError: the file is something else.
            ConfigurationError: it cannot be made there, or belongs to another client id.
        """
        clock = clock or SystemClock()
        store = await asyncio.get_running_loop().run_in_executor(
            None, lambda: Store.open(path, clock=clock, limits=limits, client_id=client_id)
        )
        return cls(store, policy=policy, rng=rng, note=note)

    @property
    def client_id(self) -> ClientId:
        """The device's identity, for good."""
        return self._store.client_id

    async def enqueue(
        self, key: AggregateKey, type_major: int, value: bytes, **options: Any
    ) -> Saved:
        """Save one event. See ``Queue.enqueue``."""
        return await self.save(lambda saving: saving.enqueue(key, type_major, value, **options))

    async def save(self, work: Callable[[Saving], T]) -> T:
        """Run one transaction of the application. See ``Queue.save``."""
        result = await self._do(lambda: self._store.save(work))
        self._has_news.set()
        return result

    async def sync(self, log: Log, *, timeout_s: float | None = None) -> Synced:
        """Send until nothing is left that may be sent, or the time is up.

        Stopping it at any moment loses nothing and doubles nothing. Without a ``timeout_s`` it waits
        for the network as long as it takes.

        Raises:
            SequenceRegressedError: the store was restored or copied. Nothing is sent; ``recover``.
            DrainFaultError: a bug, here or in the log. Nothing was marked.
            PoolClosedError: the log was closed.
        """
        timeout = asyncio.timeout(timeout_s)
        drain = self._drain(log)
        try:
            async with timeout, self._one_drain:
                await drain.run()
        except TimeoutError:
            if not timeout.expired():
                raise
        status = await self.status()
        return Synced(
            landed=drain.landed,
            left=status.queued,
            blocked=status.blocked,
            is_in_time=not timeout.expired(),
            last_trouble=drain.trouble,
        )

    async def keep_syncing(self, log: Log) -> None:
        """Sync, and again whenever something is saved, until cancelled. Raises what ``sync`` does."""
        while True:
            self._has_news.clear()
            await self.sync(log)
            await self._has_news.wait()

    def connected(self) -> None:
        """Tell the loop that there is a network again: it stops pausing and tries at once."""
        self._connected.set()
        self._has_news.set()

    async def recover(self, log: Log) -> Recovered:
        """After a SequenceRegressedError: look what the log holds, and put the store right.

        Events that the log holds are marked. Those whose numbers are another's get new ones, above
        everything seen; show that to the user. Where nobody can tell, the aggregate is blocked.
        A copy that is still in use elsewhere will make it happen again.

        Raises:
            LandedError: a read failed; nothing was changed.
        """
        async with self._one_drain:
            return await self._drain(log).recover()

    async def pending(
        self, key: AggregateKey | None = None
    ) -> tuple[tuple[AggregateKey, Entry], ...]:
        """Queued events in their order, to be shown on top of the log's own (rule SW-112)."""
        return await self._do(lambda: self._store.pending(key))

    async def status(self) -> Status:
        """The store at a glance."""
        return await self._do(self._store.status)

    async def abandon(self, client_seq: int, reason: str) -> None:
        """Give a queued event up, durably. See ``Queue.abandon``."""
        await self._do(lambda: self._store.abandon(client_seq, reason))
        self._has_news.set()

    async def unblock(self, key: AggregateKey) -> bool:
        """Try a blocked aggregate again. False: it was not blocked."""
        is_free = await self._do(lambda: self._store.unblock(key))
        self._has_news.set()
        return is_free

    async def prune(self) -> int:
        """Forget synced events; returns how many."""
        return await self._do(self._store.prune)

    async def close(self) -> None:
        """Let go of the file. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            await self._do(self._store.close)
            self.let_go()

    def let_go(self) -> None:
        """End the thread and leave the store open, for whoever owns it."""
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _do(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _drain(self, log: Log) -> Drain:
        return Drain(
            self._store,
            for_decisions(log),
            in_thread=self._do,
            policy=self._policy,
            rng=self._rng,
            note=self._note,
            connected=self._connected,
        )


class Queue:
    """A device's queue without asyncio. Usable from several threads.

    ``sync`` runs an event loop of its own for as long as it takes.
    """

    def __init__(
        self, store: Store, *, policy: DrainPolicy | None = None, note: Note = forget
    ) -> None:
        """Take over an open store. ``open`` makes one from a path."""
        self._store = store
        self._policy = policy
        self._note = note
        self._one_drain = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        client_id: UUID | None = None,
        limits: QueueLimits | None = None,
        policy: DrainPolicy | None = None,
        clock: Clock | None = None,
        note: Note = forget,
    ) -> Queue:
        """Open or make the store at a path. See ``AsyncQueue.open``."""
        store = Store.open(path, clock=clock or SystemClock(), limits=limits, client_id=client_id)
        return cls(store, policy=policy, note=note)

    @property
    def client_id(self) -> ClientId:
        """The device's identity, for good."""
        return self._store.client_id

    def enqueue(self, key: AggregateKey, type_major: int, value: bytes, **options: Any) -> Saved:
        """Save one event with its number. It is on the disk when this returns: say "saved".

        Options are ``event_id`` (made if not given; the same one again changes nothing),
        ``type_minor``, ``event_ms`` (now, by this device, if not given) and ``iv``.

        Raises:
            QueueFullError: at the limit, or the disk is full. Nothing was saved; sync first.
            EventIdReusedError: the event id is queued with other content.
            RequestTooLargeError, MalformedWriteError: no log would take it. Nothing was saved.
            StorageError: the file failed.
        """
        return self.save(lambda saving: saving.enqueue(key, type_major, value, **options))

    def save(self, work: Callable[[Saving], T]) -> T:
        """Run one transaction: several events, and changes to tables of your own, or nothing.

        ``work`` is a plain function; whatever it raises undoes all of it.

        Raises:
            QueueFullError, StorageError: as ``enqueue``.
        """
        return self._store.save(work)

    def sync(
        self, open_log: Callable[[], Awaitable[Log]], *, timeout_s: float | None = None
    ) -> Synced:
        """Open a log, send what may be sent, close it. See ``AsyncQueue.sync``.

        Example: ``queue.sync(lambda: landed.connect("landed://log.example:10000"), timeout_s=60)``
        """

        async def run(queue: AsyncQueue, log: Log) -> Synced:
            return await queue.sync(log, timeout_s=timeout_s)

        return self._with_log(open_log, run)

    def recover(self, open_log: Callable[[], Awaitable[Log]]) -> Recovered:
        """After a SequenceRegressedError. See ``AsyncQueue.recover``."""

        async def run(queue: AsyncQueue, log: Log) -> Recovered:
            return await queue.recover(log)

        return self._with_log(open_log, run)

    def _with_log(
        self,
        open_log: Callable[[], Awaitable[Log]],
        run: Callable[[AsyncQueue, Log], Awaitable[T]],
    ) -> T:
        async def opened() -> T:
            queue = AsyncQueue(self._store, policy=self._policy, note=self._note)
            try:
                async with await open_log() as log:
                    return await run(queue, log)
            finally:
                queue.let_go()

        with self._one_drain:
            return asyncio.run(opened())

    def pending(self, key: AggregateKey | None = None) -> tuple[tuple[AggregateKey, Entry], ...]:
        """Queued events in their order, to be shown on top of the log's own (rule SW-112)."""
        return self._store.pending(key)

    def status(self) -> Status:
        """The store at a glance."""
        return self._store.status()

    def abandon(self, client_seq: int, reason: str) -> None:
        """Give a queued event up, durably. It keeps its number; what is behind it goes on.

        Raises:
            QueueError: no queued event has the number.
        """
        self._store.abandon(client_seq, reason)

    def unblock(self, key: AggregateKey) -> bool:
        """Try a blocked aggregate again. False: it was not blocked."""
        return self._store.unblock(key)

    def prune(self) -> int:
        """Forget synced events; returns how many. Counter and identity stay."""
        return self._store.prune()

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
