"""The reading side of a lane: pages, details and the feed, of durable state only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from landed.engines.loader import Damaged, Loader
from landed.engines.port import Done, Store
from landed.engines.tail import AcceptedTail, Cold
from landed.errors import StorageError
from landed.facts import Note
from landed.limits import Limits
from landed.log import (
    AggregateMissing,
    Answer,
    BelowFloor,
    FeedPage,
    FeedRead,
    GetDetails,
    Head,
    Life,
    Page,
    Read,
    Unknown,
)
from landed.log.read import details_of


class _PageRead(NamedTuple):
    """A read that needs the store, with the head it was decided on."""

    read: Read
    head: Head
    reclaims: int
    done: Done


class _Waiter(NamedTuple):
    """A feed read that waits for an entry, and its timer."""

    read: FeedRead
    done: Done
    timer: asyncio.TimerHandle


class ReadSide:
    """Answer reads from the visible heads, and from the store where events are needed."""

    __slots__ = (
        "_cold",
        "_executor",
        "_limits",
        "_loader",
        "_loop",
        "_note",
        "_reclaims",
        "_running",
        "_settled",
        "_store",
        "_tail",
        "_turn",
        "_waiter_id",
        "_waiters",
        "position",
    )

    def __init__(
        self,
        store: Store,
        tail: AcceptedTail,
        loader: Loader,
        executor: Executor,
        *,
        limits: Limits,
        note: Note,
        settled: Callable[[], None],
        position: int,
    ) -> None:
        """``settled`` is called whenever reads that were on their way have been answered."""
        self._store = store
        self._tail = tail
        self._loader = loader
        self._executor = executor
        self._limits = limits
        self._note = note
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._cold: list[tuple[Read | GetDetails, Done]] = []
        self._turn: list[_PageRead] = []
        self._waiters: dict[int, _Waiter] = {}
        self._waiter_id = 0
        self._running = 0
        self._reclaims = 0
        self.position = position
        """The newest feed position that is durable and visible."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way; waiting feed reads do not count."""
        return not (self._cold or self._turn or self._running)

    def submit(self, request: Read | GetDetails | FeedRead, done: Done) -> None:
        """Take a read; it sees every change that was answered before."""
        if isinstance(request, FeedRead):
            self._feed(request, done)
            return
        try:
            answer = self._decide(request, done)
        except Cold:
            self._cold.append((request, done))
            self._loader.want((request.key,), ())
            return
        if answer is not None:
            done(answer)

    def _decide(self, request: Read | GetDetails, done: Done) -> Answer | None:
        """Answer from the visible head alone; None if events must be fetched. Raises Cold."""
        head = self._tail.visible(request.key)
        if isinstance(request, GetDetails):
            return details_of(request.key, head)
        if head.life is not Life.LIVE:
            return AggregateMissing(request.key)
        filters = request.filters
        if filters.from_version < head.floor:
            return BelowFloor(filters.from_version, head.floor)
        end = head.version if filters.to_version is None else filters.to_version
        if filters.from_version > min(end, head.version):
            return Page((), None)
        if not self._turn:
            self._loop.call_soon(self._begin_turn)
        self._turn.append(_PageRead(request, head, self._reclaims, done))
        return None

    def loaded(self, error: BaseException | None, damaged: Damaged) -> None:
        """Go on with the reads that waited for a lookup."""
        cold, self._cold = self._cold, []
        for request, done in cold:
            failure = error or damaged.get(request.key)
            if failure is None:
                self.submit(request, done)
            else:
                done(Unknown(f"the store could not be read: {failure}"))

    # --- pages

    def reclaiming(self) -> None:
        """Dead batches are about to be dropped: reads under way must look again afterwards."""
        self._reclaims += 1

    def _begin_turn(self) -> None:
        """Share this turn's reads between the reading threads: a hop each, not a hop a read."""
        turn, self._turn = self._turn, []
        share = -(-len(turn) // self._limits.readers_max)
        for at in range(0, len(turn), share):
            part = turn[at : at + share]
            self._running += 1
            future = self._loop.run_in_executor(self._executor, self._read_part, part)
            future.add_done_callback(partial(self._finish_part, part))

    def _read_part(self, part: list[_PageRead]) -> list[Answer]:
        budget = self._limits.max_response_size
        answers: list[Answer] = []
        for read, head, _, _ in part:
            try:
                answers.append(self._store.read(read, head, budget))
            except StorageError as error:
                answers.append(Unknown(f"the store could not be read: {error}"))
        return answers

    def _finish_part(self, part: list[_PageRead], future: asyncio.Future[list[Answer]]) -> None:
        self._running -= 1
        error = future.exception()
        if error is not None:
            self._note("lane.read_failed", {"error": repr(error), "reads": len(part)})
            for _, _, _, done in part:
                done(Unknown(f"the store could not be read: {error!r}"))
            self._settled()
            return
        for (read, head, reclaims, done), answer in zip(part, future.result(), strict=True):
            if reclaims != self._reclaims and self._is_outdated(read, head):
                self.submit(read, done)
                continue
            if isinstance(answer, Unknown):
                self._note("lane.read_failed", {"error": answer.detail, "reads": 1})
            done(answer)
        self._settled()

    def _is_outdated(self, read: Read, head: Head) -> bool:
        """Whether a trim or delete came in between: what was read may be half reclaimed."""
        try:
            now = self._tail.visible(read.key)
        except Cold:
            return True
        return (
            now.life is not Life.LIVE
            or now.incarnation != head.incarnation
            or now.floor > read.filters.from_version
        )

    # --- the feed

    def _feed(self, read: FeedRead, done: Done) -> None:
        if read.after < self.position:
            self._fetch(read, [done])
        elif read.wait_ms > 0:
            wait_s = min(read.wait_ms / 1000, self._limits.feed_wait_max_s)
            self._waiter_id += 1
            timer = self._loop.call_later(wait_s, self._expire, self._waiter_id)
            self._waiters[self._waiter_id] = _Waiter(read, done, timer)
        else:
            done(FeedPage((), read.after, True))

    def _expire(self, waiter_id: int) -> None:
        waiter = self._waiters.pop(waiter_id)
        waiter.timer.cancel()
        waiter.done(FeedPage((), waiter.read.after, True))

    def published(self, position: int) -> None:
        """Everything up to a position is visible now; serve the feed reads that waited for it."""
        self.position = position
        together: dict[FeedRead, list[Done]] = {}
        for waiter_id, waiter in list(self._waiters.items()):
            if waiter.read.after < position:
                del self._waiters[waiter_id]
                waiter.timer.cancel()
                together.setdefault(waiter.read, []).append(waiter.done)
        for read, dones in together.items():
            self._fetch(read, dones)

    def end_waiting(self) -> None:
        """Answer every waiting feed read with what there is: nothing."""
        for waiter_id in list(self._waiters):
            self._expire(waiter_id)

    def _fetch(self, read: FeedRead, dones: list[Done]) -> None:
        self._running += 1
        visible = self.position
        bounded = read._replace(limit=max(read.limit, 1))
        future = self._loop.run_in_executor(
            self._executor, self._store.feed, bounded, self._limits.max_response_size
        )
        future.add_done_callback(partial(self._finish_fetch, read, dones, visible))

    def _finish_fetch(
        self, read: FeedRead, dones: list[Done], visible: int, future: asyncio.Future[FeedPage]
    ) -> None:
        self._running -= 1
        error = future.exception()
        answer: Answer
        if error is None:
            answer = self._up_to(visible, read, future.result())
        else:
            self._note("lane.read_failed", {"error": repr(error), "reads": len(dones)})
            answer = Unknown(f"the store could not be read: {error}")
        for done in dones:
            done(answer)
        self._settled()

    def _up_to(self, visible: int, read: FeedRead, page: FeedPage) -> FeedPage:
        """Cut what was not visible yet when the page was asked for.

        A reader told of it before it is published could not read it. And a store knows the heads of
        what is published, while beside a commit that has just ended it may see a batch and not yet
        the life that it began, and so take it for one of a life that is over.
        """
        if page.next_after <= visible:
            return page._replace(is_at_end=page.is_at_end and page.next_after >= self.position)
        entries = tuple(entry for entry in page.entries if entry.position <= visible)
        next_after = max(visible, read.after)
        return FeedPage(entries, next_after, next_after >= self.position)
