"""What must hold at the end of a day of the shop, by what the recipients did and the rows say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, select

from landed.effects.state import State
from landed.ledger import Ledger
from landed.records.invariants import check
from landed.records.tables import effects, outbox, quarantine, receipts, reviews
from landed.sim.ablations.deeds import INVOICE, Seen, bills

Check = Callable[[Seen, Connection], Iterator[str]]


def wrong(seen: Seen, ledger: Ledger) -> list[tuple[str, str]]:
    """Every breach: the check's name, and a sentence."""
    with ledger.engine.connect() as conn:
        found = [(one.__name__, told) for one in CHECKS for told in one(seen, conn)]
        doctor = check(conn, ledger.books)
    return [
        *found,
        *(("the_ledgers_invariants_hold", f"{one.rule}: {one.detail}") for one in doctor),
    ]


def an_acknowledged_event_is_handled_once(seen: Seen, conn: Connection) -> Iterator[str]:
    """Handled at most once, and exactly once where nothing speaks against it."""
    handled = Counter((row.producer, row.event) for row in conn.execute(select(bills)))
    set_aside = _set_aside(conn) | _parked(conn)
    for name, times in handled.items():
        if times > 1:
            yield f"event {'/'.join(name)} was handled {times} times"
    for name in sorted(seen.held - seen.strange):
        if not handled[name] and name not in set_aside:
            yield f"event {'/'.join(name)} was acknowledged, and never handled"


def what_is_acknowledged_is_kept(seen: Seen, conn: Connection) -> Iterator[str]:
    """An acknowledgement means a receipt."""
    kept = {(row.namespace, row.event_id) for row in conn.execute(select(receipts))}
    for name in sorted(seen.held - kept):
        yield f"event {'/'.join(name)} was acknowledged, and there is no receipt of it"


def nothing_forged_is_taken(seen: Seen, _conn: Connection) -> Iterator[str]:
    """A wrong signature is refused before anything is kept."""
    if seen.forged_kept:
        yield f"{seen.forged_kept} forged deliveries were acknowledged"


def an_effect_acts_at_most_once(seen: Seen, _conn: Connection) -> Iterator[str]:
    """Whatever crashed, was lost, came late or was asked for twice."""
    acted = Counter((one.recipient, one.what) for one in seen.acted)
    for (recipient, what), times in acted.items():
        if times > 1:
            yield f"{recipient} acted {times} times for {what}"


def an_effect_keeps_its_key(seen: Seen, _conn: Connection) -> Iterator[str]:
    """Every attempt shows the recipient the same idempotency key."""
    for (recipient, what), keys in seen.keys.items():
        if len(keys) > 1:
            yield f"{recipient} was asked for {what} under {len(keys)} keys"


def what_is_recorded_happened(seen: Seen, conn: Connection) -> Iterator[str]:
    """Confirmed effects acted; those that ended otherwise did not, and what is open says so."""
    acted = {one.key for one in seen.acted}
    for row in conn.execute(select(effects)):
        has_acted = str(row.idempotency_key) in acted
        told = f"{row.recipient} {row.effect_key} is {row.state}"
        if row.state == State.CONFIRMED and not has_acted:
            yield f"{told}, and never acted"
        elif row.state in (State.REFUSED, State.FENCED, State.CANCELLED) and has_acted:
            if not row.is_contradicted:
                yield f"{told}, and acted"
        elif row.state in (State.PENDING, State.RETRY, State.SENDING):
            yield f"{told} still, after all that time"


def an_answer_is_recorded(seen: Seen, conn: Connection) -> Iterator[str]:
    """An effect whose success was answered, in time or late, does not stay unknown."""
    for row in conn.execute(select(effects).where(effects.c.state == State.UNKNOWN.value)):
        identity = row.effect_key.split("/")[:2]
        if (row.recipient, " ".join(identity)) in seen.answered:
            yield f"{row.recipient} {row.effect_key} was answered, and is still unknown"


def an_order_never_goes_back(seen: Seen, _conn: Connection) -> Iterator[str]:
    """The recipient never takes an older version after a newer one."""
    versions = [one.version for one in seen.acted if one.what.startswith("terms")]
    if versions != sorted(versions):
        yield f"the bank took the terms in the order {versions}"


def what_is_published_arrives(seen: Seen, conn: Connection) -> Iterator[str]:
    """Whatever a handler published in its transaction reaches the bus, at least once."""
    for row in conn.execute(select(bills)):
        sent = seen.sent.get((row.producer, row.event), set())
        if any(type == INVOICE for type, _ in sent):
            name = f"{row.producer}/{row.event}"
            if name not in seen.arrived:
                yield f"{name} was billed, and the bus never heard of it"


def a_changed_event_is_told_to_a_person(seen: Seen, conn: Connection) -> Iterator[str]:
    """The same event with another payload opens a review; the first one stands."""
    told = _subjects(conn, "receipt_conflict")
    for row in conn.execute(select(receipts)):
        sent = seen.sent.get((row.namespace, row.event_id), set())
        bodies = {body for _, body in sent}
        if len(bodies) > 1 and str(row.receipt_id) not in told:
            yield f"{row.namespace}/{row.event_id} came with {len(bodies)} payloads, told to nobody"


def a_changed_wish_is_told_to_a_person(seen: Seen, conn: Connection) -> Iterator[str]:
    """Two events that ask for one effect with other payloads: the second one is set aside."""
    wishes: dict[str, set[str]] = {}
    for row in conn.execute(select(bills)):
        sent = seen.sent.get((row.producer, row.event), set())
        if len(sent) == 1:
            ((type, invoice),) = sent
            if type == INVOICE:
                wishes.setdefault(json.loads(invoice)["id"], set()).add(invoice)
    for bodies in wishes.values():
        if len(bodies) > 1:
            yield f"events that ask for one effect in {len(bodies)} ways were all handled"


def what_is_not_understood_is_set_aside(seen: Seen, conn: Connection) -> Iterator[str]:
    """An authentic event of an unknown type is quarantined, with a review."""
    set_aside = _set_aside(conn)
    for name in sorted(seen.strange - set_aside):
        if len(seen.sent[name]) == 1:
            yield f"{'/'.join(name)} is of a type that nobody knows, and was not set aside"


CHECKS: Final[tuple[Check, ...]] = (
    an_effect_acts_at_most_once,
    an_effect_keeps_its_key,
    an_order_never_goes_back,
    what_is_recorded_happened,
    an_answer_is_recorded,
    an_acknowledged_event_is_handled_once,
    what_is_acknowledged_is_kept,
    nothing_forged_is_taken,
    what_is_published_arrives,
    a_changed_event_is_told_to_a_person,
    a_changed_wish_is_told_to_a_person,
    what_is_not_understood_is_set_aside,
)


def _set_aside(conn: Connection) -> set[tuple[str, str]]:
    """Events in quarantine, by producer and event."""
    rows = conn.execute(
        select(receipts.c.namespace, receipts.c.event_id).join(
            quarantine, quarantine.c.receipt_id == receipts.c.receipt_id
        )
    )
    return {(row.namespace, row.event_id) for row in rows}


def _parked(conn: Connection) -> set[tuple[str, str]]:
    """Events whose handling waits for a person."""
    rows = conn.execute(
        select(receipts.c.namespace, receipts.c.event_id)
        .join(outbox, outbox.c.cause_id == receipts.c.receipt_id)
        .where(outbox.c.kind == "handle", outbox.c.state == "parked")
    )
    return {(row.namespace, row.event_id) for row in rows}


def _subjects(conn: Connection, kind: str) -> set[str]:
    found = conn.execute(select(reviews.c.subject_id).where(reviews.c.kind == kind))
    return set(found.scalars())
