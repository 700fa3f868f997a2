"""What people do to effects: hold, release, requeue, cancel, ask, attest. All by the table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, insert

from landed.effects.contract import Contract
from landed.effects.doubt import standing
from landed.effects.state import TERMINAL, Certainty, Finality, Method, Reason, State
from landed.effects.transitions import Happening, Kind, decide
from landed.errors import ActionRefusedError
from landed.records import reviews, schedule, settle
from landed.records.actions import Action, Done, Facts, perform
from landed.records.effects import EFFECT, EffectView, effect_lane, moved, reconcile_lane, view
from landed.records.session import Books
from landed.records.tables import reconciliations


class Case(NamedTuple):
    """The effect that an operator acts on, with what its type brings along."""

    effect_id: UUID
    contract: Contract
    """The one it is bound to (``contracts.load``)."""
    delays: settle.Delays
    """Who listens to its settlement."""


def hold(conn: Connection, books: Books, action: Action, case: Case) -> Done:
    """``effect.hold``: nothing of it is begun until it is released. Stops no answer, no question."""

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        if effect.state in TERMINAL:
            raise _refused(effect, "hold", "it is settled; only an open effect can be held")
        _flag(conn, effect, held_by=action.actor, held_reason=action.reason)
        return {"held_by": effect.held_by}, {"held_by": action.actor}

    return _act(conn, books, action, "effect.hold", case, work)


def release(conn: Connection, books: Books, action: Action, case: Case) -> Done:
    """``effect.release``: end a hold; what is due is due at once."""

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        if effect.held_by is None:
            raise _refused(effect, "release", "nobody holds it")
        _flag(conn, effect, held_by=None, held_reason=None)
        if effect.state in (State.PENDING, State.RETRY):
            _due(conn, books, effect, effect_lane(effect.recipient))
        return {"held_by": effect.held_by}, {"held_by": None}

    return _act(conn, books, action, "effect.release", case, work)


def requeue(conn: Connection, books: Books, action: Action, case: Case) -> Done:
    """``effect.requeue``: a parked effect may be sent again, with a fresh budget (E25)."""

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        verdict = decide(Happening.REQUEUE, standing(effect.doubt, case.contract))
        if verdict.kind is not Kind.MOVE:
            raise _refused(effect, "requeue", "only a parked effect can be sent again by a person")
        if effect.is_contradicted:
            raise _refused(effect, "requeue", "there is proof that it acted; reconcile it instead")
        _move(
            conn,
            effect,
            verdict.to,
            {"reason": None, "budget_from": effect.attempt_no},
        )
        _due(conn, books, effect, effect_lane(effect.recipient))
        _close(conn, books, action, effect)
        return _states(effect, verdict.to)

    return _act(conn, books, action, "effect.requeue", case, work)


def cancel(conn: Connection, books: Books, action: Action, case: Case) -> Done:
    """``effect.cancel``: at once where nothing may have acted; else it is asked for (E26, AS-71).

    In doubt, only a seal can cancel: the reconciler places it next. While an attempt is open, the
    cancel takes place if the attempt proves not to have acted.
    """

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        verdict = decide(Happening.CANCEL, standing(effect.doubt, case.contract))
        if verdict.kind is Kind.MOVE:
            values = {
                "reason": Reason.OPERATOR.value,
                **settle.terminal_values(conn, books, None, Certainty.PROVEN),
            }
            _move(conn, effect, verdict.to, values)
            settle.after_move(conn, books, effect, case.contract, verdict.to, delays=case.delays)
            _close(conn, books, action, effect)
            return _states(effect, verdict.to)
        if effect.state is State.UNKNOWN:
            if case.contract.seal is None:
                raise _refused(
                    effect,
                    "cancel",
                    "it may have acted, and its recipient cannot seal it; reconcile or attest it",
                )
            _flag(conn, effect, is_cancel_requested=True)
            _due(conn, books, effect, reconcile_lane(effect.recipient))
        elif verdict.kind is Kind.STAY:
            _flag(conn, effect, is_cancel_requested=True)
        else:
            raise _refused(effect, "cancel", "only what has not been taken can be cancelled")
        before, after = _states(effect, effect.state)
        return before, {**after, "is_cancel_requested": True}

    return _act(conn, books, action, "effect.cancel", case, work)


def reconcile(conn: Connection, books: Books, action: Action, case: Case) -> Done:
    """``effect.reconcile``: ask the recipient now rather than later."""

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        may_ask = effect.state in (State.UNKNOWN, State.ACCEPTED) or (
            effect.state is State.PARKED and effect.is_contradicted
        )
        if not may_ask:
            raise _refused(effect, "reconcile", "only an effect in doubt is asked about")
        _due(conn, books, effect, reconcile_lane(effect.recipient))
        return _states(effect, effect.state)

    return _act(conn, books, action, "effect.reconcile", case, work)


def attest(
    conn: Connection,
    books: Books,
    action: Action,
    case: Case,
    *,
    has_acted: bool,
    evidence: str,
    result: bytes | None = None,
    approved_by: str | None = None,
) -> Done:
    """``effect.attest``: a person says what became of it; certainty ``attested`` (RN-8, E27, E28).

    An attested absence does not send again: it parks the effect, and requeueing is an act of its
    own.

    Args:
        conn: inside a transaction.
        books: the ledger's.
        action: who and why.
        case: the effect.
        has_acted: what the person says.
        evidence: what it rests on: a statement, a ticket, a person at the recipient.
        result: what it answered, if that is known.
        approved_by: a second person, where the installation asks for one; not the actor.
    """
    if approved_by is not None and approved_by == action.actor:
        raise ActionRefusedError("the second person must be another one")

    def work(effect: EffectView) -> tuple[Facts, Facts]:
        if not evidence.strip():
            raise _refused(effect, "attest", "say what it rests on")
        happening = Happening.ATTEST_ACTED if has_acted else Happening.ATTEST_ABSENT
        verdict = decide(happening, standing(effect.doubt, case.contract))
        if verdict.kind is not Kind.MOVE:
            raise _refused(effect, "attest", "only an effect in doubt can be attested")
        values: dict[str, object] = {"doubt_from": None, "is_cancel_requested": False}
        if verdict.to in TERMINAL:
            values |= {"reason": None}
            values |= settle.terminal_values(conn, books, result, Certainty.ATTESTED)
        else:
            values |= {
                "reason": Reason.ATTESTED_ABSENT.value,
                "certainty": Certainty.ATTESTED.value,
                "first_sight_at": None,
            }
        _move(conn, effect, verdict.to, values)
        _note_attested(conn, books, effect, verdict.to, evidence, has_acted=has_acted)
        if verdict.to in TERMINAL:
            settle.after_move(conn, books, effect, case.contract, verdict.to, delays=case.delays)
        else:
            schedule.drop(conn, kind=EFFECT, subject_id=effect.effect_id)
        _close(conn, books, action, effect)
        before, after = _states(effect, verdict.to)
        return before, {**after, "approved_by": approved_by}

    return _act(conn, books, action, "effect.attest", case, work)


def _act(
    conn: Connection,
    books: Books,
    action: Action,
    verb: str,
    case: Case,
    work: Callable[[EffectView], tuple[Facts, Facts]],
) -> Done:
    def on_effect() -> tuple[Facts, Facts]:
        effect = view(conn, case.effect_id)
        if effect is None:
            raise ActionRefusedError(f"there is no effect {case.effect_id}")
        return work(effect)

    return perform(conn, books, action, verb, f"{EFFECT}/{case.effect_id}", on_effect)


def _move(conn: Connection, effect: EffectView, to: State, values: dict[str, object]) -> None:
    if not moved(conn, effect, to, values):
        raise ActionRefusedError(
            f"effect {effect.effect_id} was {effect.state.value} and has moved meanwhile: look again"
        )


def _flag(conn: Connection, effect: EffectView, **values: object) -> None:
    """Change what is not the state, guarded like a move."""
    if not moved(conn, effect, effect.state, values):
        raise ActionRefusedError(
            f"effect {effect.effect_id} was {effect.state.value} and has moved meanwhile: look again"
        )


def _due(conn: Connection, books: Books, effect: EffectView, lane: str) -> None:
    schedule.move(conn, books, kind=EFFECT, subject_id=effect.effect_id, lane=lane, delay_us=0)


def _close(conn: Connection, books: Books, action: Action, effect: EffectView) -> None:
    reviews.close_subject(
        conn,
        books,
        subject_kind=EFFECT,
        subject_id=effect.effect_id,
        by=action.actor,
        note=action.reason,
    )


def _note_attested(
    conn: Connection,
    books: Books,
    effect: EffectView,
    to: State,
    evidence: str,
    *,
    has_acted: bool,
) -> None:
    conn.execute(
        insert(reconciliations).values(
            reconciliation_id=books.new_id(),
            effect_id=effect.effect_id,
            asked_at=books.at(conn),
            method=Method.OPERATOR.value,
            answer="present" if has_acted else "absent",
            finality=Finality.NONE.value,
            evidence_digest=hashlib.sha256(evidence.encode()).digest(),
            evidence=evidence[:2000],
            decision=to.value,
        )
    )


def _states(effect: EffectView, to: State) -> tuple[Facts, Facts]:
    return {"state": effect.state.value}, {"state": to.value}


def _refused(effect: EffectView, verb: str, possible: str) -> ActionRefusedError:
    return ActionRefusedError(f"cannot {verb}: it is {effect.state.value}; {possible}")
