"""The reading side: pages, details and the feed, always from the database, never from memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import psycopg

from landed.engines.port import Done
from landed.engines.postgres.exchange import LOST_STATEMENT, Call, Exchange
from landed.engines.postgres.page import (
    details_call,
    details_from,
    feed_call,
    feed_page_of,
    page_call,
    page_of,
)
from landed.engines.postgres.session import Sessions
from landed.errors import StorageError
from landed.facts import Note
from landed.limits import Limits
from landed.log import Answer, FeedPage, FeedRead, GetDetails, Read, Unknown
from landed.postgres.faults import Kind, Phase, explain, storage_error

Asked = Read | GetDetails | FeedRead


class _Waiter(NamedTuple):
    """A feed read that waits for an entry."""

    read: FeedRead
    done: Done
    timer: asyncio.TimerHandle


class Readers:
    """Answer reads with what is committed. Reads of one loop turn share threads and round trips."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        limits: Limits,
        note: Note,
        settled: Callable[[], None],
        told: Callable[[int], None],
    ) -> None:
        """``settled`` is called when reads were answered, ``told`` with each position shown."""
        self._sessions = sessions
        self._limits = limits
        self._note = note
        self._settled = settled
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(limits.readers_max, "landed-read")
        # Taking from and giving back to a deque are single steps, so that threads share it.
        self._idle: deque[Exchange] = deque()
        self._busy: set[Exchange] = set()
        self._turn: list[tuple[Asked, Done]] = []
        self._running = 0
        self._waiters: dict[int, _Waiter] = {}
        self._waiter_id = 0
        self._poll: asyncio.TimerHandle | None = None
        self._is_ending = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way; waiting feed reads do not count."""
        return not (self._turn or self._running)

    def submit(self, asked: Asked, done: Done) -> None:
        """Take a read; it sees every change that was answered before."""
        if isinstance(asked, FeedRead):
            asked = asked._replace(limit=max(asked.limit, 1))
            wait_s = min(asked.wait_ms / 1000, self._limits.feed_wait_max_s)
            if wait_s > 0 and not self._is_ending:
                done = partial(self._fed, asked, done, self._loop.time() + wait_s)
        self._ask(asked, done)

    def published(self) -> None:
        """Something new is committed: look for those who wait."""
        if self._waiters:
            self._look()

    def end_waiting(self) -> None:
        """Answer every waiting feed read with what there is: nothing."""
        self._is_ending = True
        if self._poll is not None:
            self._poll.cancel()
        for waiter_id in list(self._waiters):
            self._expire(waiter_id)

    def hang_up(self) -> None:
        """Let no read wait any longer: the server may be frozen."""
        self._is_ending = True
        for exchange in list(self._busy):
            exchange.hang_up()

    def shut_down(self) -> None:
        """Close the threads and the connections."""
        self._executor.shutdown(wait=True)
        self._close_idle()

    # --- one turn

    def _ask(self, asked: Asked, done: Done) -> None:
        if not self._turn:
            self._loop.call_soon(self._begin_turn)
        self._turn.append((asked, done))

    def _begin_turn(self) -> None:
        turn, self._turn = self._turn, []
        share = -(-len(turn) // self._limits.readers_max)
        for at in range(0, len(turn), share):
            part = turn[at : at + share]
            self._running += 1
            future = self._loop.run_in_executor(
                self._executor, self._read, [asked for asked, _ in part]
            )
            future.add_done_callback(partial(self._finish, part))

    def _finish(self, part: list[tuple[Asked, Done]], future: asyncio.Future[list[Answer]]) -> None:
        self._running -= 1
        error = future.exception()
        answers: Sequence[Answer]
        if error is None:
            answers = future.result()
        else:
            answers = [Unknown(f"the log could not be read: {error}")] * len(part)
            self._note("lane.read_failed", {"error": repr(error), "reads": len(part)})
        for (_, done), answer in zip(part, answers, strict=True):
            if isinstance(answer, FeedPage) and answer.entries:
                self._told(answer.entries[-1].position)
            done(answer)
        self._settled()

    # --- on a thread

    def _read(self, asked: Sequence[Asked]) -> list[Answer]:
        """Ask for all of them in one round trip. A connection found dead is replaced once."""
        budget = self._limits.max_response_size
        calls = [_call(each, budget) for each in asked]
        for is_last in (False, True):
            exchange = self._borrow()
            self._busy.add(exchange)
            try:
                found = exchange.run(calls)
            except psycopg.Error as error:
                exchange.close()
                if isinstance(error, LOST_STATEMENT):
                    self._sessions.stop_preparing()
                elif is_last or explain(error, Phase.WORKING).kind is not Kind.NOT_SENT:
                    raise storage_error(error, Phase.WORKING, doing="reading") from error
                self._close_idle()
            else:
                self._idle.append(exchange)
                return [_answer(each, rows) for each, rows in zip(asked, found, strict=True)]
            finally:
                self._busy.discard(exchange)
        raise StorageError("reading: the pooler does not keep prepared statements")

    def _borrow(self) -> Exchange:
        try:
            return self._idle.pop()
        except IndexError:
            return Exchange(self._sessions.open_reader(), prepares=self._sessions.prepares)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # --- waiting for the feed

    def _fed(self, read: FeedRead, done: Done, until: float, answer: Answer) -> None:
        """Pass an answer on, or wait on where it holds nothing new and there is time."""
        left = until - self._loop.time()
        if self._is_ending or not _is_nothing(read, answer) or left <= 0:
            done(answer)
            return
        self._waiter_id += 1
        timer = self._loop.call_later(left, self._expire, self._waiter_id)
        self._waiters[self._waiter_id] = _Waiter(read, done, timer)
        if self._poll is None:
            self._poll = self._loop.call_later(self._limits.feed_poll_s, self._look)

    def _look(self) -> None:
        """Ask once for everybody who waits at the same place."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        together: dict[FeedRead, list[_Waiter]] = {}
        for waiter in self._waiters.values():
            waiter.timer.cancel()
            together.setdefault(waiter.read, []).append(waiter)
        self._waiters.clear()
        for read, waiters in together.items():
            self._ask(read, partial(self._looked, waiters))

    def _looked(self, waiters: Sequence[_Waiter], answer: Answer) -> None:
        for read, done, timer in waiters:
            self._fed(read, done, timer.when(), answer)

    def _expire(self, waiter_id: int) -> None:
        read, done, timer = self._waiters.pop(waiter_id)
        timer.cancel()
        done(FeedPage((), read.after, True))


def _call(asked: Asked, budget: int) -> Call:
    if isinstance(asked, Read):
        return page_call(asked, budget)
    if isinstance(asked, GetDetails):
        return details_call(asked.key)
    return feed_call(asked, budget)


def _answer(asked: Asked, rows: Sequence[Sequence[Any]]) -> Answer:
    try:
        if isinstance(asked, Read):
            return page_of(asked, rows)
        if isinstance(asked, GetDetails):
            return details_from(asked.key, rows)
        return feed_page_of(asked, rows)
    except StorageError as error:
        return Unknown(f"the log could not be read: {error}")


def _is_nothing(read: FeedRead, answer: Answer) -> bool:
    return isinstance(answer, FeedPage) and not answer.entries and answer.next_after == read.after
