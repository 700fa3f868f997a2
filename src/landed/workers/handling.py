"""Runs user handlers and settlement handlers: one transaction each, and the done-mark in it.

Lane ``handle``. What a handler wrote, the effects it asked for, and the mark that it is done commit
together or not at all (rules HN-1 to HN-7).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from landed.deliveries.classify import QuarantineReason
from landed.errors import (
    CeilingReachedError,
    ConfigurationError,
    OrderConflictError,
    PayloadMismatchError,
    RetryTransactionError,
    StorageError,
)
from landed.facts import Note, forget
from landed.records import effects, outbox, reviews, runs, schedule
from landed.records.origins import run_of
from landed.records.receipts import HANDLE_LANE
from landed.records.session import Books, is_postgres, is_retryable, jittered_us, transact
from landed.registry import Handler, Registry, Tx
from landed.workers.agent import LaneAgent
from landed.workers.events import event_of, settlement_of, stored_rows
from landed.workers.threads import on_thread

TRIES_MAX: Final = 10
"""Failures of a handler on one event before it is set aside (``handler_poison``)."""
LIMIT_S: Final = 30.0
"""How long one handler may take; on PostgreSQL also one of its statements, or a pause between."""
BACKOFF_US: Final = 1_000_000
BACKOFF_MAX_US: Final = 600_000_000
_LEASE_MARGIN_S: Final = 15.0
_LATER_US: Final = 60_000_000
_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How handlings go. Times in the unit of their name."""

    batch: int = 16
    """Claimed at most at once; more than are handled at once, so that nobody waits for a claim."""
    concurrency: int = 8
    """Handled at once; on SQLite, which has one writer, one at a time."""
    tries_max: int = TRIES_MAX
    limit_s: float = LIMIT_S
    backoff_us: int = BACKOFF_US
    backoff_max_us: int = BACKOFF_MAX_US


class Job(NamedTuple):
    """One handling: its claim, its outbox row, and how to call its handler."""

    claim: schedule.Claim
    row: outbox.Row
    handler: Handler
    cause: effects.Cause
    event: Any
    """An ``Event``, or None for a settlement."""
    argument: Any
    owner: str
    claimed_ms: float
    """On the monotonic clock."""


class _HandlerError(Exception):
    """A user's handler raised; whatever it was, even a cancellation."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class Handling(LaneAgent[Job]):
    """The agent of the lane ``handle``."""

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
    ) -> None:
        self._pace = Pace() if pace is None else pace
        super().__init__("handling", slots=self._pace.batch, note=note)
        self._engine = engine
        self._books = books
        self._registry = registry
        self._owner = owner
        self._chance = chance
        self._settled = registry.settled_handlers()
        concurrency = 1 if engine.dialect.name == "sqlite" else self._pace.concurrency
        self._turns = asyncio.Semaphore(concurrency)

    async def take(self, limit: int) -> list[Job]:
        """Claim what is due, and read what it takes to handle it."""
        claimed_ms = float(self._books.clock.monotonic_ms())
        claims = await asyncio.to_thread(
            transact, self._engine, lambda conn: self._claim(conn, limit), is_durable=False
        )
        if not claims:
            return []
        return await asyncio.to_thread(
            transact, self._engine, lambda conn: self._load(conn, claims, claimed_ms)
        )

    async def work(self, piece: Job) -> None:
        """Handle one event or settlement."""
        async with self._turns:
            held_s = (self._books.clock.monotonic_ms() - piece.claimed_ms) / 1000
            if held_s > self._pace.limit_s:
                # Its lease might end while it runs; somebody takes it up at once.
                await self._after(lambda conn: self._give_back(conn, piece, delay_us=0))
                return
            await self._handle(piece)

    # --- Claiming and loading -------------------------------------------------------------------

    def _claim(self, conn: Connection, limit: int) -> list[schedule.Claim]:
        return schedule.claim(
            conn,
            self._books,
            lane=HANDLE_LANE,
            owner=self._owner,
            limit=limit,
            lease_us=int((2 * self._pace.limit_s + _LEASE_MARGIN_S) * 1_000_000),
        )

    def _load(
        self, conn: Connection, claims: Sequence[schedule.Claim], claimed_ms: float
    ) -> list[Job]:
        """Read all that was claimed; what cannot be handled is put off, with its reason."""
        rows = {row.outbox_id: row for row in outbox.rows(conn, [c.subject_id for c in claims])}
        rows = {outbox_id: row for outbox_id, row in rows.items() if row.state == "queued"}
        events = stored_rows(conn, _causes(rows.values(), "handle"))
        settled = {v.effect_id: v for v in effects.views(conn, _causes(rows.values(), "settled"))}
        jobs = []
        for claim in claims:
            if claim.subject_id not in rows:
                schedule.finish(conn, [claim])
                continue
            row = rows[claim.subject_id]
            try:
                jobs.append(self._job(claim, row, events, settled)._replace(claimed_ms=claimed_ms))
            except ConfigurationError as e:
                # Nothing was tried: it waits for the declaration, and doctor lists it (HN-4).
                outbox.note_failure(conn, row.outbox_id, str(e), is_counted=False)
                schedule.rearm(conn, self._books, claim, delay_us=_LATER_US)
                self._note("handling.put_off", {"row": str(row.outbox_id)})
        return jobs

    def _job(
        self,
        claim: schedule.Claim,
        row: outbox.Row,
        events: Mapping[UUID, Any],
        settled: Mapping[UUID, effects.EffectView],
    ) -> Job:
        name = row.destination.removeprefix("handler:")
        assert row.cause_id is not None, "a handling has a cause"
        if row.kind == "settled":
            handler = self._settled.get(name)
            if handler is None:
                raise ConfigurationError(f"no settlement handler {name} is declared")
            cause = effects.Cause(kind="settlement", id=str(row.cause_id), handler=name)
            settlement = settlement_of(settled[row.cause_id])
            return Job(claim, row, handler, cause, None, settlement, "installation", 0.0)
        handler = self._registry.handler_named(name)
        if handler is None:
            raise ConfigurationError(f"no handler {name} is declared")
        stored = events[row.cause_id]
        event = event_of(stored, self._registry)
        cause = effects.Cause(kind="receipt", id=str(row.cause_id), handler=name, origin=row.origin)
        owner = self._registry.producers[stored.namespace].owner
        return Job(claim, row, handler, cause, event, event, owner, 0.0)

    # --- One handling ---------------------------------------------------------------------------

    async def _handle(self, job: Job) -> None:
        started_ms = self._books.clock.monotonic_ms()
        held: list[Connection] = []
        work = asyncio.ensure_future(
            on_thread(
                lambda: transact(self._engine, functools.partial(self._work, job, held)),
                name=f"handler {job.handler.name}",
            )
        )
        outcome = "done"
        try:
            async with asyncio.timeout(self._pace.limit_s + _GRACE_S):
                is_first = await asyncio.shield(work)
            outcome = "done" if is_first else "done_before"
            self._note("kp", {"point": "KP-8"})
        except TimeoutError:
            work.add_done_callback(_forget_outcome)
            outcome = "overdue"
            await asyncio.to_thread(_sever, held)
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
        seconds = (self._books.clock.monotonic_ms() - started_ms) / 1000
        self._note(
            "handling.ended",
            {"handler": job.handler.name, "outcome": outcome, "seconds": seconds},
        )

    def _work(self, job: Job, held: list[Connection], conn: Connection) -> bool:
        """TX-HANDLE. Returns False if an earlier commit did it all (rule HN-2).

        The mark comes first: a second worker waits for it, and then finds it, instead of running
        the handler along with the first. Taking the work off the schedule comes last: it fails if
        the handler left the transaction unusable, so that nothing seems committed that was not.
        """
        _bound(conn, self._pace.limit_s)
        held[:] = [conn]
        if outbox.mark_done(conn, self._books, [job.row.outbox_id]) == 0:
            schedule.finish(conn, [job.claim])
            return False
        tx = Tx(conn, self._books, self._registry, cause=job.cause, event=job.event)
        _call(job, tx)
        schedule.finish(conn, [job.claim])
        self._note("kp", {"point": "KP-7"})
        return True

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
        self._give_back(conn, job, delay_us=_LATER_US)

    def _give_back(self, conn: Connection, job: Job, *, delay_us: int) -> None:
        schedule.rearm(conn, self._books, job.claim, delay_us=delay_us)

    def _delay_us(self, tries: int) -> int:
        return jittered_us(self._pace.backoff_us, tries, self._pace.backoff_max_us, self._chance)

    async def _after(self, work: Callable[[Connection], None]) -> None:
        """Record what became of a handling; if that fails too, its lease ends and it comes again."""
        try:
            await asyncio.to_thread(transact, self._engine, work)
        except StorageError as e:
            self._note("handling.unrecorded", {"why": str(e)})


def _causes(rows: Iterable[outbox.Row], kind: str) -> list[UUID]:
    return [row.cause_id for row in rows if row.kind == kind and row.cause_id is not None]


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


def _bound(conn: Connection, limit_s: float) -> None:
    """Have PostgreSQL end a handler that hangs in a statement, or between two."""
    if is_postgres(conn.dialect):
        conn.exec_driver_sql(
            "SELECT set_config('statement_timeout', %(ms)s, true),"
            " set_config('idle_in_transaction_session_timeout', %(ms)s, true)",
            {"ms": str(max(1, int(limit_s * 1000)))},
        )


def _sever(held: list[Connection]) -> None:
    """Take an overdue handler's connection away from it: what it wrote is rolled back.

    On PostgreSQL the server does that by itself. On SQLite it holds the one writer's place; closed,
    its later statements fail instead of being kept on their own.
    """
    for conn in held:
        if is_postgres(conn.dialect):
            continue
        driver: Any = conn.connection.driver_connection
        driver.interrupt()
        driver.close()


def _forget_outcome(work: asyncio.Future[bool]) -> None:
    if not work.cancelled():
        work.exception()
