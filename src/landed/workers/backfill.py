"""Runs: stored deliveries, or events set aside, through the functions of live traffic (BF-1 to BF-8).

Any number of workers may do one run: whoever moves its cursor took the items. Counters commit with
the items they count, so that a kill neither skips nor recounts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, func, select

from landed.deliveries.event import Rejected
from landed.effects.state import State
from landed.errors import ActionRefusedError, BeyondHorizonError, CeilingReachedError
from landed.facts import Note, forget
from landed.intake.admission import Admitted, Doorkeeper, Refused
from landed.intake.ed25519 import find_check
from landed.intake.forms import remember
from landed.intake.groups import keep_all
from landed.records import quarantine, runs
from landed.records.origins import LIVE, origin_of
from landed.records.receipts import HANDLE_LANE, Conflicting, Kept, Seen, Taken
from landed.records.session import Books, transact
from landed.records.tables import effects, outbox, schedule
from landed.registry import Registry
from landed.workers.sources import DeliveryFile, ReceiptList, StoredDelivery

Source = DeliveryFile | ReceiptList
"""What a run takes its items from: of a backfill, or of a reprocessing."""

BATCH: Final = 50
REST_S: Final = 0.2
"""Between two looks into a bucket that is empty."""
LIVE_LAG_MAX_US: Final = 60_000_000
"""How long a live event may wait for its handlers before runs make room for it (rule BF-4)."""
QUARANTINE_RATIO_MAX: Final = 0.2
QUARANTINES_LOOKED_AT: Final = 50
"""From so many items on the share of quarantines may pause a run (rule BF-6)."""
DOUBT_RATIO_MAX: Final = 0.2
DOUBTS_LOOKED_AT: Final = 20
"""From so many new effects on the share of those in doubt may pause a run (rule BF-6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clerk:
    """Does runs for one ledger."""

    engine: Engine
    books: Books
    registry: Registry
    note: Note = forget
    batch: int = BATCH

    def doorkeeper(self) -> Doorkeeper:
        """The same one that live traffic passes."""
        return Doorkeeper(
            registry=self.registry,
            now_us=self.books.now_us,
            check_ed25519=find_check(),
            forms=remember(self.engine, self.registry),
        )


class Progress(NamedTuple):
    """How far a run is."""

    done: int
    total: int
    state: str
    why: str | None = None


Shown = Callable[[Progress], None]


async def go(
    clerk: Clerk, run_id: UUID, source: Source, *, shown: Shown = lambda _progress: None
) -> Progress:
    """Do a run until it is completed, paused, or somebody else ends it.

    Raises:
        ApprovalMissingError: nobody approved it.
        ActionRefusedError: it is over.
        StorageError: the database failed; started again it goes on where it was.
    """
    keeper = await asyncio.to_thread(clerk.doorkeeper)
    await asyncio.to_thread(
        transact, clerk.engine, lambda conn: runs.start(conn, clerk.books, run_id)
    )
    while True:
        progress = await asyncio.to_thread(step, clerk, keeper, run_id, source)
        shown(progress)
        if progress.state != "running":
            return progress
        if progress.why is not None:
            await asyncio.sleep(REST_S)


def step(clerk: Clerk, keeper: Doorkeeper, run_id: UUID, source: Source) -> Progress:
    """Take one batch, as many items as the run's bucket has leave for."""
    run = _load(clerk, run_id)
    cursor = int(run["cursor"])
    left = source.total - cursor
    if run["state"] != "running":
        return Progress(cursor, source.total, run["state"], run["paused_because"])
    if left <= 0:
        transact(clerk.engine, lambda conn: runs.complete(conn, clerk.books, run_id))
        return Progress(source.total, source.total, "completed")
    if transact(clerk.engine, lambda conn: _pause_on_doubt(conn, clerk.books, run)):
        run = _load(clerk, run_id)
        return Progress(cursor, source.total, run["state"], run["paused_because"])
    if transact(clerk.engine, lambda conn: _is_live_late(conn, clerk.books), is_durable=False):
        return Progress(cursor, source.total, "running", "live traffic")
    wanted = min(clerk.batch, left)
    given = transact(
        clerk.engine,
        lambda conn: runs.take_tokens(conn, clerk.books, run_id, wanted=wanted),
        is_durable=False,
    )
    if given == 0:
        return Progress(cursor, source.total, "running", "its rate")
    todo = _todo(clerk, keeper, run, source, cursor, given)
    try:
        _take(clerk, run_id, todo, cursor)
    except CeilingReachedError:
        _take_singly(clerk, run_id, todo, cursor)
    except ActionRefusedError:
        clerk.note("run.overtaken", {"run": str(run_id)})
    run = _load(clerk, run_id)
    return Progress(int(run["cursor"]), source.total, run["state"], run["paused_because"])


Todo = Callable[[Connection], tuple[list[Taken], list[Rejected]]]
"""Take one item in the caller's transaction: what was taken, and what was refused."""


def _todo(
    clerk: Clerk, keeper: Doorkeeper, run: RowMapping, source: Source, cursor: int, count: int
) -> list[Todo]:
    if isinstance(source, ReceiptList):
        return [
            lambda conn, receipt_id=receipt_id: _release(clerk, conn, run, receipt_id)  # type: ignore[misc]
            for receipt_id in source.read(cursor, count)
        ]
    judged = [judge(keeper, item, run) for item in source.read(cursor, count)]
    return [lambda conn, one=one: keep_judged(clerk, conn, one) for one in judged]  # type: ignore[misc]


def judge(keeper: Doorkeeper, item: StoredDelivery, run: RowMapping) -> Admitted | Refused:
    """Judge one item as live traffic is judged; only its origin is another (rule BF-2)."""
    return item.admit(
        keeper,
        namespace=run["namespace"],
        origin=origin_of(run["kind"], run["run_id"]),
        is_stale_approved=bool(json.loads(run["plan"])["is_stale_approved"]),
    )


def keep_judged(
    clerk: Clerk, conn: Connection, judged: Admitted | Refused
) -> tuple[list[Taken], list[Rejected]]:
    """Keep what one item holds, by the function of live traffic."""
    if isinstance(judged, Refused):
        return [], [judged.rejected]
    (outcome,) = keep_all(conn, clerk.books, [judged], note=clerk.note)
    items = (outcome,) if isinstance(outcome, Rejected) else outcome
    return (
        [item for item in items if not isinstance(item, Rejected)],
        [item for item in items if isinstance(item, Rejected)],
    )


def _release(
    clerk: Clerk, conn: Connection, run: RowMapping, receipt_id: UUID
) -> tuple[list[Taken], list[Rejected]]:
    """Release one event if the declarations of today accept it; else it stays where it is (QU-5)."""
    producer = clerk.registry.producers[run["namespace"]]
    try:
        released = quarantine.release(
            conn,
            clerk.books,
            receipt_id,
            by=run["approved_by"],
            why=f"run {run['run_id']}: {run['reason']}",
            producer=producer,
            routes=clerk.registry.routes(producer.namespace),
            run_id=run["run_id"],
        )
    except BeyondHorizonError as e:
        return [], [Rejected(status=400, reason="beyond-retention", detail=str(e))]
    except ActionRefusedError:
        found = quarantine.find(conn, receipt_id)
        if found is not None and found["decision"] == "open":
            return [Kept(receipt_id, "quarantined")], []
        return [Seen(receipt_id, "decided")], []
    return [Kept(receipt_id, "accepted" if released.handlings else "ignored")], []


def _take(clerk: Clerk, run_id: UUID, todo: Sequence[Todo], cursor: int) -> None:
    """Take items and count them in one transaction; pause the run in it where a rule says so."""

    def _work(conn: Connection) -> None:
        taken: list[Taken] = []
        rejected = 0
        for take in todo:
            kept, refused = take(conn)
            taken += kept
            rejected += len(refused)
        clerk.note("kp", {"point": "KP-27"})
        runs.count_items(
            conn,
            clerk.books,
            run_id,
            cursor_from=cursor,
            cursor_to=cursor + len(todo),
            taken=taken,
            rejected=rejected,
        )
        because = _alarm(taken, runs.load(conn, run_id))
        if because is not None:
            runs.pause(conn, clerk.books, run_id, because=because)

    transact(clerk.engine, _work)


def _take_singly(clerk: Clerk, run_id: UUID, todo: Sequence[Todo], cursor: int) -> None:
    """One by one, so that the run stops before the item that would be one too many (BF-5)."""
    for number, take in enumerate(todo):
        try:
            _take(clerk, run_id, [take], cursor + number)
        except CeilingReachedError as e:
            because = str(e)
            transact(
                clerk.engine,
                lambda conn, because=because: runs.pause(  # type: ignore[misc]
                    conn, clerk.books, run_id, because=because
                ),
            )
            return
        except ActionRefusedError:
            return


def _alarm(taken: Sequence[Taken], run: RowMapping) -> str | None:
    """Why a run pauses itself (rule BF-6)."""
    conflicts = sum(isinstance(item, Conflicting) for item in taken)
    if conflicts:
        return f"{conflicts} of its events are held with another payload"
    looked_at = int(run["cursor"])
    is_more = any(isinstance(item, Kept) and item.disposition == "quarantined" for item in taken)
    is_high = is_more and run["quarantined"] > QUARANTINE_RATIO_MAX * looked_at
    if run["kind"] == runs.BACKFILL and looked_at >= QUARANTINES_LOOKED_AT and is_high:
        return f"{run['quarantined']} of {looked_at} events were quarantined"
    return None


def _pause_on_doubt(conn: Connection, books: Books, run: RowMapping) -> bool:
    """Pause a run of whose effects too many are in doubt: more of them would not help (BF-6)."""
    if run["new_effects"] < DOUBTS_LOOKED_AT:
        return False
    doubts = conn.execute(
        select(func.count()).where(
            effects.c.state == State.UNKNOWN.value,
            effects.c.origin == origin_of(run["kind"], run["run_id"]),
        )
    ).scalar_one()
    if doubts <= DOUBT_RATIO_MAX * run["new_effects"]:
        return False
    because = f"{doubts} of its {run['new_effects']} effects are in doubt"
    return runs.pause(conn, books, run["run_id"], because=because)


def _is_live_late(conn: Connection, books: Books) -> bool:
    """Live events wait too long for their handlers: the run yields (rule BF-4)."""
    waiting = conn.execute(
        select(schedule.c.subject_id)
        .join(outbox, outbox.c.outbox_id == schedule.c.subject_id)
        .where(
            schedule.c.lane == HANDLE_LANE,
            schedule.c.ready_at < books.at(conn) - LIVE_LAG_MAX_US,
            outbox.c.origin == LIVE,
            outbox.c.tries == 0,
        )
        .limit(1)
    )
    return waiting.first() is not None


def _load(clerk: Clerk, run_id: UUID) -> RowMapping:
    return transact(clerk.engine, lambda conn: runs.load(conn, run_id), is_durable=False)
