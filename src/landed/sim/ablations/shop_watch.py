"""What must hold between two looks at a ledger: what was written stays, and doubt ends by evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from landed.effects.horizon import HouseSpans
from landed.effects.state import TERMINAL, State
from landed.records.tables import attempts, effects, receipts, reconciliations
from landed.sim.ablations.deeds import Seen

PRODUCER_RETRY_S: Final = 6 * 3_600.0
PRODUCER_TRANSIT_S: Final = 60.0
_OPERATOR_S: Final = 3_600.0
HOUSE: Final = HouseSpans(
    backlog_s=600.0,
    operator_s=_OPERATOR_S,
    look_back_s=0.0,
    clock_tolerance_s=60.0,
    scrub_every_s=3_600.0,
)
_PAYLOADS_US: Final = int(_OPERATOR_S * 1_000_000)
"""A person may still need what was sent for so long (rule RT-1)."""
_IDENTITIES_US: Final = int((PRODUCER_RETRY_S + PRODUCER_TRANSIT_S + _OPERATOR_S) * 1_000_000)
"""The longest chain by which an event of this world may still come again, without its margin."""
_TERMINAL: Final = frozenset(state.value for state in TERMINAL)

_Rows = Mapping[Any, Any]


class _Look(NamedTuple):
    """The rows that remember, at one moment."""

    receipts: _Rows
    effects: _Rows
    attempts: _Rows
    questions: _Rows


class Watch:
    """Compares each look at the ledger with the one before it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._last = _Look({}, {}, {}, {})

    def look(self, conn: Connection, *, now_us: int) -> None:
        """Look once; what is wrong is added to what was seen."""
        look = _Look(
            {row.receipt_id: row for row in conn.execute(_RECEIPTS)},
            {row.effect_id: row for row in conn.execute(_EFFECTS)},
            {(row.effect_id, row.attempt_no): row for row in conn.execute(_ATTEMPTS)},
            {row.reconciliation_id: row for row in conn.execute(_QUESTIONS)},
        )
        for check in (_stays, _doubt_ends_by_evidence, _forgets_late):
            name, find = check
            self._seen.wrong += [(name, told) for told in find(self._last, look, now_us)]
        self._last = look


_RECEIPTS: Final = select(
    receipts.c.receipt_id,
    receipts.c.identity_digest,
    receipts.c.fingerprint,
    receipts.c.received_at,
    receipts.c.disposition,
    receipts.c.settled_at,
    receipts.c.scrub_tier,
)
_EFFECTS: Final = select(
    effects.c.effect_id,
    effects.c.recipient,
    effects.c.effect_key,
    effects.c.key_digest,
    effects.c.fingerprint,
    effects.c.idempotency_key,
    effects.c.contract_digest,
    effects.c.version,
    effects.c.state,
    effects.c.attempt_no,
    effects.c.settled_at,
    effects.c.scrub_tier,
)
_ATTEMPTS: Final = select(
    attempts.c.effect_id,
    attempts.c.attempt_no,
    attempts.c.begun_at,
    attempts.c.ended_at,
    attempts.c.outcome,
    attempts.c.late_outcome,
)
_QUESTIONS: Final = select(
    reconciliations.c.reconciliation_id,
    reconciliations.c.effect_id,
    reconciliations.c.method,
    reconciliations.c.answer,
    reconciliations.c.finality,
    reconciliations.c.decision,
)
_Find = Callable[[_Look, _Look, int], Iterator[str]]


def _what_is_written_stays(before: _Look, now: _Look, _now_us: int) -> Iterator[str]:
    """Rows never go; what an answer closed stays closed by it; nothing leaves a terminal state."""
    always = {
        "receipts": ("identity_digest", "fingerprint", "received_at"),
        "effects": (
            *("key_digest", "fingerprint", "idempotency_key", "contract_digest", "version"),
        ),
        "attempts": ("begun_at",),
        "questions": ("effect_id", "method", "answer", "finality", "decision"),
    }
    once = {
        "receipts": ("settled_at",),
        "effects": ("settled_at",),
        "attempts": ("ended_at", "outcome", "late_outcome"),
        "questions": (),
    }
    for table in _Look._fields:
        old, new = getattr(before, table), getattr(now, table)
        for id, row in old.items():
            if id not in new:
                yield f"a row of the {table} is gone"
                continue
            changed = [
                name for name in always[table] if getattr(row, name) != getattr(new[id], name)
            ]
            changed += [
                name
                for name in once[table]
                if getattr(row, name) is not None and getattr(row, name) != getattr(new[id], name)
            ]
            if changed:
                yield f"{', '.join(changed)} of a row of the {table} changed"
    for id, effect in before.effects.items():
        after = now.effects.get(id)
        if after is None:
            continue
        told = f"{effect.recipient} {effect.effect_key}"
        if effect.state in _TERMINAL and after.state != effect.state:
            yield f"{told} was {effect.state}, and is {after.state}"
        if after.attempt_no < effect.attempt_no:
            yield f"{told} had {effect.attempt_no} attempts, and has {after.attempt_no}"


def _doubt_ends_only_by_evidence(before: _Look, now: _Look, _now_us: int) -> Iterator[str]:
    """An effect that was unknown and is not any more has an answer or a verdict that it had not."""
    for id, effect in before.effects.items():
        after = now.effects.get(id)
        if effect.state != State.UNKNOWN or after is None or after.state == State.UNKNOWN:
            continue
        answers = any(
            row.effect_id == id and row != before.attempts.get(key)
            for key, row in now.attempts.items()
        )
        verdicts = any(
            row.effect_id == id and key not in before.questions and row.decision != _NOTHING
            for key, row in now.questions.items()
        )
        if not answers and not verdicts:
            yield f"{effect.recipient} {effect.effect_key} was unknown, and is {after.state} for no reason"


def _nothing_is_forgotten_before_its_horizon(
    before: _Look, now: _Look, now_us: int
) -> Iterator[str]:
    """What identifies an event or an effect is readable until its longest chain is over (RT-2)."""
    ages = {1: _PAYLOADS_US, 2: _IDENTITIES_US}
    for what, old, new in (
        ("a receipt", before.receipts, now.receipts),
        ("an effect", before.effects, now.effects),
    ):
        for id, row in new.items():
            known = old.get(id)
            if row.scrub_tier == 0 or (known is not None and known.scrub_tier == row.scrub_tier):
                continue
            if row.settled_at is None or now_us - row.settled_at < ages[row.scrub_tier]:
                yield f"{what} went to tier {row.scrub_tier} before its time"


_NOTHING: Final = "nothing changes"
_stays: Final = ("what_is_written_stays", _what_is_written_stays)
_doubt_ends_by_evidence: Final = ("doubt_ends_only_by_evidence", _doubt_ends_only_by_evidence)
_forgets_late: Final = (
    "nothing_is_forgotten_before_its_horizon",
    _nothing_is_forgotten_before_its_horizon,
)
