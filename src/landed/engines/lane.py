"""The one lane in which every change of a log is judged, staged, flushed, published, answered.

The same for every store. Changes are judged when they are submitted, in the order of arrival,
against the accepted tail; one group of admitted changes at a time is on its way to the disk while
the next one forms. No step overtakes an earlier one (log rule C1).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from landed.clock import Clock, ServerTime, WallMs
from landed.engines.flush import FlushGate
from landed.engines.group import Group, size_of
from landed.engines.loader import Loader
from landed.engines.port import Done, LogIdentity, Staged, Store
from landed.engines.reads import ReadSide
from landed.engines.reclaim import Reclaimer
from landed.engines.tail import AcceptedTail, Cold
from landed.errors import ConfigurationError, StorageError
from landed.facts import Note, forget
from landed.limits import Limits
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    Answer,
    Busy,
    Delete,
    Deleted,
    Landed,
    Life,
    Mutation,
    Refusal,
    Request,
    Trim,
    TrimBeyondEnd,
    Trimmed,
    Unknown,
    Write,
)
from landed.log.judge import Admitted, judge_delete, judge_trim, judge_write
from landed.log.route import ROUTING_RULES, misrouted

_MAY_BE_WITHDRAWN: Final = (AggregateClosed, AggregateMissing, TrimBeyondEnd)
"""Refusals that could become untrue if what they rest on is rolled back. A version conflict is
answered at once all the same: the loser appended nothing either way (log rule W19)."""


class Lane:
    """An engine: one store behind the accepted tail and the group commit. See ``engines.port``.

    Memory is bounded by the cache and queue limits, not by the size of the log.
    """

    def __init__(self, store: Store, *, limits: Limits, clock: Clock, note: Note = forget) -> None:
        """Nothing is opened yet: ``await open()`` first. The lane owns the store from here on."""
        if limits.routing_rule not in ROUTING_RULES or limits.num_shards < 1:
            raise ConfigurationError(
                f"{limits.num_shards} shards by {limits.routing_rule!r}: a log has 1 or more, "
                f"by one of: {', '.join(ROUTING_RULES)}"
            )
        self._store = store
        self._limits = limits
        self._clock = clock
        self._note = note
        self.gate = FlushGate(os.environ)
        """For tests: hold, slow or fail a flush."""
        self._tail = AcceptedTail(
            heads_max=limits.cached_heads_max, marks_max=limits.cached_marks_max
        )
        self._writer = ThreadPoolExecutor(1, "landed-commit")
        self._readers = ThreadPoolExecutor(limits.readers_max, "landed-read")
        # Lookups have a thread of their own: changes must not queue behind large reads.
        self._lookups = ThreadPoolExecutor(1, "landed-load")
        self._waiting: deque[tuple[Mutation, Done, bool]] = deque()
        self._groups: deque[Group] = deque()
        self._forming: Group | None = None
        self._is_flushing = False
        self._queued_count = 0
        self._queued_bytes = 0
        self._stopped: Unknown | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Open the store and take up where it ended.

        Raises:
            StorageInUseError, StorageForeignError, StorageDamagedError: the file is not usable.
        """
        self._loop = asyncio.get_running_loop()
        try:
            position, last_ms = await self._loop.run_in_executor(self._writer, self._store.open)
        except BaseException:
            self._shut_down()
            raise
        self._position = position
        self._time = ServerTime(self._clock, not_below=WallMs(last_ms))
        self._loader = Loader(self._store, self._tail, self._lookups, self._loaded)
        self._reads = ReadSide(
            self._store,
            self._tail,
            self._loader,
            self._readers,
            limits=self._limits,
            note=self._note,
            settled=self._check_drained,
            position=position,
        )
        self._reclaimer = Reclaimer(
            self._store,
            self._writer,
            interval_s=self._limits.reclaim_after_s,
            note=self._note,
            began=self._reads.reclaiming,
            settled=self._check_drained,
        )

    @property
    def identity(self) -> LogIdentity:
        """Which log this is."""
        return self._store.identity

    @property
    def position(self) -> int:
        """The newest feed position that is durable and visible; 0 of an empty log."""
        return self._reads.position

    @property
    def is_stopped(self) -> bool:
        """A commit's outcome is unknown; every answer is ``Unknown`` from then on (C7)."""
        return self._stopped is not None

    def submit(self, request: Request, done: Done, /) -> None:
        """Take a request; call ``done`` exactly once with its answer. See ``Engine.submit``."""
        if self._stopped is not None or self._closed is not None:
            done(self._stopped or Busy())
        elif isinstance(request, (Write, Trim, Delete)):
            self._submit_change(request, done)
        else:
            self._reads.submit(request, done)

    async def close(self) -> None:
        """Finish what was submitted, then let go of the store. Idempotent."""
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = self._loop.create_future()
        self._reads.end_waiting()
        self._reclaimer.close()
        self.gate.release()
        if not self._is_idle():
            self._drained = self._loop.create_future()
            await self._drained
        await self._loop.run_in_executor(self._writer, self._store.close)
        self._shut_down()
        self._closed.set_result(None)

    async def reclaim(self) -> int:
        """Free the space of dead batches, a bounded slice; returns how many it dropped (C13)."""
        return await self._reclaimer.run()

    # --- judging

    def _submit_change(self, change: Mutation, done: Done) -> None:
        if not isinstance(change, Trim) and (refusal := misrouted(change, self._limits)):
            done(refusal)
            return
        limits = self._limits
        if (
            self._queued_count >= limits.queued_writes_max
            or self._queued_bytes >= limits.queued_bytes_max
        ):
            done(Busy())
            return
        self._judge_in_order(change, done, is_again=False)

    def _judge_in_order(self, change: Mutation, done: Done, *, is_again: bool) -> None:
        """Judge a change now, or queue it: nobody overtakes one that waits for a lookup."""
        if not self._waiting:
            try:
                self._judge(change, done, is_again=is_again)
            except Cold:
                pass
            else:
                return
        self._waiting.append((change, done, is_again))
        self._queued_count += 1
        self._queued_bytes += _size(change)
        self._look_up(change)

    def _look_up(self, change: Mutation) -> None:
        keys, pairs = self._tail.cold_parts(change)
        if keys or pairs:
            self._loader.want(keys, pairs)

    def _judge(self, change: Mutation, done: Done, *, is_again: bool) -> None:
        """Judge one change and stage it, in one step (log rule W16). Raises Cold."""
        now_ms = self._time.stamp()
        result: Admitted | Refusal
        if isinstance(change, Write):
            result = judge_write(
                change, self._tail, now_ms=now_ms, seq_jump_max=self._limits.client_seq_jump_max
            )
        elif isinstance(change, Trim):
            result = judge_trim(change, self._tail, now_ms=now_ms)
        else:
            result = judge_delete(change, self._tail, now_ms=now_ms)
        if type(result) is not tuple:
            self._refuse(change, cast("Refusal", result), done, is_again=is_again)
        elif result:
            self._stage(change, cast("Admitted", result), now_ms, done)
        else:
            self._leave(cast("Trim", change), done)

    def _refuse(self, change: Mutation, refusal: Refusal, done: Done, *, is_again: bool) -> None:
        if not is_again and isinstance(refusal, _MAY_BE_WITHDRAWN) and self._is_ahead(change):
            self._judge_after_flush(change, done)
        else:
            done(refusal)

    def _leave(self, trim: Trim, done: Done) -> None:
        """Answer a trim that changes nothing, once the floor it rests on is durable (C5, T3)."""
        visible = self._tail.visible(trim.key)
        if visible.life is Life.LIVE and trim.keep_from <= visible.floor:
            done(Trimmed())
        else:
            self._judge_after_flush(trim, done)

    def _is_ahead(self, change: Mutation) -> bool:
        if isinstance(change, Trim):
            return self._tail.is_ahead(change.key)
        return any(self._tail.is_ahead(leg.key) for leg in change.legs)

    def _judge_after_flush(self, change: Mutation, done: Done) -> None:
        self._groups[-1].judged_again.append((change, done))
        self._queued_count += 1
        self._queued_bytes += _size(change)

    def _loaded(self, error: BaseException | None) -> None:
        """Go on where the order of arrival stopped for a lookup."""
        self._reads.loaded(error)
        waiting = self._waiting
        if error is not None:
            self._note("lane.load_failed", {"error": repr(error), "changes": len(waiting)})
        while waiting:
            change, done, is_again = waiting[0]
            if error is not None:
                self._leave_queue(change)
                waiting.popleft()
                done(Busy())
                continue
            keys, pairs = self._tail.cold_parts(change)
            if keys or pairs:
                for later, _, _ in waiting:
                    self._look_up(later)
                break
            self._leave_queue(change)
            waiting.popleft()
            self._judge(change, done, is_again=is_again)
        self._evict()
        self._check_drained()

    def _evict(self) -> None:
        """Keep the caches to their bounds; what a queued change waited for must stay till then."""
        if not self._waiting:
            self._tail.evict()

    def _leave_queue(self, change: Mutation) -> None:
        self._queued_count -= 1
        self._queued_bytes -= _size(change)

    # --- staging and flushing

    def _stage(self, change: Mutation, steps: Admitted, now_ms: int, done: Done) -> None:
        group = self._forming
        if (
            group is None
            or len(group.staged) >= self._limits.group_writes_max
            or group.bytes >= self._limits.group_bytes_max
        ):
            group = self._forming = Group()
            self._groups.append(group)
        before = group.bytes
        answer: Answer
        if isinstance(change, Write):
            self._tail.accept(steps, change.client_id)
            self._position = group.add_write(change, steps, now_ms, self._position)
            answer = Landed(tuple([step.head.version for step in steps]))
        else:
            self._tail.accept(steps, None)
            self._position = group.add_other(change, steps, self._position)
            self._reclaimer.expect()
            answer = Trimmed() if isinstance(change, Trim) else Deleted()
        group.answers.append((done, answer))
        self._queued_count += len(steps)
        self._queued_bytes += group.bytes - before
        if not self._is_flushing:
            # At the end of this loop turn: what arrives together shares a flush, and a lone write
            # waits for nobody (log rule C4).
            self._is_flushing = True
            self._loop.call_soon(self._enter_gate)

    def _enter_gate(self) -> None:
        self.gate.enter(self._loop, self._flush)

    def _flush(self) -> None:
        group = self._groups[0]
        if group is self._forming:
            self._forming = None
        future = self._loop.run_in_executor(self._writer, self._commit, group.staged)
        future.add_done_callback(self._settle)

    def _commit(self, staged: list[Staged]) -> None:
        self.gate.raise_if_failing()
        self._store.commit(staged)

    def _settle(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is None:
            self._publish()
        elif isinstance(error, StorageError) and error.is_outcome_known:
            self._roll_back(error)
        else:
            self._stop(error)
        self._check_drained()

    def _publish(self) -> None:
        """Make the group visible, start on the next one, then tell those who wait (C1, C2)."""
        group = self._groups.popleft()
        self._tail.publish(group, self._groups)
        self._evict()
        self._queued_count -= len(group.staged)
        self._queued_bytes -= group.bytes
        self._next_flush()
        self._note("lane.committed", {"changes": len(group.staged), "bytes": group.bytes})
        self._reads.published(group.staged[-1].position)
        self._answer(iter(group.answers))
        self._judge_again([group])

    def _next_flush(self) -> None:
        if self._groups:
            self._enter_gate()
        else:
            self._is_flushing = False

    def _roll_back(self, error: StorageError) -> None:
        """Fail the group and everything judged on top of it; the numbers are free again (C6)."""
        groups = self._take_groups()
        self._tail.roll_back()
        self._is_flushing = False
        failed = sum(len(group.staged) for group in groups)
        self._note("lane.flush_failed", {"error": str(error), "changes": failed})
        unknown = Unknown(f"the flush failed: {error}")
        self._answer(iter([(done, unknown) for group in groups for done, _ in group.answers]))
        self._judge_again(groups)

    def _stop(self, error: BaseException) -> None:
        """Nobody knows what the commit left behind: take nothing more, claim nothing more (C7)."""
        self._stopped = Unknown(f"the engine stopped, its last commit is in doubt: {error}")
        self._note("lane.stopped", {"error": repr(error)})
        groups = self._take_groups()
        waiting, self._waiting = self._waiting, deque()
        dones = [done for group in groups for done, _ in group.answers]
        dones += [done for group in groups for _, done in group.judged_again]
        dones += [done for _, done, _ in waiting]
        self._queued_count = self._queued_bytes = 0
        self._reads.end_waiting()
        self._answer(iter([(done, self._stopped) for done in dones]))

    def _take_groups(self) -> list[Group]:
        groups = list(self._groups)
        self._groups.clear()
        self._forming = None
        self._queued_count -= sum(len(group.staged) for group in groups)
        self._queued_bytes -= sum(group.bytes for group in groups)
        return groups

    def _answer(self, answers: Iterator[tuple[Done, object]]) -> None:
        """Answer in order. One ``done`` that raises must not keep the others from their answers."""
        try:
            for done, answer in answers:
                done(cast("Answer", answer))
        finally:
            if next_one := next(answers, None):
                self._loop.call_soon(self._answer, iter([next_one, *answers]))

    def _judge_again(self, groups: list[Group]) -> None:
        for group in groups:
            for change, done in group.judged_again:
                self._leave_queue(change)
                self._judge_in_order(change, done, is_again=True)

    # --- the end

    def _is_idle(self) -> bool:
        return (
            not (self._groups or self._waiting) and self._reads.is_idle and self._reclaimer.is_idle
        )

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done() and self._is_idle():
            drained.set_result(None)

    def _shut_down(self) -> None:
        for executor in (self._writer, self._readers, self._lookups):
            executor.shutdown(wait=True)


def _size(change: Mutation) -> int:
    if isinstance(change, Write):
        return sum(size_of(leg.events) for leg in change.legs)
    return 0
