"""The one lane in which every change of a log is judged, staged, flushed, published, answered.

The same for every store. Changes are judged when they are submitted, in the order of arrival,
against the accepted tail; one group of admitted changes at a time is on its way to the disk while
the next one forms. No step overtakes an earlier one (log rule C1).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from landed.clock import Clock, ServerTime, WallMs
from landed.engines.arrivals import Arrival, Arrivals
from landed.engines.flush import FlushGate
from landed.engines.group import Group
from landed.engines.loader import Damaged, Loader
from landed.engines.pace import Company, Pace
from landed.engines.port import Done, LogIdentity, Staged, Store
from landed.engines.reads import ReadSide
from landed.engines.reclaim import Reclaimer
from landed.engines.tail import AcceptedTail, Cold
from landed.engines.writers import Writers
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
    NotLoaded,
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
        self._pace = Pace(limits.inline_commit_ms)
        self._company = Company()
        # Read for every write, and an attribute of an attribute is dearer.
        self._writes_max = limits.group_writes_max
        self._bytes_max = limits.group_bytes_max
        self._jump_max = limits.client_seq_jump_max
        self._writer = ThreadPoolExecutor(1, "landed-commit")
        self._readers = ThreadPoolExecutor(limits.readers_max, "landed-read")
        # Lookups have a thread of their own: changes must not queue behind large reads.
        self._lookups = ThreadPoolExecutor(1, "landed-load")
        self._arrivals = Arrivals(limits)
        self._writers = Writers()
        self._groups: deque[Group] = deque()
        self._forming: Group | None = None
        self._is_flushing = False
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
        try:
            await self._loop.run_in_executor(self._writer, self._store.close)
        finally:
            self._shut_down()
            self._closed.set_result(None)

    async def reclaim(self) -> int:
        """Free the space of dead batches, a bounded slice; returns how many it dropped (C13)."""
        return await self._reclaimer.run()

    # --- judging

    def _submit_change(self, change: Mutation, done: Done) -> None:
        arrivals = self._arrivals
        refusal: Refusal | None = None
        if not isinstance(change, Trim) and len(change.legs) != 1:
            refusal = misrouted(change, self._limits)
        if refusal is None and arrivals.is_full():
            refusal = Busy()
        if refusal is not None:
            done(refusal)
            return
        if not arrivals.waiting:
            try:
                self._judge(change, done, is_again=False)
            except Cold:
                pass
            else:
                return
        self._wait(Arrival(change, done, is_again=False))

    def _wait(self, arrival: Arrival) -> None:
        """Queue a change for a lookup, or behind one that waits: nobody overtakes."""
        self._arrivals.wait(arrival)
        self._look_up(arrival)

    def _look_up(self, arrival: Arrival) -> bool:
        """Have what a change misses looked up; say whether it misses anything."""
        keys, pairs = self._tail.cold_parts(arrival.change)
        self._loader.want(keys, pairs)
        return bool(keys or pairs)

    def _judge(self, change: Mutation, done: Done, *, is_again: bool) -> None:
        """Judge one change and stage it, in one step (log rule W16). Raises Cold."""
        now_ms = self._time.stamp()
        result: Admitted | Refusal
        if isinstance(change, Write):
            change = self._writers.shared(change)
            result = judge_write(change, self._tail, now_ms=now_ms, seq_jump_max=self._jump_max)
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
            self._arrivals.put_off(change, done, self._groups[-1])
        else:
            done(refusal)

    def _leave(self, trim: Trim, done: Done) -> None:
        """Answer a trim that changes nothing, once the floor it rests on is durable (C5, T3)."""
        visible = self._tail.visible(trim.key)
        if visible.life is Life.LIVE and trim.keep_from <= visible.floor:
            done(Trimmed())
        else:
            self._arrivals.put_off(trim, done, self._groups[-1])

    def _is_ahead(self, change: Mutation) -> bool:
        if isinstance(change, Trim):
            return self._tail.is_ahead(change.key)
        return any(self._tail.is_ahead(leg.key) for leg in change.legs)

    def _judge_again(self, groups: Iterable[Group]) -> None:
        for group in groups:
            for arrival in self._arrivals.bring_back(group):
                self._wait(arrival)
        self._judge_waiting()

    def _loaded(self, error: BaseException | None, damaged: Damaged) -> None:
        """Go on where the order of arrival stopped for a lookup."""
        self._reads.loaded(error, damaged)
        if error is None:
            if damaged:
                self._refuse_damaged(damaged)
            self._judge_waiting()
        else:
            failed = self._arrivals.take_all()
            self._note("lane.load_failed", {"error": repr(error), "changes": len(failed)})
            self._answer([(arrival.done, Busy()) for arrival in failed])
        self._check_drained()

    def _refuse_damaged(self, damaged: Damaged) -> None:
        """Tell whoever needs what is damaged; sending it again would not help (log rule C12)."""
        refused: list[tuple[Done, Answer]] = []
        for arrival in self._arrivals.take_all():
            change = arrival.change
            keys = [change.key] if isinstance(change, Trim) else [leg.key for leg in change.legs]
            error = next((damaged[key] for key in keys if key in damaged), None)
            if error is None:
                self._arrivals.wait(arrival)
            else:
                refused.append((arrival.done, NotLoaded(str(error))))
        told = "; ".join(map(str, damaged.values()))
        self._note("lane.load_failed", {"error": told, "changes": len(refused)})
        self._answer(refused)

    def _judge_waiting(self) -> None:
        """Judge whoever waits, in order, up to the first who must wait on."""
        waiting = self._arrivals.waiting
        while waiting:
            if self._look_up(waiting[0]):
                return
            change, done, is_again = self._arrivals.take()
            self._judge(change, done, is_again=is_again)
        # Only now: what somebody waited for must still be there when he is judged.
        self._tail.evict()

    # --- staging and flushing

    def _stage(self, change: Mutation, steps: Admitted, now_ms: int, done: Done) -> None:
        group = self._forming
        if group is None or len(group.staged) >= self._writes_max or group.bytes >= self._bytes_max:
            group = self._forming = Group()
            self._groups.append(group)
        before = group.bytes
        answer: Answer
        if isinstance(change, Write):
            standings = self._tail.accept(steps, change.client_id, group)
            self._position = group.add_write(change, steps, standings, now_ms, self._position)
            # Past the constructor, as in group.py: one for every write.
            answer = tuple.__new__(Landed, (tuple([head.version for _, head, _ in steps]),))
        else:
            standings = self._tail.accept(steps, None, group)
            self._position = group.add_other(change, steps, standings, self._position)
            answer = Trimmed() if isinstance(change, Trim) else Deleted()
        group.answers.append((done, answer))
        arrivals = self._arrivals
        arrivals.count += len(steps)
        arrivals.bytes += group.bytes - before
        if not self._is_flushing:
            # At the end of this loop turn: what arrives together shares a flush, and a lone write
            # waits for nobody (log rule C4).
            self._is_flushing = True
            self._begin_soon()

    def _begin_soon(self) -> None:
        self._company.begin()
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        if self._company.is_arriving(len(self._groups[0].staged)):
            self._loop.call_soon(self._gather)
        else:
            self._enter_gate()

    def _enter_gate(self) -> None:
        self.gate.enter(self._loop, self._flush)

    def _flush(self) -> None:
        group = self._groups[0]
        if group is self._forming:
            self._forming = None
        if self._pace.is_fast and self._reclaimer.is_idle:
            future = self._loop.create_future()
            try:
                self._commit(group.staged)
            except Exception as error:  # noqa: BLE001  # carried to _settle, as from a thread
                future.set_exception(error)
            else:
                future.set_result(None)
        else:
            future = self._loop.run_in_executor(self._writer, self._commit, group.staged)
        future.add_done_callback(self._settle)

    def _commit(self, staged: list[Staged]) -> None:
        self.gate.raise_if_failing()
        began_ms = self._clock.monotonic_ms()
        self._store.commit(staged)
        self._pace.took(self._clock.monotonic_ms() - began_ms)

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
        self._tail.publish(group)
        self._settled(group)
        if group.has_ends:
            self._reclaimer.expect()
        self._next_flush(len(group.staged))
        self._note("lane.committed", {"changes": len(group.staged), "bytes": group.bytes})
        self._reads.published(group.staged[-1].position)
        self._answer(group.answers)
        self._judge_again([group])

    def _next_flush(self, last_count: int) -> None:
        """Keep the disk busy under load; else let those answered now join the next flush."""
        self._company.last_count = last_count
        if not self._groups:
            self._is_flushing = False
        elif len(self._groups[0].staged) >= last_count:
            self._enter_gate()
        else:
            self._begin_soon()

    def _roll_back(self, error: StorageError) -> None:
        """Fail the group and everything judged on top of it; the numbers are free again (C6)."""
        groups = self._take_groups()
        self._tail.roll_back()
        self._is_flushing = False
        failed = sum(len(group.staged) for group in groups)
        self._note("lane.flush_failed", {"error": str(error), "changes": failed})
        unknown = Unknown(f"the flush failed: {error}")
        self._answer([(done, unknown) for group in groups for done, _ in group.answers])
        self._judge_again(groups)

    def _stop(self, error: BaseException) -> None:
        """Nobody knows what the commit left behind: take nothing more, claim nothing more (C7)."""
        self._stopped = Unknown(f"the engine stopped, its last commit is in doubt: {error}")
        self._note("lane.stopped", {"error": repr(error)})
        groups = self._take_groups()
        dones = [done for group in groups for done, _ in group.answers]
        for group in groups:
            dones += [arrival.done for arrival in self._arrivals.bring_back(group)]
        dones += [arrival.done for arrival in self._arrivals.take_all()]
        self._reads.end_waiting()
        self._answer([(done, self._stopped) for done in dones])

    def _take_groups(self) -> Iterable[Group]:
        groups, self._groups, self._forming = self._groups, deque(), None
        for group in groups:
            self._settled(group)
        return groups

    def _settled(self, group: Group) -> None:
        self._arrivals.count -= len(group.staged)
        self._arrivals.bytes -= group.bytes

    def _answer(self, answers: Iterable[tuple[Done, Answer]]) -> None:
        """Answer in order. A ``done`` that raises is told to the loop, and keeps nobody waiting."""
        for done, answer in answers:
            try:
                done(answer)
            except Exception as error:  # noqa: BLE001  # its caller's fault, and nobody else's
                context = {"message": "an answer was not taken", "exception": error}
                self._loop.call_exception_handler(context)

    # --- the end

    def _is_idle(self) -> bool:
        return (
            not (self._groups or self._arrivals.waiting)
            and self._reads.is_idle
            and self._reclaimer.is_idle
        )

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done() and self._is_idle():
            drained.set_result(None)

    def _shut_down(self) -> None:
        for executor in (self._writer, self._readers, self._lookups):
            executor.shutdown(wait=True)
