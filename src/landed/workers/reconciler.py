"""The reconciler: finds out what became of effects in doubt, by the first method there is (RN-2).

Evidence already received; a look-up; the same key again; a seal where one is wanted; a person.
Nothing gives up on doubt, and nothing but evidence ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

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
from landed.effects.doubt import may_resend
from landed.effects.finality import certainty_of, final_absence
from landed.effects.state import TERMINAL, Certainty, Finality, Method, Reason, State
from landed.records import deadlines, evidence, lanes, reconcile, schedule
from landed.records.answers import kept
from landed.records.attempts import NotBegun
from landed.records.effects import EffectView, effect_lane, reconcile_lane, view
from landed.registry import Ask, EffectType, SealAsk
from landed.workers.agent import LaneAgent, shielded
from landed.workers.attempt import Attempts, correlation_of
from landed.workers.desk import Desk
from landed.workers.executor import UNDECLARED_US, Piece, take
from landed.workers.flow import Flow

_LATER_US: Final = 5_000_000
_HELD_US: Final = 30_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A doubt as it stood before anything was asked. Times are the database's."""

    effect: EffectView
    contract: Contract
    effect_type: EffectType[Any]
    asked_us: int
    """When the question is asked: absence is judged by this, never by when it was answered."""
    newer_confirmed_us: int | None
    is_newer_waiting: bool
    is_overtaken: bool
    """It was never begun, and is sealed instead: only that keeps the order there (OG-5)."""
    is_paused: bool
    """A person stopped the sending to this recipient; questions go on."""
    proof: evidence.Proof | None


class Reconciler(LaneAgent[Piece]):
    """The agent of the lane ``reconcile:<recipient>``."""

    def __init__(self, desk: Desk, recipient: str, flow: Flow, *, slots: int | None = None) -> None:
        declared = desk.registry.recipients[recipient].contract
        super().__init__(
            reconcile_lane(recipient),
            slots=declared.concurrency if slots is None else min(slots, declared.concurrency),
            note=desk.note,
        )
        self._desk = desk
        self._flow = flow
        self._attempts = Attempts(desk, flow)
        # A question, then perhaps a resend or a seal.
        self._lease_us = int((desk.tempo.lease_s + 2 * declared.timeout_s) * 1_000_000)

    async def take(self, limit: int) -> Sequence[Piece]:
        """Claim doubts whose next question is due."""
        return await take(self._desk, self.name, limit=limit, lease_us=self._lease_us)

    async def work(self, piece: Piece) -> None:
        """Ask once about one effect."""
        case = await self._desk.transact(lambda conn: self._case(conn, piece))
        if case is None:
            return
        if case.proof is not None:
            await self._record(
                case,
                Present(case.proof.body),
                reconcile.Evidence(
                    method=Method.EVENT, text=case.proof.text, digest=case.proof.digest
                ),
            )
            return
        contract = case.contract
        if case.is_overtaken:
            await self._seal(case, is_cancelling=False)
            return
        if case.effect.is_cancel_requested and contract.seal is not None:
            await self._seal(case, is_cancelling=True)
            return
        has_asked = contract.lookup is not None and case.effect_type.looker is not None
        if has_asked and await self._is_settled_by_lookup(case):
            return
        if self._may_resend(case) and await self._has_resent(piece, case):
            return
        if case.is_newer_waiting and contract.seal is not None and contract.fence is None:
            await self._seal(case, is_cancelling=False)
            return
        await self._desk.transact(lambda conn: self._left(conn, piece, case, has_asked=has_asked))

    # --- What is known before the question -----------------------------------------------------

    def _case(self, conn: Connection, piece: Piece) -> Case | None:
        desk, claim = self._desk, piece.claim
        effect = view(conn, claim.subject_id)
        if effect is None or effect.state in TERMINAL:
            schedule.finish(conn, [claim])
            return None
        if effect.state is State.PARKED and not effect.is_contradicted:
            schedule.finish(conn, [claim])
            return None
        if effect.state is State.SENDING:
            # Its end, or the reaper, moves this row.
            schedule.rearm(conn, desk.books, claim, delay_us=_LATER_US)
            return None
        contract = desk.contract(conn, effect)
        effect_type = desk.effect_type(effect)
        is_sendable = effect.state in (State.PENDING, State.RETRY)
        is_overtaken = (
            is_sendable
            and effect.held_by is None
            and contract is not None
            and deadlines.is_overtaken(conn, effect, contract)
        )
        if is_sendable and not is_overtaken:
            schedule.rearm(conn, desk.books, claim, delay_us=0, lane=effect_lane(effect.recipient))
            return None
        if contract is None or effect_type is None:
            schedule.rearm(conn, desk.books, claim, delay_us=UNDECLARED_US)
            return None
        return Case(
            effect=effect,
            contract=contract,
            effect_type=effect_type,
            asked_us=desk.now_us(conn),
            newer_confirmed_us=deadlines.newer_confirmed_us(conn, effect),
            is_newer_waiting=deadlines.is_newer_waiting(conn, effect),
            is_overtaken=is_overtaken,
            is_paused=lanes.why_stopped(conn, effect_lane(effect.recipient)) is not None,
            proof=evidence.proof_of(conn, effect, contract.evidence_events),
        )

    # --- Look-up -------------------------------------------------------------------------------

    async def _is_settled_by_lookup(self, case: Case) -> bool:
        """Ask the recipient. True if nothing else need be tried now."""
        answer = await self._looked_up(case)
        if isinstance(answer, Absent):
            # Whoever answered cannot say whether that is final; the contract and the time do.
            answer = Absent(
                final_absence(
                    case.contract,
                    asked_us=case.asked_us,
                    last_send_deadline_us=case.effect.send_deadline,
                    newer_confirmed_us=case.newer_confirmed_us,
                )
            )
        text = answer.detail if isinstance(answer, Inconclusive) else ""
        digest = hashlib.sha256(answer.result).digest() if isinstance(answer, Present) else None
        await self._record(
            case, answer, reconcile.Evidence(method=Method.LOOKUP, text=text, digest=digest)
        )
        is_final = isinstance(answer, Absent) and answer.finality is not Finality.NONE
        return is_final or isinstance(answer, Present | InProgress)

    async def _looked_up(self, case: Case) -> LookupAnswer:
        looker = case.effect_type.looker
        assert looker is not None, "asked only where there is one"
        effect, contract = case.effect, case.contract
        ask = Ask(
            effect_id=effect.effect_id,
            effect_key=effect.effect_key,
            idempotency_key=effect.idempotency_key,
            recipient_ref=effect.recipient_ref,
            correlation=correlation_of(effect),
            version=effect.version,
            timeout_s=contract.timeout_s,
            contract=contract,
        )
        try:
            async with asyncio.timeout(contract.timeout_s):
                answer: object = await looker(ask)
            if isinstance(answer, LookupAnswer):
                return kept(answer)
        except TimeoutError:
            return Inconclusive("no answer in time")
        except Exception as e:  # noqa: BLE001  # a question that fails says nothing
            return kept(Inconclusive(f"{type(e).__name__}: {e}"[:500]))
        return Inconclusive(f"the look-up returned {type(answer).__name__}")

    async def _record(
        self, case: Case, answer: LookupAnswer, found: reconcile.Evidence
    ) -> reconcile.Asked:
        """TX-RECON."""
        desk = self._desk
        certainty = Certainty.PROVEN
        if isinstance(answer, Absent):
            so_far = case.effect.certainty
            certainty = certainty_of(
                answer.finality, so_far=None if so_far is None else Certainty(so_far)
            )

        def _work(conn: Connection) -> reconcile.Asked:
            asked = reconcile.record_lookup(
                conn,
                desk.books,
                case.effect,
                case.contract,
                answer,
                evidence=found,
                delays=desk.delays(case.effect),
                certainty=certainty,
            )
            desk.crash_point("KP-23")
            return asked

        asked = await shielded(desk.transact(_work))
        self._note_asked(case, found.method, type(answer).__name__, asked)
        return asked

    # --- The same key again --------------------------------------------------------------------

    def _may_resend(self, case: Case) -> bool:
        effect = case.effect
        return (
            effect.state is State.UNKNOWN
            and effect.held_by is None
            and not case.is_paused
            and not effect.is_cancel_requested
            # The recipient knows the key with another payload: sending again proves nothing (E13).
            and effect.reason != Reason.KEY_CONFLICT.value
            and may_resend(effect.doubt, case.contract, now_us=case.asked_us)
        )

    async def _has_resent(self, piece: Piece, case: Case) -> bool:
        """Send again under the same key. True if an attempt was made, or is only put off."""
        if not self._flow.take():
            await self._desk.transact(
                lambda conn: schedule.move(
                    conn,
                    self._desk.books,
                    kind=piece.claim.kind,
                    subject_id=piece.claim.subject_id,
                    lane=self.name,
                    delay_us=self._desk.question_us(case.effect),
                )
            )
            return True
        # The question may have been counted meanwhile; state and attempt guard the begin.
        made = await self._attempts.make(
            case.effect, case.contract, case.effect_type, is_resend=True
        )
        return not isinstance(made, NotBegun)

    # --- Seal ----------------------------------------------------------------------------------

    async def _seal(self, case: Case, *, is_cancelling: bool) -> None:
        desk = self._desk
        answer = await self._sealed(case)
        desk.crash_point("KP-24")

        def _work(conn: Connection) -> reconcile.Asked:
            return reconcile.record_seal(
                conn,
                desk.books,
                case.effect,
                case.contract,
                answer,
                is_cancelling=is_cancelling,
                delays=desk.delays(case.effect),
            )

        asked = await shielded(desk.transact(_work))
        self._note_asked(case, Method.SEAL, type(answer).__name__, asked)

    async def _sealed(self, case: Case) -> SealAnswer:
        sealer = case.effect_type.sealer
        if sealer is None:
            return Inconclusive("no seal is declared")
        effect = case.effect
        ask = SealAsk(
            effect_id=effect.effect_id,
            effect_key=effect.effect_key,
            idempotency_key=effect.idempotency_key,
            timeout_s=case.contract.timeout_s,
        )
        try:
            async with asyncio.timeout(case.contract.timeout_s):
                answer: object = await sealer(ask)
            if isinstance(answer, Sealed | AlreadyActed | Inconclusive):
                return kept(answer)
        except TimeoutError:
            return Inconclusive("no answer in time")
        except Exception as e:  # noqa: BLE001  # a seal that fails is asked for again
            return kept(Inconclusive(f"{type(e).__name__}: {e}"[:500]))
        return Inconclusive(f"the seal returned {type(answer).__name__}")

    # --- A person ------------------------------------------------------------------------------

    def _left(self, conn: Connection, piece: Piece, case: Case, *, has_asked: bool) -> None:
        """Nothing settled it now: say why, ask a person, and come again later (AT-13, E22)."""
        desk = self._desk
        effect = view(conn, case.effect.effect_id)
        if effect is None or effect.state in TERMINAL:
            schedule.finish(conn, [piece.claim])
            return
        now_us = desk.now_us(conn)
        is_known_otherwise = effect.reason == Reason.KEY_CONFLICT.value
        is_resendable = may_resend(effect.doubt, case.contract, now_us=now_us) and not (
            is_known_otherwise or effect.is_cancel_requested
        )
        if effect.state is not State.UNKNOWN or effect.held_by is not None or is_resendable:
            # Somebody else has it, it or its recipient is held up by a person, or it was accepted
            # and nobody can be asked.
            if not has_asked:
                delay_us = min(desk.tempo.question_max_us, _HELD_US)
                schedule.rearm(conn, desk.books, piece.claim, delay_us=delay_us)
            return
        delays = desk.delays(effect)
        if deadlines.is_horizon_passed(effect, case.contract, now_us=now_us):
            deadlines.pass_horizon(conn, desk.books, effect, case.contract, delays=delays)
        if has_asked:
            # The look-up comes again; its record has put the work where it belongs.
            return
        if not is_known_otherwise:
            deadlines.ask_person(
                conn, desk.books, effect, why="nothing but a person can settle it", delays=delays
            )
        later_us = desk.tempo.question_max_us if case.contract.evidence_events else None
        schedule.rearm(conn, desk.books, piece.claim, delay_us=later_us)

    def _note_asked(self, case: Case, method: Method, answer: str, asked: reconcile.Asked) -> None:
        self._desk.note(
            "effect.asked",
            {
                "effect_id": str(case.effect.effect_id),
                "recipient": case.effect.recipient,
                "method": method.value,
                "answer": answer,
                "state": asked.state.value,
                "is_settled": asked.is_settled,
            },
        )
