"""The log in PostgreSQL: an engine that many processes run on one database at once.

This is the side of the event loop: changes queue in the order of arrival, one group at a time is on
its way on the committing thread, and answers come back in order. What the law needs to know is read
under locks, inside the group's transaction (commit.py); nothing is trusted from memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from landed.clock import Clock
from landed.engines.arrivals import Arrival, Arrivals
from landed.engines.flush import FlushGate
from landed.engines.group import size_of_change
from landed.engines.port import Done, LogIdentity
from landed.engines.postgres.commit import Committer, Settled
from landed.engines.postgres.judging import Fate, Judged, Verdict
from landed.engines.postgres.reading import Readers
from landed.engines.postgres.reclaim import reclaim
from landed.engines.postgres.schema import LEGS_MAX
from landed.engines.postgres.session import Sessions
from landed.engines.tail import AcceptedTail, Cold
from landed.errors import ConfigurationError, StorageError
from landed.facts import Note
from landed.limits import Limits
from landed.log import (
    Busy,
    Delete,
    Misrouted,
    Mutation,
    Refusal,
    Request,
    SequenceInFlight,
    Trim,
    Unknown,
    Write,
)
from landed.log.judge import judge_write
from landed.log.route import ROUTING_RULES, misrouted

_SLOW_S: Final = 0.05
"""A commit that takes longer may take for ever: then nobody waits who can be answered."""


class PostgresEngine:
    """An engine on one PostgreSQL database. See ``engines.port.Engine``.

    It never stops for good: after a lost connection the next group opens another one, and begins by
    reading what is true. A commit whose answer was lost is unknown to those who asked for it.
    """

    def __init__(self, sessions: Sessions, *, limits: Limits, clock: Clock, note: Note) -> None:
        """Nothing is opened yet: ``await open()`` first."""
        if limits.routing_rule not in ROUTING_RULES or limits.num_shards < 1:
            raise ConfigurationError(
                f"{limits.num_shards} shards by {limits.routing_rule!r}: a log has 1 or more, "
                f"by one of: {', '.join(ROUTING_RULES)}"
            )
        self._sessions = sessions
        self._limits = limits
        self._clock = clock
        self._note = note
        self.gate = FlushGate(os.environ)
        """For tests: hold, slow or fail a commit."""
        self._writer = ThreadPoolExecutor(1, "landed-commit")
        self._arrivals = Arrivals(limits)
        self._running: list[Arrival] = []
        self._tail: AcceptedTail | None = None
        """Of the group under way, once it is judged."""
        self._is_running = False
        self._is_slow = False
        self._is_stuck = False
        self._position = 0
        self._reclaiming: asyncio.Future[int] | None = None
        self._reclaim_timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect, make or migrate the tables, and take up where the log ends.

        Raises:
            ConfigurationError: the server is too old, read-only, or may lose acknowledged writes.
            StorageForeignError: the tables are a newer version's, or placed by other shards.
            StorageError: no connection, a right is missing, or the database failed.
        """
        self._loop = asyncio.get_running_loop()
        self._readers = Readers(
            self._sessions,
            limits=self._limits,
            note=self._note,
            settled=self._check_drained,
            told=self._show,
        )
        self._committer = Committer(
            self._sessions,
            limits=self._limits,
            clock=self._clock,
            gate=self.gate,
            note=self._note,
        )
        try:
            self._position = await self._loop.run_in_executor(self._writer, self._committer.open)
        except BaseException:
            self._readers.shut_down()
            self._writer.shutdown(wait=True)
            raise
        self._expect_dead()

    @property
    def identity(self) -> LogIdentity:
        """Which log this is."""
        assert self._committer.identity is not None, "open it first"
        return self._committer.identity

    @property
    def position(self) -> int:
        """The newest feed position that this process committed or was shown; 0 of an empty log."""
        return self._position

    @property
    def is_stopped(self) -> bool:
        """Never: what is true is in the database, and every group begins by reading it."""
        return False

    def submit(self, request: Request, done: Done, /) -> None:
        """Take a request; call ``done`` exactly once with its answer. See ``Engine.submit``."""
        if self._closed is not None:
            done(Busy())
        elif isinstance(request, (Write, Trim, Delete)):
            refusal = self._refusal(request)
            if refusal is not None:
                done(refusal)
                return
            self._arrivals.wait(Arrival(request, done, is_again=False))
            self._wake()
        else:
            self._readers.submit(request, done)

    async def close(self) -> None:
        """Finish what was submitted, then let go of the connections. Idempotent.

        A commit that is still not through after ``shutdown_grace_s``, for want of a standby perhaps,
        is left to the server: nobody cancels it, and whoever waits for it is told that its outcome
        is unknown.
        """
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = self._loop.create_future()
        self._readers.end_waiting()
        if self._reclaim_timer is not None:
            self._reclaim_timer.cancel()
        self.gate.release()
        if not self._is_idle():
            self._drained = self._loop.create_future()
            leaving = self._loop.call_later(self._limits.shutdown_grace_s, self._leave)
            await self._drained
            leaving.cancel()
        try:
            await self._loop.run_in_executor(self._writer, self._committer.close)
        finally:
            self._writer.shutdown(wait=True)
            self._readers.shut_down()
            self._closed.set_result(None)

    async def reclaim(self) -> int:
        """Free the space of dead batches, a bounded slice; returns how many it dropped (C13)."""
        while self._reclaiming is not None:
            await asyncio.wait([self._reclaiming])
        return await asyncio.shield(self._begin_reclaim())

    # --- taking changes

    def _refusal(self, change: Mutation) -> Refusal | None:
        """Say why a change is not taken; None if it is."""
        if not isinstance(change, Trim) and len(change.legs) != 1:
            refusal = misrouted(change, self._limits)
            if refusal is not None:
                return refusal
            if len(change.legs) > LEGS_MAX:
                text = f"a request names at most {LEGS_MAX} aggregates"
                return Misrouted(False, self._limits.num_shards, text)
        if self._is_stuck or self._arrivals.is_full():
            return Busy()
        return self._in_flight(change) if self._is_slow else None

    def _in_flight(self, change: Mutation) -> SequenceInFlight | None:
        """Say whether a change repeats a sequence of the very group that is being committed."""
        if self._tail is None or not isinstance(change, Write):
            return None
        try:
            result = judge_write(change, self._tail, now_ms=0, seq_jump_max=0)
        except Cold:
            return None
        return result if isinstance(result, SequenceInFlight) else None

    def _wake(self) -> None:
        """Begin a group at the end of this loop turn.

        What arrives together shares a commit, and a lone write waits for nobody (log rule C4).
        """
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._begin)

    # --- one group

    def _begin(self) -> None:
        group = self._running = self._take()
        if not group:
            self._is_running = False
            self._check_drained()
            return
        self._slow_timer = self._loop.call_later(_SLOW_S, self._get_slow)
        future = self._loop.run_in_executor(self._writer, self._run, group)
        future.add_done_callback(self._ran)

    def _take(self) -> list[Arrival]:
        """Take out the next group, in order, bounded in number, bytes and legs."""
        arrivals, limits = self._arrivals, self._limits
        group: list[Arrival] = []
        size = legs = 0
        while arrivals.waiting and len(group) < limits.group_writes_max:
            change = arrivals.waiting[0].change
            more = 1 if isinstance(change, Trim) else len(change.legs)
            if group and (size >= limits.group_bytes_max or legs + more > LEGS_MAX):
                break
            size += size_of_change(change)
            legs += more
            group.append(arrivals.take())
        # Until it has settled, it counts as queued.
        arrivals.count += len(group)
        arrivals.bytes += size
        self._running_bytes = size
        return group

    def _run(self, group: list[Arrival]) -> tuple[Judged, Settled | None]:
        """On the committing thread: both halves, unless a test stands in between."""
        judged = self._committer.judge(group)
        if not judged.group.staged:
            return judged, Settled(None, 0)
        self._loop.call_soon_threadsafe(self._judged, judged)
        if not self.gate.is_open:
            return judged, None
        return judged, self._committer.commit(judged)

    def _judged(self, judged: Judged) -> None:
        """Answer what does not depend on the commit."""
        self._tail = judged.tail
        self._answer(v for v in judged.verdicts if v.fate is Fate.REFUSED)

    def _ran(self, future: asyncio.Future[tuple[Judged, Settled | None]]) -> None:
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        judged, settled = future.result()
        if settled is None:
            self.gate.enter(self._loop, lambda: self._commit(judged))
        else:
            self._settle(judged, settled)

    def _commit(self, judged: Judged) -> None:
        future = self._loop.run_in_executor(self._writer, self._committer.commit, judged)
        future.add_done_callback(lambda future: self._committed(judged, future))

    def _committed(self, judged: Judged, future: asyncio.Future[Settled]) -> None:
        error = future.exception()
        if error is None:
            self._settle(judged, future.result())
        else:
            self._settle(judged, Settled(StorageError(repr(error), is_outcome_known=False), 0))

    def _settle(self, judged: Judged, settled: Settled) -> None:
        """Answer a group that was judged: what was admitted landed, or did not, or nobody knows."""
        error = settled.error
        verdicts = judged.verdicts
        if error is None:
            if judged.group.staged:
                verdicts = [v for v in verdicts if v.fate is not Fate.REFUSED]
                self._note_committed(judged)
                self._show(settled.position)
            self._end_group(len(verdicts))
            self._answer(iter(verdicts))
            self._readers.published()
            return
        self._note("lane.flush_failed", {"error": str(error), "changes": len(judged.group.staged)})
        answer = Busy() if error.is_outcome_known else Unknown(f"the commit failed: {error}")
        failed = [v._replace(answer=answer) for v in verdicts if v.fate is Fate.ADMITTED]
        # What leaned on it is judged again, before everybody who came later.
        again = [v.arrival for v in verdicts if v.fate is Fate.LEANING]
        self._put_back(again)
        self._end_group(0)
        self._answer(iter(failed))

    def _fail(self, error: BaseException) -> None:
        """Answer a group that was not even judged: nothing was sent that could be committed."""
        group = self._running
        self._note("lane.load_failed", {"error": str(error) or repr(error), "changes": len(group)})
        self._end_group(0)
        self._answer(iter([Verdict(arrival, Busy(), Fate.REFUSED) for arrival in group]))

    def _end_group(self, answered: int) -> None:
        """Be ready for the next group, and begin it if somebody waits."""
        self._arrivals.count -= len(self._running)
        self._arrivals.bytes -= self._running_bytes
        self._running = []
        self._tail = None
        self._is_slow = self._is_stuck = False
        self._slow_timer.cancel()
        if len(self._arrivals.waiting) >= max(answered, 1):
            self._begin()
        else:
            # Those answered now may join the next one.
            self._loop.call_soon(self._begin)

    def _get_slow(self) -> None:
        """Tell those behind a slow commit what need not wait for it (log rules I9, I20)."""
        self._is_slow = True
        self._slow_timer = self._loop.call_later(self._limits.commit_wait_s, self._get_stuck)
        told = []
        for arrival in self._arrivals.take_all():
            in_flight = self._in_flight(arrival.change)
            if in_flight is None:
                self._arrivals.wait(arrival)
            else:
                told.append(Verdict(arrival, in_flight, Fate.REFUSED))
        self._answer(told)

    def _put_back(self, arrivals: Iterable[Arrival]) -> None:
        waiting = self._arrivals.take_all()
        for arrival in [*arrivals, *waiting]:
            self._arrivals.wait(arrival)

    def _get_stuck(self) -> None:
        """The commit is not through in time: nobody waits behind it without a bound."""
        self._is_stuck = True
        waiting = self._arrivals.take_all()
        self._note("engine.commit_stuck", {"changes": len(self._running), "behind": len(waiting)})
        self._answer(iter([Verdict(arrival, Busy(), Fate.REFUSED) for arrival in waiting]))

    def _answer(self, verdicts: Iterable[Verdict]) -> None:
        """Answer in order. One ``done`` that raises must not keep the others from their answers."""
        left: Iterator[Verdict] = iter(verdicts)
        try:
            for verdict in left:
                verdict.arrival.done(verdict.answer)
        finally:
            if following := next(left, None):
                self._loop.call_soon(self._answer, [following, *left])

    def _note_committed(self, judged: Judged) -> None:
        group = judged.group
        self._note("lane.committed", {"changes": len(group.staged), "bytes": group.bytes})
        if any(staged.batch is None for staged in group.staged):
            self._expect_dead()

    def _show(self, position: int) -> None:
        self._position = max(self._position, position)

    # --- reclaiming

    def _expect_dead(self) -> None:
        """Something died, or may have before the last close: look after it in a while."""
        if self._reclaim_timer is None and self._closed is None:
            self._reclaim_timer = self._loop.call_later(
                self._limits.reclaim_after_s, self._begin_reclaim
            )

    def _begin_reclaim(self) -> asyncio.Future[int]:
        if self._reclaim_timer is not None:
            self._reclaim_timer.cancel()
            self._reclaim_timer = None
        self._reclaiming = self._loop.run_in_executor(
            self._writer, lambda: reclaim(self._committer.connect())
        )
        self._reclaiming.add_done_callback(self._reclaimed)
        return self._reclaiming

    def _reclaimed(self, future: asyncio.Future[int]) -> None:
        self._reclaiming = None
        error = future.exception()
        if error is not None:
            self._note("lane.reclaim_failed", {"error": repr(error)})
        elif future.result():
            self._note("lane.reclaimed", {"batches": future.result()})
            if self._closed is None:
                _ = self._begin_reclaim()
        self._check_drained()

    # --- the end

    def _is_idle(self) -> bool:
        return not self._is_running and self._readers.is_idle and self._reclaiming is None

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done() and self._is_idle():
            drained.set_result(None)

    def _leave(self) -> None:
        """Stop waiting for the server: hang up, which takes nothing back."""
        self._note("engine.left", {"changes": len(self._running)})
        self._get_stuck()
        self._committer.hang_up()
        self._readers.hang_up()
