"""What must hold at the end of a day of the shop, by what the recipients did and the rows say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, select

from landed.effects.state import Finality, State
from landed.fingerprint import keyed_digest
from landed.ledger import Ledger
from landed.records.invariants import check
from landed.records.tables import (
    attempts,
    effects,
    outbox,
    quarantine,
    receipts,
    reconciliations,
    reviews,
)
from landed.sim.ablations.deeds import INVOICE, Seen, bills

Check = Callable[[Seen, Connection], Iterator[str]]

DIGEST_KEY: Final = b"the shop's own digest key"
SOURCE: Final = "/invoices"


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
    set_aside = _named(seen, _set_aside(conn) | _parked(conn))
    for name, times in handled.items():
        if times > 1:
            yield f"event {'/'.join(name)} was handled {times} times"
    for name in sorted(seen.held - seen.strange):
        if not handled[name] and name not in set_aside:
            yield f"event {'/'.join(name)} was acknowledged, and never handled"


def what_is_acknowledged_is_kept(seen: Seen, conn: Connection) -> Iterator[str]:
    """An acknowledgement means a receipt, for good: its digest stays whatever else is scrubbed."""
    kept = set(conn.execute(select(receipts.c.identity_digest)).scalars())
    for name in sorted(name for name in seen.held if _digest(name) not in kept):
        yield f"event {'/'.join(name)} was acknowledged, and there is no receipt of it"


def nothing_forged_is_taken(seen: Seen, _conn: Connection) -> Iterator[str]:
    """A wrong signature is refused before anything is kept."""
    if seen.forged_kept:
        yield f"{seen.forged_kept} forged deliveries were acknowledged"


def an_effect_acts_at_most_once(seen: Seen, _conn: Connection) -> Iterator[str]:
    """Whatever crashed, was lost, came late, was asked for twice, or lay for longer than a key lives.

    The promise ends where a contract's does: a request that comes after the recipient has forgotten its
    key, or after the bound by which all has arrived, is dropped by this world (``shop_far``). No request
    that is sent in time is excused.
    """
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
        told = f"{row.recipient} {row.effect_key or row.effect_id} is {row.state}"
        if row.state == State.CONFIRMED and not has_acted:
            yield f"{told}, and never acted"
        elif row.state in (State.REFUSED, State.FENCED, State.CANCELLED) and has_acted:
            if not row.is_contradicted:
                yield f"{told}, and acted"
        elif row.state in (State.PENDING, State.RETRY, State.SENDING):
            yield f"{told} still, after all that time"


def an_answer_is_recorded(seen: Seen, conn: Connection) -> Iterator[str]:
    """An effect whose success was answered, in time or late, does not stay unknown."""
    told = {key for identity in seen.answered for key in seen.keys[identity]}
    for row in conn.execute(select(effects).where(effects.c.state == State.UNKNOWN.value)):
        if str(row.idempotency_key) in told:
            yield f"{row.recipient} {row.effect_key} was answered, and is still unknown"


def what_is_called_absent_never_acts(seen: Seen, conn: Connection) -> Iterator[str]:
    """An absence that was taken for final was true, and stays it for every attempt begun by then."""
    acted: dict[str, set[int]] = {}
    for one in seen.acted:
        acted.setdefault(one.key, set()).add(one.attempt_no)
    final = [Finality.EXPIRY.value, Finality.QUIESCENCE.value, Finality.FENCE.value]
    rows = conn.execute(
        select(
            effects.c.recipient,
            effects.c.effect_key,
            effects.c.idempotency_key,
            attempts.c.attempt_no,
            reconciliations.c.finality,
        )
        .join(attempts, attempts.c.effect_id == effects.c.effect_id)
        .join(reconciliations, reconciliations.c.effect_id == effects.c.effect_id)
        .where(
            reconciliations.c.finality.in_(final),
            reconciliations.c.decision != "nothing changes",
            attempts.c.begun_at <= reconciliations.c.asked_at,
        )
    )
    for row in rows:
        if row.attempt_no in acted.get(str(row.idempotency_key), ()):
            yield (
                f"{row.recipient} {row.effect_key}: absent for good by {row.finality}, and attempt "
                f"{row.attempt_no} acted"
            )


def what_is_sealed_never_acts(seen: Seen, conn: Connection) -> Iterator[str]:
    """A tombstone holds: whoever was told "sealed, never acted" is right for ever."""
    acted = {one.key for one in seen.acted}
    rows = conn.execute(
        select(effects.c.effect_key, effects.c.idempotency_key)
        .join(reconciliations, reconciliations.c.effect_id == effects.c.effect_id)
        .where(reconciliations.c.answer == "sealed")
    )
    for row in rows:
        if str(row.idempotency_key) in acted:
            yield f"{row.effect_key} was sealed, and acted"


def an_order_never_goes_back(seen: Seen, _conn: Connection) -> Iterator[str]:
    """No recipient takes an older version after a newer one, by its fence or by its seals."""
    for recipient in ("bank", "office"):
        versions = [
            one.version
            for one in seen.acted
            if one.recipient == recipient and one.what.startswith("terms")
        ]
        if versions != sorted(versions):
            yield f"the {recipient} took the terms in the order {versions}"


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
    kept = {row.identity_digest: str(row.receipt_id) for row in conn.execute(select(receipts))}
    for name, sent in seen.sent.items():
        bodies = {body for _, body in sent}
        if len(bodies) > 1 and kept.get(_digest(name)) not in told:
            yield f"{'/'.join(name)} came with {len(bodies)} payloads, told to nobody"


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
    set_aside = _named(seen, _set_aside(conn))
    for name in sorted(seen.strange - set_aside):
        if len(seen.sent[name]) == 1:
            yield f"{'/'.join(name)} is of a type that nobody knows, and was not set aside"


CHECKS: Final[tuple[Check, ...]] = (
    an_effect_acts_at_most_once,
    an_effect_keeps_its_key,
    what_is_called_absent_never_acts,
    what_is_sealed_never_acts,
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


def _digest(name: tuple[str, str]) -> bytes:
    """The identity digest of an event, by a rule of its own: not the one that may be broken."""
    return keyed_digest(DIGEST_KEY, *(part.encode() for part in (name[0], SOURCE, name[1])))


def _named(seen: Seen, digests: set[bytes]) -> set[tuple[str, str]]:
    """The acknowledged events whose digest is among these."""
    return {name for name in seen.held if _digest(name) in digests}


def _set_aside(conn: Connection) -> set[bytes]:
    """Events in quarantine, by their digest."""
    return set(
        conn.execute(
            select(receipts.c.identity_digest).join(
                quarantine, quarantine.c.receipt_id == receipts.c.receipt_id
            )
        ).scalars()
    )


def _parked(conn: Connection) -> set[bytes]:
    """Events whose handling waits for a person, by their digest."""
    return set(
        conn.execute(
            select(receipts.c.identity_digest)
            .join(outbox, outbox.c.cause_id == receipts.c.receipt_id)
            .where(outbox.c.kind == "handle", outbox.c.state == "parked")
        ).scalars()
    )


def _subjects(conn: Connection, kind: str) -> set[str]:
    found = conn.execute(select(reviews.c.subject_id).where(reviews.c.kind == kind))
    return set(found.scalars())
