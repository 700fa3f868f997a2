"""Questions about effects in doubt, and what an answer proves. Useless answers change nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, insert, select, update

from landed.effects.answer import (
    Absent,
    AlreadyActed,
    Inconclusive,
    InProgress,
    LookupAnswer,
    Present,
    SealAnswer,
    Sealed,
)
from landed.effects.contract import Contract
from landed.effects.doubt import standing
from landed.effects.state import TERMINAL, Certainty, Finality, Method, Reason, State
from landed.effects.transitions import Happening, Kind, LateMove, decide, late
from landed.records import reviews, settle
from landed.records.effects import EFFECT, EffectView, moved, view
from landed.records.session import Books
from landed.records.tables import reconciliations

REPEATS_KEPT: Final = 10
"""Equal useless answers kept as rows of their own; later ones are counted on the last (RN-7)."""
QUESTIONS_BEFORE_REVIEW: Final = 10
"""Questions without a verdict before a person is asked to look (E24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an answer rests on. ``text`` is shown to operators; it holds no payload."""

    method: Method
    text: str = ""
    digest: bytes | None = None
    actor: str | None = None


class Asked(NamedTuple):
    """What the answer made of the effect."""

    state: State
    is_settled: bool


def record_lookup(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    answer: LookupAnswer,
    *,
    evidence: Evidence,
    delays: settle.Delays,
    certainty: Certainty = Certainty.PROVEN,
) -> Asked:
    """Write a question's answer and what it proves (TX-RECON).

    Transaction: reconciliation row, effect state, result, schedule, settlement; or nothing.

    An absence is taken for final only if ``answer.finality`` says why; whether the contract and the
    time allow that is decided before, by ``effects.finality.final_absence``.
    """
    happening = _happening(answer)
    verdict = decide(happening, standing(effect.doubt, contract))
    decision = "nothing changes"
    to = effect.state
    if verdict.kind is Kind.MOVE:
        to = verdict.to
        decision = to.value
    elif verdict.kind is Kind.LATE:
        _late(conn, books, effect, contract, happening, answer)
        decision = "recorded late"
    _note(conn, books, effect, evidence, answer, decision)
    if verdict.kind is not Kind.MOVE:
        _ask_again(conn, books, effect, contract, delays)
        return Asked(effect.state, is_settled=effect.state in TERMINAL)
    values: dict[str, object] = {"reason": None, "doubt_from": None, "questions": 0}
    if isinstance(answer, Present | AlreadyActed):
        if answer.recipient_ref is not None:
            values["recipient_ref"] = answer.recipient_ref
        values |= settle.terminal_values(conn, books, answer.result, certainty)
    elif to in TERMINAL:
        values |= settle.terminal_values(conn, books, None, certainty)
    else:
        assert isinstance(answer, Absent), "only a final absence makes an effect sendable again"
        values |= {"is_absence_final": True, "first_sight_at": None, "certainty": certainty.value}
    if not moved(conn, effect, to, values):
        now = view(conn, effect.effect_id)
        assert now is not None, "effects are never deleted"
        return Asked(now.state, is_settled=now.state in TERMINAL)
    settle.after_move(conn, books, effect, contract, to, delays=delays)
    return Asked(to, is_settled=to in TERMINAL)


def record_seal(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    answer: SealAnswer,
    *,
    is_cancelling: bool,
    delays: settle.Delays,
) -> Asked:
    """Write what a seal answered: never acted and never will, or acted already (E20, E21)."""
    evidence = Evidence(method=Method.SEAL)
    if isinstance(answer, AlreadyActed):
        present = Present(answer.result, answer.recipient_ref)
        return record_lookup(
            conn, books, effect, contract, present, evidence=evidence, delays=delays
        )
    if isinstance(answer, Inconclusive):
        return record_lookup(
            conn, books, effect, contract, answer, evidence=evidence, delays=delays
        )
    verdict = decide(
        Happening.SEALED, standing(effect.doubt, contract, is_cancelling=is_cancelling)
    )
    _note(conn, books, effect, evidence, answer, verdict.to.value, finality=Finality.SEAL)
    if verdict.kind is not Kind.MOVE:
        return Asked(effect.state, is_settled=effect.state in TERMINAL)
    values = {
        "reason": Reason.SEALED.value,
        "doubt_from": None,
        **settle.terminal_values(conn, books, None, Certainty.PROVEN),
    }
    if moved(conn, effect, verdict.to, values):
        settle.after_move(conn, books, effect, contract, verdict.to, delays=delays)
    return Asked(verdict.to, is_settled=True)


def _happening(answer: LookupAnswer) -> Happening:
    match answer:
        case Present():
            return Happening.PRESENT
        case InProgress():
            return Happening.IN_PROGRESS
        case Absent(finality=Finality.NONE):
            return Happening.ABSENT
        case Absent(finality=Finality.FENCE):
            return Happening.ABSENT_FENCED
        case Absent():
            return Happening.ABSENT_FINAL
        case Inconclusive():
            return Happening.ABSENT


def _late(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    happening: Happening,
    answer: LookupAnswer,
) -> None:
    """An answer about an effect that is terminal already (rule RN-9)."""
    is_same = True
    if isinstance(answer, Present) and effect.result_digest is not None:
        same = hashlib.sha256(answer.result).digest() == effect.result_digest
        is_same = same or not contract.is_answer_final_for_all
    if late(happening, effect.state, is_newest=True, is_same_result=is_same) is LateMove.CONTRADICT:
        settle.contradict(conn, books, effect, "a look-up finds that it acted")


def _ask_again(
    conn: Connection, books: Books, effect: EffectView, contract: Contract, delays: settle.Delays
) -> None:
    """Come back later, ever more slowly; nothing gives up on doubt (rule AT-13)."""
    if effect.state in TERMINAL:
        return
    moved(conn, effect, effect.state, {"questions": effect.questions + 1})
    settle.after_move(conn, books, effect, contract, effect.state, delays=delays)
    if effect.questions + 1 == QUESTIONS_BEFORE_REVIEW:
        reviews.open_review(
            conn,
            books,
            reviews.Review(
                kind="doubt",
                subject_kind=EFFECT,
                subject_id=str(effect.effect_id),
                severity="warning",
                owner=delays.owner,
                note=f"{effect.recipient}: still {effect.state.value} after "
                f"{QUESTIONS_BEFORE_REVIEW} questions",
            ),
        )


def _note(
    conn: Connection,
    books: Books,
    effect: EffectView,
    evidence: Evidence,
    answer: LookupAnswer | SealAnswer,
    decision: str,
    *,
    finality: Finality | None = None,
) -> None:
    """Keep the answer as a row; equal useless ones after the tenth are counted (rule RN-7)."""
    word = _word(answer)
    why = finality or (answer.finality if isinstance(answer, Absent) else Finality.NONE)
    if decision == "nothing changes" and effect.questions >= REPEATS_KEPT:
        last: UUID | None = conn.execute(
            select(reconciliations.c.reconciliation_id)
            .where(
                reconciliations.c.effect_id == effect.effect_id,
                reconciliations.c.answer == word,
                reconciliations.c.decision == decision,
            )
            .order_by(reconciliations.c.asked_at.desc())
            .limit(1)
        ).scalar()
        if last is not None:
            conn.execute(
                update(reconciliations)
                .where(reconciliations.c.reconciliation_id == last)
                .values(repeats=reconciliations.c.repeats + 1, asked_at=books.at(conn))
            )
            return
    conn.execute(
        insert(reconciliations).values(
            reconciliation_id=books.new_id(),
            effect_id=effect.effect_id,
            asked_at=books.at(conn),
            method=evidence.method.value,
            answer=word,
            finality=why.value,
            evidence_digest=evidence.digest,
            evidence=evidence.text[:2000] or None,
            decision=decision,
        )
    )


def _word(answer: LookupAnswer | SealAnswer) -> str:
    match answer:
        case Present():
            return "present"
        case InProgress():
            return "in_progress"
        case Absent():
            return "absent"
        case Sealed():
            return "sealed"
        case AlreadyActed():
            return "already_acted"
        case Inconclusive():
            return "inconclusive"
