"""What a run would do, found by doing it item by item and taking it back (rule BF-7)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, exists, select

from landed.deliveries.event import Rejected
from landed.intake.admission import Admitted, Refused
from landed.records import effects, runs
from landed.records.origins import LIVE
from landed.records.receipts import Arrival, Kept, Taken
from landed.records.session import transact
from landed.records.tables import effect_causes
from landed.records.tables import effects as effect_rows
from landed.registry import Tx
from landed.workers.backfill import Clerk, keep_judged
from landed.workers.events import event_of, stored_rows
from landed.workers.sources import DeliveryFile


class Foreseen(NamedTuple):
    """What a run would do, as far as the records of this moment tell."""

    counts: Mapping[str, int]
    effect_keys: tuple[str, ...]
    """Of effects that would be new, as ``recipient/key``."""
    failures: tuple[str, ...]
    """What handlers raised, with the event's id."""


class _TakenBackError(Exception):
    """Ends the transaction of an item that was only tried."""


class _Tally:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(
            ("accepted", "duplicates", "ignored", "quarantined", "conflicts", "rejected"), 0
        )
        self.keys: dict[str, None] = {}
        self.failures: list[str] = []
        self.seen: dict[bytes, bytes] = {}


def rehearse(clerk: Clerk, plan: runs.Plan, source: DeliveryFile) -> Foreseen:
    """Say what a run of this plan would do: no network, and no row stays.

    Handlers run, up to the end of their transaction, which is rolled back. What they do outside it
    they should not do anyway (rule HN-1).
    """
    keeper = clerk.doorkeeper()
    tally = _Tally()
    for start in range(0, source.total, clerk.batch):
        for item in source.read(start, clerk.batch):
            judged = item.admit(
                keeper,
                namespace=plan.namespace,
                origin=LIVE,
                is_stale_approved=plan.is_stale_approved,
            )
            if isinstance(judged, Refused):
                tally.counts["rejected"] += 1
                continue
            try:
                transact(
                    clerk.engine,
                    partial(_try, clerk, tally, judged),
                    is_durable=False,
                )
            except _TakenBackError:
                continue
    return Foreseen(tally.counts, tuple(tally.keys), tuple(tally.failures))


def _try(clerk: Clerk, tally: _Tally, judged: Admitted, conn: Connection) -> None:
    taken, rejected = keep_judged(clerk, conn, judged)
    tally.counts["rejected"] += len(rejected)
    arrivals = [arrival for arrival in judged.arrivals if not isinstance(arrival, Rejected)]
    if len(arrivals) == len(taken):
        for arrival, item in zip(arrivals, taken, strict=True):
            _count(clerk, tally, conn, arrival, item)
    raise _TakenBackError


def _count(clerk: Clerk, tally: _Tally, conn: Connection, arrival: Arrival, item: Taken) -> None:
    digest = clerk.books.identity_digest(
        arrival.verified.namespace, arrival.event.source, arrival.event.id
    )
    first = tally.seen.get(digest)
    tally.seen.setdefault(digest, arrival.fingerprint.digest)
    (word,) = [name for name, number in runs.tally_of([item]).items() if number]
    if isinstance(item, Kept) and first is not None:
        # An earlier item of the file is the same event: a real run would have kept that one.
        word = "duplicates" if first == arrival.fingerprint.digest else "conflicts"
    elif isinstance(item, Kept) and item.disposition == "accepted":
        _handle(clerk, tally, conn, item.receipt_id, arrival)
    tally.counts[word] += 1


def _handle(
    clerk: Clerk, tally: _Tally, conn: Connection, receipt_id: UUID, arrival: Arrival
) -> None:
    row = stored_rows(conn, [receipt_id])[receipt_id]
    event = event_of(row, clerk.registry)
    for name in arrival.handlers:
        cause = effects.Cause(kind="receipt", id=str(receipt_id), handler=name)
        nested = conn.begin_nested()
        try:
            tx = Tx(conn, clerk.books, clerk.registry, cause=cause, event=event)
            clerk.registry.handlers[name].function(tx, event)
            tx.flush()
            nested.commit()
        except Exception as e:  # noqa: BLE001  # a user's handler; what it raises is the finding
            nested.rollback()
            tally.failures.append(f"{arrival.event.id}: {name}: {type(e).__name__}: {e}"[:500])
    other = effect_causes.alias("other")
    made = conn.execute(
        select(effect_rows.c.recipient, effect_rows.c.effect_key)
        .join(effect_causes, effect_causes.c.effect_id == effect_rows.c.effect_id)
        .where(
            effect_causes.c.cause_id == str(receipt_id),
            ~exists().where(
                other.c.effect_id == effect_rows.c.effect_id, other.c.cause_id != str(receipt_id)
            ),
        )
    )
    tally.keys.update(dict.fromkeys(f"{recipient}/{key}" for recipient, key in made))
