"""One effect row per meaning: found or created in the caller's own transaction.

Every move of an effect anywhere in ``records`` goes through ``moved`` here: one guarded update whose
row count is checked (rule SM-1), towards a state that ``effects.transitions`` named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    event,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from landed.effects.doubt import Doubt
from landed.effects.identity import idempotency_key
from landed.effects.order import OrderPolicy
from landed.effects.state import TERMINAL, State
from landed.errors import (
    ActionRefusedError,
    PayloadMismatchError,
    PreviousStillOpenError,
)
from landed.fingerprint import Fingerprint
from landed.records import orders, origins, schedule
from landed.records.prepared import BYTES, FLAG, ID, NUMBER, TEXT, Each, Insert, Prepared, Shape
from landed.records.session import Books
from landed.records.tables import effect_causes, effects

Ordered = orders.Ordered
EFFECT = "effect"
"""The schedule's word for an effect as a subject."""


def effect_lane(recipient: str) -> str:
    """Where effects of a recipient wait for their next attempt."""
    return f"effect:{recipient}"


def reconcile_lane(recipient: str) -> str:
    """Where effects of a recipient wait for their next question."""
    return f"reconcile:{recipient}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What asked for an effect: a receipt, a local change, or an operator."""

    kind: str
    id: str
    handler: str | None = None
    origin: str = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is asked for. The payload bytes are what will be sent, for ever."""

    recipient: str
    effect_type: str
    effect_key: str
    payload: bytes
    fingerprint: Fingerprint
    contract_digest: bytes
    cause: Cause
    order: Ordered | None = None
    not_after_us: int | None = None
    correlation: str = "{}"
    supersedes: UUID | None = None


class Requested(NamedTuple):
    """The one effect for a key. Provisional until the caller commits."""

    effect_id: UUID
    effect_key: str
    idempotency_key: UUID
    state: State
    is_created: bool


class NotNewError(Exception):
    """Of what was gathered something is not new after all: roll back, and ask for it one by one."""


class Gathered:
    """New effects of several handlers, written together at the end of their transaction.

    Each is taken to be new, and answered so. ``write`` finds out, and then nothing of it may be kept.
    """

    def __init__(self) -> None:
        self._new: dict[bytes, tuple[Mapping[str, object], Cause, schedule.Work]] = {}
        self._is_spoiled = False

    def takes(self, digest: bytes) -> bool:
        """Whether an effect may be one of these: the second one of a key is not new."""
        return digest not in self._new

    def add(self, values: Mapping[str, object], cause: Cause, work: schedule.Work) -> None:
        """One new effect."""
        self._new[values["key_digest"]] = (values, cause, work)  # type: ignore[index]  # a digest

    @contextmanager
    def watching(self, conn: Connection) -> Iterator[None]:
        """Within the block, a savepoint spoils it: what it takes back may have been gathered (EF-10)."""

        def _look(*seen: Any) -> None:
            if str(seen[2]).lstrip()[:9].upper() == "SAVEPOINT":
                self._is_spoiled = True
                raise NotNewError("a savepoint is set while effects are gathered")

        event.listen(conn, "before_cursor_execute", _look)
        try:
            yield
        finally:
            event.remove(conn, "before_cursor_execute", _look)

    def write(self, conn: Connection, books: Books) -> None:
        """Write them all.

        Raises:
            NotNewError: one of them was there already; the transaction must be rolled back.
        """
        new = list(self._new.values())
        inserted = _INSERT_EACH.run(conn, books, [values for values, _, _ in new])
        if self._is_spoiled or inserted != len(new):
            raise NotNewError("an effect that was taken for new is known")
        _follow(conn, books, [(cause, work) for _, cause, work in new])


def _follow(conn: Connection, books: Books, new: Sequence[tuple[Cause, schedule.Work]]) -> None:
    """What a new effect brings with it: its cause, and its place on the schedule."""
    _add_causes(conn, books, [(work.subject_id, cause) for cause, work in new])
    schedule.put(conn, books, [work for _, work in new])


def request(
    conn: Connection, books: Books, intent: Intent, *, gathered: Gathered | None = None
) -> Requested:
    """Find or create the one effect for a key, before any external call can exist (rule EF-1).

    Transaction: effect, cause, order head and schedule row, or nothing; inside the caller's.

    Args:
        conn: inside a transaction.
        books: the ledger's.
        intent: what is asked for.
        gathered: takes a new effect, to be written at the end of the transaction by whoever commits
            it; None writes it now.

    Raises:
        PayloadMismatchError: the key is known with another payload; nothing was written.
        OrderConflictError: another effect has this version; nothing was written.
        CeilingReachedError: of the run that this is part of; roll the item back.
    """
    digest = books.identity_digest(intent.recipient, intent.effect_key)
    if intent.order is not None:
        # An ordered effect takes the head's lock, so look before, lest a repeat waits for it.
        found = _by_digest(conn, digest)
        if found is not None:
            return _found(conn, books, intent, found)
    placed = None if intent.order is None else orders.take_place(conn, intent.order)
    effect_id = books.new_id()
    recipient_key = idempotency_key(books.ledger, intent.recipient, intent.effect_key)
    version = None if placed is None else placed.version
    values = {
        "effect_id": effect_id,
        "recipient": intent.recipient,
        "effect_type": intent.effect_type,
        "effect_key": intent.effect_key,
        "key_digest": digest,
        "payload": intent.payload,
        "payload_form": intent.fingerprint.form,
        "fingerprint": intent.fingerprint.digest,
        "idempotency_key": recipient_key,
        "contract_digest": intent.contract_digest,
        "order_domain": None if intent.order is None else intent.order.domain,
        "order_key": None if intent.order is None else intent.order.key,
        "version": version,
        "order_policy": None if intent.order is None else intent.order.policy.value,
        "is_behind_head": placed is not None and placed.is_behind_head,
        "not_after": intent.not_after_us,
        "correlation": intent.correlation,
        "supersedes": intent.supersedes,
        "origin": intent.cause.origin,
    }
    is_gathered = gathered is not None and intent.order is None and gathered.takes(digest)
    if not is_gathered and not _insert_once(conn, books, values):
        found = _by_digest(conn, digest)
        assert found is not None, (
            "a row that hindered an insert can be read in the same transaction"
        )
        return _found(conn, books, intent, found)
    if placed is not None and intent.order is not None and version is not None:
        orders.record_place(
            conn, intent.order, version, effect_id, is_newest=not placed.is_behind_head
        )
    origins.count_effect(conn, intent.cause.origin)
    group = _group(intent.order)
    work = schedule.Work(
        effect_lane(intent.recipient),
        EFFECT,
        effect_id,
        group_key=group,
        group_seq=version if group else None,
    )
    if gathered is not None and is_gathered:
        gathered.add(values, intent.cause, work)
    else:
        _follow(conn, books, [(intent.cause, work)])
    return Requested(effect_id, intent.effect_key, recipient_key, State.PENDING, is_created=True)


def revise(conn: Connection, books: Books, previous: UUID, intent: Intent) -> Requested:
    """Record a changed intention as an effect of its own, linked to the one before (rule EF-7).

    Raises:
        PreviousStillOpenError: the one before may still act.
    """
    before = view(conn, previous)
    if before is None:
        raise ActionRefusedError(f"there is no effect {previous} to revise")
    never_begun = before.state is State.PENDING and before.attempt_no == 0
    if before.state not in TERMINAL and not never_begun:
        raise PreviousStillOpenError(
            f"effect {before.effect_key!r} is {before.state}: it may still act; settle, seal or "
            "cancel it first"
        )
    requested = request(conn, books, intent)
    conn.execute(
        update(effects)
        .where(effects.c.effect_id == previous)
        .values(superseded_by=requested.effect_id)
    )
    conn.execute(
        update(effects)
        .where(effects.c.effect_id == requested.effect_id)
        .values(supersedes=previous)
    )
    return requested


class EffectView(NamedTuple):
    """One effect as it stands. Times are microseconds since 1970."""

    effect_id: UUID
    recipient: str
    effect_type: str
    effect_key: str | None
    payload: bytes | None
    fingerprint: bytes
    idempotency_key: UUID
    contract_digest: bytes
    order_domain: str | None
    order_key: str | None
    version: int | None
    order_policy: str | None
    is_behind_head: bool
    state: State
    reason: str | None
    certainty: str | None
    attempt_no: int
    doubt_from: int | None
    first_begun_at: int | None
    last_begun_at: int | None
    first_sight_at: int | None
    send_deadline: int | None
    resend_until: int | None
    not_after: int | None
    is_absence_final: bool
    has_late_success: bool
    is_contradicted: bool
    held_by: str | None
    is_cancel_requested: bool
    result: bytes | None
    result_digest: bytes | None
    recipient_ref: str | None
    correlation: str
    questions: int
    supersedes: UUID | None
    superseded_by: UUID | None
    origin: str
    created_at: int
    settled_at: int | None
    scrub_tier: int

    @property
    def doubt(self) -> Doubt:
        """What the law needs of it."""
        return Doubt(
            state=self.state,
            attempt_no=self.attempt_no,
            doubt_from=self.doubt_from,
            first_sight_us=self.first_sight_at,
            is_absence_final=self.is_absence_final,
        )


_COLUMNS: Final = EffectView._fields
_STATE: Final = _COLUMNS.index("state")
_STATES: Final = {state.value: state for state in State}


def view(conn: Connection, effect_id: UUID) -> EffectView | None:
    """Read one effect."""
    return next(iter(views(conn, [effect_id])), None)


def views(conn: Connection, effect_ids: list[UUID]) -> list[EffectView]:
    """Read several effects in one statement, in no particular order."""
    if not effect_ids:
        return []
    return [_view(row) for row in _VIEWS.execute(conn, ids=effect_ids).all()]


def view_by_key(
    conn: Connection, books: Books, recipient: str, effect_key: str
) -> EffectView | None:
    """Read the effect for a key, also after its readable key was scrubbed (rule EF-8)."""
    return _by_digest(conn, books.identity_digest(recipient, effect_key))


def is_unsettled(state: ColumnElement[str]) -> ColumnElement[bool]:
    """An effect that is not settled: in the words and the order of the index, or no planner uses it."""
    return state.not_in(
        [literal_column(f"'{state.value}'") for state in State if state in TERMINAL]
    )


def moved(conn: Connection, effect: EffectView, to: State, values: dict[str, object]) -> bool:
    """Write one move, guarded by the state and the attempt that were read (rule SM-1).

    Returns False if somebody else moved it: read again, then apply the late rules or drop the work.
    """
    result = conn.execute(
        update(effects)
        .where(
            effects.c.effect_id == effect.effect_id,
            effects.c.state == effect.state.value,
            effects.c.attempt_no == effect.attempt_no,
            effects.c.has_late_success == effect.has_late_success,
        )
        .values(state=to.value, **values)
    )
    return result.rowcount == 1


def _insert_once(conn: Connection, books: Books, values: Mapping[str, object]) -> bool:
    return _INSERT.execute(conn, books, **values).first() is not None


def _inserting(shape: Shape) -> Insert:
    return shape.insert(
        effects,
        state=literal(State.PENDING.value, TEXT),
        is_absence_final=literal(value=False),
        has_late_success=literal(value=False),
        is_contradicted=literal(value=False),
        is_cancel_requested=literal(value=False),
        created_at=shape.at,
    ).on_conflict_do_nothing(index_elements=["key_digest"])


_NEW: Final[Mapping[str, TypeEngine[Any]]] = {
    "effect_id": ID,
    "recipient": TEXT,
    "effect_type": TEXT,
    "effect_key": TEXT,
    "key_digest": BYTES,
    "payload": BYTES,
    "payload_form": TEXT,
    "fingerprint": BYTES,
    "idempotency_key": ID,
    "contract_digest": BYTES,
    "order_domain": TEXT,
    "order_key": TEXT,
    "version": NUMBER,
    "order_policy": TEXT,
    "is_behind_head": FLAG,
    "not_after": NUMBER,
    "correlation": TEXT,
    "supersedes": ID,
    "origin": TEXT,
}
_INSERT: Final = Prepared(lambda shape: _inserting(shape).returning(effects.c.effect_id), **_NEW)
_INSERT_EACH: Final = Each(_inserting, **_NEW)
_VIEWS: Final = Prepared(
    lambda shape: select(*(effects.c[name] for name in _COLUMNS)).where(
        shape.among(effects.c.effect_id, "ids")
    )
)
_BY_DIGEST: Final = Prepared(
    lambda shape: select(*(effects.c[name] for name in _COLUMNS)).where(
        effects.c.key_digest == shape["digest"]
    ),
    digest=BYTES,
)
_CAUSE: Final = Each(
    lambda each: each.insert(effect_causes, requested_at=each.at).on_conflict_do_nothing(),
    effect_id=ID,
    cause_kind=TEXT,
    cause_id=TEXT,
    handler=TEXT,
    origin=TEXT,
)


def _by_digest(conn: Connection, digest: bytes) -> EffectView | None:
    row = _BY_DIGEST.execute(conn, digest=digest).first()
    return None if row is None else _view(row)


def _found(conn: Connection, books: Books, intent: Intent, found: EffectView) -> Requested:
    if found.fingerprint != intent.fingerprint.digest:
        raise PayloadMismatchError(
            intent.effect_key, recorded=found.fingerprint, requested=intent.fingerprint.digest
        )
    _add_causes(conn, books, [(found.effect_id, intent.cause)])
    return Requested(
        found.effect_id,
        intent.effect_key,
        found.idempotency_key,
        found.state,
        is_created=False,
    )


def _add_causes(conn: Connection, books: Books, added: Sequence[tuple[UUID, Cause]]) -> None:
    _CAUSE.run(
        conn,
        books,
        [
            {
                "effect_id": effect_id,
                "cause_kind": cause.kind,
                "cause_id": cause.id,
                "handler": cause.handler,
                "origin": cause.origin,
            }
            for effect_id, cause in added
        ],
    )


def _group(order: Ordered | None) -> str | None:
    """Only strictly ordered effects wait for each other on the schedule."""
    if order is None or order.policy is not OrderPolicy.STRICT:
        return None
    return f"{order.domain}/{order.key}"


def _view(row: Row[Any]) -> EffectView:
    return EffectView._make((*row[:_STATE], _STATES[row[_STATE]], *row[_STATE + 1 :]))
