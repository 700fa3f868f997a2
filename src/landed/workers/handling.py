"""Runs user handlers and settlement handlers: one transaction each, and the done-mark in it.

Lane ``handle``. What a handler wrote, the effects it asked for, and the mark that it is done commit
together or not at all (rules HN-1 to HN-7). Several quick ones share a commit.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from landed.deliveries.classify import QuarantineReason
from landed.errors import (
    CeilingReachedError,
    LandedError,
    OrderConflictError,
    PayloadMismatchError,
    RetryTransactionError,
    StorageError,
)
from landed.facts import Note, forget
from landed.records import effects, outbox, reviews, runs, schedule
from landed.records.leases import TAKEOVER_S, Leases
from landed.records.origins import run_of
from landed.records.receipts import HANDLE_LANE
from landed.records.session import (
    RETRIES_MAX,
    Books,
    is_postgres,
    is_retryable,
    jittered_us,
    raise_durability,
    transact,
)
from landed.records.turns import Turns
from landed.registry import Registry, Tx
from landed.workers.agent import LaneAgent, Life
from landed.workers.costs import GROUP_MAX, Costs
from landed.workers.jobs import LATER_US, Job, load
from landed.workers.threads import on_thread

TRIES_MAX: Final = 10
"""Failures of a handler on one event before it is set aside (``handler_poison``)."""
LIMIT_S: Final = 30.0
"""How long one handler may take; on PostgreSQL also one of its statements, or a pause between."""
BACKOFF_US: Final = 1_000_000
BACKOFF_MAX_US: Final = 600_000_000
_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How handlings go. Times in the unit of their name."""

    batch: int = 16
    """Held at most by one worker; more than are handled at once, so that nobody waits for a claim.
    Handlings that are quick may be held in larger numbers."""
    concurrency: int = 8
    """Handled at once; on SQLite, which has one writer, one at a time."""
    tries_max: int = TRIES_MAX
    limit_s: float = LIMIT_S
    takeover_s: float = TAKEOVER_S
    """How soon others take up the work of a worker that was killed; its leases are renewed till then."""
    backoff_us: int = BACKOFF_US
    backoff_max_us: int = BACKOFF_MAX_US


class _HandlerError(Exception):
    """A user's handler raised; whatever it was, even a cancellation."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class _Held:
    """The connection of handlers at work, so that it can be taken away from them.

    Only while they are at work: before and after that it may be somebody else's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._driver: Any = None
        self._is_severed = False

    def take(self, conn: Connection) -> None:
        """Handlers begin with this connection.

        Raises:
            TimeoutError: nobody waits for them any more.
        """
        with self._lock:
            if self._is_severed:
                raise TimeoutError("nobody waits for this handler any more")
            # PostgreSQL ends an overdue transaction by itself.
            if not is_postgres(conn.dialect):
                self._driver = conn.connection.driver_connection

    def let_go(self) -> None:
        """They have ended; what is left is the commit, which takes no time of theirs."""
        with self._lock:
            self._driver = None

    def sever(self) -> None:
        """Take it away: what they wrote is rolled back, and what they write later is refused.

        On SQLite they hold the one writer's place, so nobody can wait until they notice.
        """
        with self._lock:
            self._is_severed = True
            if self._driver is not None:
                self._driver.sever()


class Handling(LaneAgent[Sequence[Job]]):
    """The agent of the lane ``handle``.

    Quick handlings of different keys share one transaction. If anything at all goes wrong with such
    a group, nothing of it was kept, and each of it is handled alone.
    """

    def __init__(
        self,
        engine: Engine,
        books: Books,
        registry: Registry,
        *,
        owner: str,
        note: Note = forget,
        chance: random.Random,
        pace: Pace | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._pace = Pace() if pace is None else pace
        super().__init__("handling", slots=2 * GROUP_MAX, note=note)
        self._engine = engine
        self._books = books
        self._registry = registry
        self._owner = owner
        self._chance = chance
        self._turns = Turns(engine) if turns is None else turns
        self._leases = Leases(self._turns, books, lease_s=self._pace.takeover_s)
        self._costs = Costs()
        is_sqlite = engine.dialect.name == "sqlite"
        self._places = asyncio.Semaphore(1 if is_sqlite else self._pace.concurrency)
        # One group at a time: two of them could wait for each other's rows.
        self._together = asyncio.Lock()

    def room(self, held: int) -> int:
        """More than is handled at once, so that nobody waits for a claim, and more of what is quick.

        Nothing until half of it is free: claimed one by one, they would be handled one by one.
        """
        all_ = min(self.slots, max(self._pace.batch, 2 * self._costs.fitting()))
        free = all_ - held
        return free if 2 * free >= all_ else 0

    def size(self, piece: Sequence[Job]) -> int:
        return len(piece)

    async def run(self, life: Life) -> None:
        async with self._leases.kept():
            await super().run(life)

    async def run_once(self) -> int:
        async with self._leases.kept():
            return await super().run_once()

    async def take(self, limit: int) -> list[Sequence[Job]]:
        """Claim what is due, read what it takes to handle it, and say what goes together."""
        claimed_ms = float(self._books.clock.monotonic_ms())

        def _work(conn: Connection) -> list[Job]:
            claims = schedule.claim(
                conn,
                self._books,
                lane=HANDLE_LANE,
                owner=self._owner,
                limit=min(limit, GROUP_MAX),
                lease_us=int(self._pace.takeover_s * 1_000_000),
            )
            if not claims:
                return []
            return load(
                conn, self._books, self._registry, claims, claimed_ms=claimed_ms, note=self._note
            )

        jobs = await self._turns.transact(_work, is_durable=False)
        self._leases.hold([job.claim for job in jobs])
        return self._costs.grouped(jobs)

    async def work(self, piece: Sequence[Job]) -> None:
        """Handle some events and settlements, together if that goes well."""
        try:
            async with self._places:
                late = [job for job in piece if self._held_s(job) > self._pace.limit_s]
                if late:
                    # Others may have waited for long; somebody takes them up at once.
                    await self._after(lambda conn: self._give_back(conn, *late, delay_us=0))
                on_time = [job for job in piece if job not in late] if late else piece
                if len(on_time) > 1 and await self._is_handled_together(on_time):
                    return
                for job in on_time:
                    await self._handle(job)
        finally:
            self._leases.let_go([job.claim for job in piece])

    def _held_s(self, job: Job) -> float:
        return (self._books.clock.monotonic_ms() - job.claimed_ms) / 1000

    # --- Together -------------------------------------------------------------------------------

    async def _is_handled_together(self, jobs: Sequence[Job]) -> bool:
        """Handle several in one transaction; False if nothing of it was kept, or nobody knows."""
        async with self._together:
            try:
                handled = await self._run(jobs, tries_max=1)
            except effects.NotNewError:
                self._costs.asks_again(jobs)
                self._note("handling.split", {"jobs": len(jobs), "why": "NotNewError"})
                return False
            except (TimeoutError, _HandlerError, LandedError, SQLAlchemyError) as e:
                self._note("handling.split", {"jobs": len(jobs), "why": type(e).__name__})
                return False
        for job in jobs:
            self._ended(job, handled)
        return True

    # --- Alone ----------------------------------------------------------------------------------

    async def _handle(self, job: Job) -> None:
        started_ms = self._books.clock.monotonic_ms()
        outcome = "done"
        try:
            handled = await self._run([job])
        except TimeoutError:
            outcome = "overdue"
            await self._failed(job, f"handler ran longer than {self._pace.limit_s:g} s")
        except _HandlerError as e:
            outcome = await self._refused(job, e.cause)
        except RetryTransactionError as e:
            outcome = "put_off"
            await self._put_off(job, f"the database asked to begin again: {e}")
        except StorageError as e:
            if not e.is_outcome_known:
                # Perhaps it is kept: the next run finds the done-mark, or handles it (KP-8).
                outcome = "unknown"
            elif isinstance(e.__cause__, DBAPIError) and is_retryable(e.__cause__):
                outcome = "put_off"
                await self._put_off(job, str(e))
            else:
                outcome = await self._refused(job, e)
        except SQLAlchemyError as e:
            outcome = await self._refused(job, e)
        else:
            self._ended(job, handled)
            return
        seconds = (self._books.clock.monotonic_ms() - started_ms) / 1000
        self._costs.forget(job)
        self._note_ended(job, outcome, seconds)

    def _ended(self, job: Job, handled: Mapping[UUID, float]) -> None:
        seconds = handled.get(job.row.outbox_id)
        if seconds is not None:
            self._costs.add(job, seconds)
        self._note_ended(job, "done_before" if seconds is None else "done", seconds or 0.0)

    def _note_ended(self, job: Job, outcome: str, seconds: float) -> None:
        self._note(
            "handling.ended",
            {"handler": job.handler.name, "outcome": outcome, "seconds": seconds},
        )

    # --- TX-HANDLE ------------------------------------------------------------------------------

    async def _run(
        self, jobs: Sequence[Job], *, tries_max: int = RETRIES_MAX
    ) -> Mapping[UUID, float]:
        """Run handlers in one transaction, on a thread; returns how long each took, in seconds.

        What is missing there had been done by an earlier commit (rule HN-2).

        Raises:
            TimeoutError: they ran for too long; nothing of them is kept.
        """
        held = _Held()
        async with self._turns.turn:
            work = asyncio.ensure_future(
                on_thread(
                    lambda: transact(
                        self._engine,
                        functools.partial(self._work, jobs, held),
                        is_durable=False,  # it sees to that itself, together with its bounds
                        tries_max=tries_max,
                    ),
                    name=f"handler {jobs[0].handler.name}",
                )
            )
            try:
                async with asyncio.timeout(self._pace.limit_s + _GRACE_S):
                    handled = await asyncio.shield(work)
            except TimeoutError:
                work.add_done_callback(_forget_outcome)
                await asyncio.to_thread(held.sever)
                raise
        self._note("kp", {"point": "KP-8"})
        return handled

    def _work(self, jobs: Sequence[Job], held: _Held, conn: Connection) -> Mapping[UUID, float]:
        """TX-HANDLE, of one or several; its connection is taken away if it is overdue."""
        held.take(conn)
        try:
            return self._handle_all(jobs, conn)
        finally:
            held.let_go()

    def _handle_all(self, jobs: Sequence[Job], conn: Connection) -> Mapping[UUID, float]:
        """Handle them, and mark them done.

        The marks come first: a second worker waits for them, and then finds them, instead of running
        the handlers along with the first. Taking the work off the schedule comes last: it fails if
        a handler left the transaction unusable, so that nothing seems committed that was not.
        """
        raise_durability(conn, limit_ms=max(1, int(self._pace.limit_s * 1000)))
        marked = outbox.mark_done(conn, self._books, [job.row.outbox_id for job in jobs])
        gathered = effects.Gathered() if self._costs.may_gather(jobs) else None
        handled: dict[UUID, float] = {}
        with nullcontext() if gathered is None else gathered.watching(conn):
            for job in jobs:
                if job.row.outbox_id not in marked:
                    continue
                began_ms = self._books.clock.monotonic_ms()
                _call(
                    job,
                    Tx(
                        conn,
                        self._books,
                        self._registry,
                        cause=job.cause,
                        event=job.event,
                        gathered=gathered,
                    ),
                )
                took_ms = self._books.clock.monotonic_ms() - began_ms
                handled[job.row.outbox_id] = took_ms / 1000
        if gathered is not None:
            gathered.write(conn, self._books)
        schedule.finish(conn, [job.claim for job in jobs])
        if handled:
            self._note("kp", {"point": "KP-7"})
        return handled

    # --- What follows a failure -----------------------------------------------------------------

    async def _refused(self, job: Job, cause: BaseException) -> str:
        """A handler failed: try again later, or set it aside (rules HN-5, HN-6, QU-8)."""
        error = f"{type(cause).__name__}: {cause}"
        match cause:
            case PayloadMismatchError():
                return await self._parked(job, QuarantineReason.EFFECT_PAYLOAD_CONFLICT, error)
            case OrderConflictError():
                return await self._parked(job, QuarantineReason.ORDER_CONFLICT, error)
            case CeilingReachedError():
                await self._after(lambda conn: self._pause_run(conn, job, error))
                return "run_paused"
            case _:
                return await self._failed(job, error)

    async def _failed(self, job: Job, error: str) -> str:
        if job.row.tries + 1 >= self._pace.tries_max:
            return await self._parked(job, QuarantineReason.HANDLER_POISON, error)

        def _later(conn: Connection) -> None:
            outbox.note_failure(conn, job.row.outbox_id, error)
            self._give_back(conn, job, delay_us=self._delay_us(job.row.tries))

        await self._after(_later)
        return "failed"

    async def _put_off(self, job: Job, error: str) -> None:
        """Not the handler's fault: it comes again, and no try is counted (rule HN-6)."""

        def _later(conn: Connection) -> None:
            outbox.note_failure(conn, job.row.outbox_id, error, is_counted=False)
            self._give_back(conn, job, delay_us=self._delay_us(0))

        await self._after(_later)

    async def _parked(self, job: Job, reason: QuarantineReason, error: str) -> str:
        await self._after(lambda conn: self._park(conn, job, reason, error))
        return reason.value

    def _park(self, conn: Connection, job: Job, reason: QuarantineReason, error: str) -> None:
        """TX-PARK: row, review, alert."""
        if not outbox.park(conn, self._books, job.row.outbox_id, error=f"{reason.value}: {error}"):
            return
        reviews.open_review(
            conn,
            self._books,
            reviews.Review(
                kind=reason.value,
                subject_kind=outbox.OUTBOX,
                subject_id=str(job.row.outbox_id),
                severity="warning" if reason is QuarantineReason.HANDLER_POISON else "critical",
                owner=job.owner,
                note=f"handler {job.handler.name}: {error}",
            ),
        )

    def _pause_run(self, conn: Connection, job: Job, error: str) -> None:
        run_id = run_of(job.row.origin)
        if run_id is not None:
            runs.pause(conn, self._books, run_id, because=error)
        outbox.note_failure(conn, job.row.outbox_id, error, is_counted=False)
        self._give_back(conn, job, delay_us=LATER_US)

    def _give_back(self, conn: Connection, *jobs: Job, delay_us: int) -> None:
        for job in jobs:
            schedule.rearm(conn, self._books, job.claim, delay_us=delay_us)

    def _delay_us(self, tries: int) -> int:
        return jittered_us(self._pace.backoff_us, tries, self._pace.backoff_max_us, self._chance)

    async def _after(self, work: Callable[[Connection], object]) -> None:
        """Record what became of a handling; if that fails too, its lease ends and it comes again."""
        try:
            await self._turns.transact(work)
        except StorageError as e:
            self._note("handling.unrecorded", {"why": str(e)})


def _call(job: Job, tx: Tx) -> None:
    """Call the user's function. Whatever it raises is its failure, and never ours."""
    try:
        returned = job.handler.function(tx, job.argument)
        tx.flush()
    except RetryTransactionError:
        raise
    except SQLAlchemyError:
        # The transaction's wrapper knows which of these ask for another run.
        raise
    except BaseException as e:  # a user's code: even SystemExit must not end the worker
        raise _HandlerError(e) from e
    if returned is not None:
        if inspect.iscoroutine(returned):
            returned.close()
        kind = TypeError(
            f"handler {job.handler.name} returned {type(returned).__name__}; a handler is a plain "
            "function and returns nothing"
        )
        raise _HandlerError(kind)


def _forget_outcome(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()
