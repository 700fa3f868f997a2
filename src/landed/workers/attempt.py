"""One attempt: opened durably, sent with no transaction open, and closed with what came back.

The executor and the reconciler's same-key resend go through here alike; there is no other way to a
sender, and none that sends an effect under a fresh key (rule AT-9).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, select
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

from landed.effects.answer import (
    Abandoned,
    Ambiguous,
    AttemptAnswer,
    Inconclusive,
    InFlight,
    NotSent,
)
from landed.effects.contract import Contract
from landed.effects.headers import FenceText, expires_text, fence_text
from landed.effects.state import Method, State
from landed.errors import StorageError
from landed.records import attempts, reconcile
from landed.records.answers import kept, outcome_of
from landed.records.attempts import Begun, Ended, NotBegun
from landed.records.effects import EffectView, view
from landed.records.tables import attempts as attempt_rows
from landed.registry import EffectType
from landed.registry.calls import Call
from landed.workers.desk import Desk
from landed.workers.ends import Ends, Waiting
from landed.workers.flow import Flow

_MARGIN: Final = 0.05
"""Part of an attempt's time kept back, so that a sender is cut off before the send deadline."""
_MARGIN_MAX_S: Final = 1.0
_END_TRIES: Final = 5
_END_PAUSE_S: Final = 0.2
_END_PAUSE_MAX_S: Final = 1.0


class Attempts:
    """Makes attempts at one recipient."""

    def __init__(self, desk: Desk, flow: Flow) -> None:
        self._desk = desk
        self._flow = flow
        self._ends = Ends(self._write, self._write_alone)

    async def make(
        self,
        effect: EffectView,
        contract: Contract,
        effect_type: EffectType[Any],
        *,
        is_resend: bool = False,
    ) -> Ended | NotBegun:
        """Begin, send, end. The caller has taken the right to one call from the flow.

        Raises:
            StorageError: nothing was begun; or it is not known whether it was (KP-15), and then
                nothing was sent either: the attempt is reaped.
        """
        started_ms = float(self._desk.books.clock.monotonic_ms())
        try:
            begun = await self._begin(effect, contract)
        except BaseException:
            self._flow.give_back()
            raise
        if isinstance(begun, NotBegun):
            self._flow.give_back()
            return begun
        return await self.finish(
            begun, contract, effect_type, started_ms=started_ms, is_resend=is_resend
        )

    async def finish(
        self,
        begun: Begun,
        contract: Contract,
        effect_type: EffectType[Any],
        *,
        started_ms: float,
        is_resend: bool = False,
    ) -> Ended:
        """Send what was begun, and end it; its right to one call is used up, whatever happens.

        Args:
            begun: durably, by this worker, a moment ago.
            contract: the one it is bound to.
            effect_type: what is declared for it.
            started_ms: on the monotonic clock, before it was begun.
            is_resend: a question is counted where it settles nothing.
        """
        desk, effect = self._desk, begun.effect
        try:
            answer = await self._sent(begun, contract, effect_type, started_ms=started_ms)
        except BaseException:
            # We are being stopped: the attempt stays open, and is reaped (rule AT-11).
            self._flow.give_back()
            raise
        self._flow.answered(answer)
        answered = attempts.Answered(
            effect, contract, answer, desk.delays(effect), begun.attempt_no
        )
        ended = await self._ends.end(answered, is_resend=is_resend)
        desk.note(
            "attempt.ended",
            {
                "effect_id": str(effect.effect_id),
                "recipient": effect.recipient,
                "type": effect.effect_type,
                "attempt": begun.attempt_no,
                "outcome": outcome_of(answer),
                "state": ended.state.value,
                "was_late": ended.was_late,
                "seconds": (desk.books.clock.monotonic_ms() - started_ms) / 1000,
            },
        )
        return ended

    # --- TX-BEGIN -----------------------------------------------------------------------------

    async def _begin(self, effect: EffectView, contract: Contract) -> Begun | NotBegun:
        desk = self._desk

        def _work(conn: Connection) -> Begun | NotBegun:
            begun = attempts.begin(conn, desk.books, effect, contract, worker=desk.worker)
            if isinstance(begun, Begun):
                desk.crash_point("KP-14")
            return begun

        begun = await desk.transact(_work)
        if isinstance(begun, Begun):
            desk.crash_point("KP-15")
        return begun

    # --- The send -----------------------------------------------------------------------------

    async def _sent(
        self, begun: Begun, contract: Contract, effect_type: EffectType[Any], *, started_ms: float
    ) -> AttemptAnswer:
        """Have the sender make one attempt; whatever it does, an answer comes out (rule AT-3)."""
        passed_s = (self._desk.books.clock.monotonic_ms() - started_ms) / 1000
        margin_s = min(_MARGIN_MAX_S, contract.timeout_s * _MARGIN)
        left_s = contract.timeout_s - margin_s - passed_s
        if left_s <= 0:
            # A worker that was paused after TX-BEGIN: it has sent nothing, and does not.
            return NotSent("its time was over before it could be sent")
        call = call_of(begun, contract, effect_type, timeout_s=left_s)
        assert effect_type.sender is not None, "checked at the start"
        self._desk.crash_point("KP-16")
        try:
            async with asyncio.timeout(left_s):
                answer: object = await effect_type.sender(call)
        except TimeoutError:
            return Ambiguous("no answer in time")
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return Ambiguous("the sender was cancelled")
        except (Exception, SystemExit) as e:  # noqa: BLE001  # what comes back unthought of: nobody knows (AS-58)
            return kept(Ambiguous(f"{type(e).__name__}: {e}"[:500]))
        self._desk.crash_point("KP-18")
        if not isinstance(answer, AttemptAnswer) or isinstance(answer, Abandoned):
            return Ambiguous(f"the sender returned {type(answer).__name__}, which is no answer")
        try:
            return kept(answer)
        except (TypeError, ValueError) as e:
            return Ambiguous(f"the sender's {type(answer).__name__} cannot be kept: {e}")

    # --- TX-END -------------------------------------------------------------------------------

    async def _write(self, group: Sequence[Waiting]) -> list[Ended]:
        """Write the answers of several attempts in one transaction."""
        ended = await self._desk.transact(lambda conn: self._written(conn, group))
        self._desk.crash_point("KP-20")
        return ended

    async def _write_alone(self, waiting: Waiting, is_again: bool) -> Ended:
        """Write one answer; an answer in hand is worth several tries, and many while nobody can write.

        Raises:
            StorageError: it could not be written; the attempt is reaped, as if never answered.
        """
        desk, answered = self._desk, waiting.answered
        effect_id = answered.effect.effect_id

        def _work(conn: Connection) -> Ended:
            if is_again:
                found = _closed(conn, effect_id, answered.attempt_no)
                if found is not None:
                    return Ended(found, was_late=False)
            return self._written(conn, [waiting])[0]

        for tries in count(1):
            try:
                ended = await desk.transact(_work)
            except StorageError as e:
                desk.note(
                    "attempt.end_failed",
                    {"effect_id": str(effect_id), "is_outcome_known": e.is_outcome_known},
                )
                is_again = True
                is_hopeful = tries < _END_TRIES or _is_away(e)
                if not is_hopeful or not self._ends.is_worth_a_try(waiting):
                    raise
                await asyncio.sleep(min(_END_PAUSE_MAX_S, _END_PAUSE_S * tries))
            else:
                desk.crash_point("KP-20")
                return ended
        raise AssertionError("unreachable")

    def _written(self, conn: Connection, group: Sequence[Waiting]) -> list[Ended]:
        ended = attempts.end_all(conn, self._desk.books, [one.answered for one in group])
        for one, end in zip(group, ended, strict=True):
            if one.is_resend and end.state is State.UNKNOWN and not end.was_late:
                self._count_question(conn, one.answered)
        self._desk.crash_point("KP-19")
        return ended

    def _count_question(self, conn: Connection, answered: attempts.Answered) -> None:
        """A resend that settled nothing is a question without a verdict (rules RN-7, AT-13)."""
        fresh = view(conn, answered.effect.effect_id)
        assert fresh is not None, "effects are never deleted"
        answer, delays = answered.answer, answered.delays
        if isinstance(answer, InFlight) and answer.retry_after_s is not None:
            asked_us = int(answer.retry_after_s * 1_000_000)
            delays = replace(delays, question_us=max(delays.question_us, asked_us))
        reconcile.record_lookup(
            conn,
            self._desk.books,
            fresh,
            answered.contract,
            Inconclusive(),
            evidence=reconcile.Evidence(method=Method.RESEND, text=f"resend: {outcome_of(answer)}"),
            delays=delays,
        )


def call_of(
    begun: Begun, contract: Contract, effect_type: EffectType[Any], *, timeout_s: float
) -> Call:
    """What a sender is given: the exact bytes, the same key, the version, the deadline (I-6)."""
    effect = begun.effect
    assert effect.payload is not None, "only what is settled is scrubbed"
    return Call(
        effect_id=effect.effect_id,
        effect_key=effect.effect_key or "",
        idempotency_key=effect.idempotency_key,
        attempt_no=begun.attempt_no,
        body=effect.payload,
        headers=headers_of(effect, contract, effect_type, begun.send_deadline_us),
        timeout_s=timeout_s,
        version=effect.version,
        contract=contract,
    )


def headers_of(
    effect: EffectView,
    contract: Contract,
    effect_type: EffectType[Any],
    send_deadline_us: int,
) -> Mapping[str, str]:
    """Content type, the key, and the fence and the expiry where the contract has them."""
    headers = {"Content-Type": "application/json"}
    if contract.key is not None:
        headers[contract.key.header] = str(effect.idempotency_key)
    ordering = effect_type.ordering
    if (
        contract.fence is not None
        and ordering is not None
        and effect.order_key is not None
        and effect.version is not None
    ):
        fence = FenceText(ordering.domain, effect.order_key, effect.version)
        headers[contract.fence.header] = fence_text(fence)
    if contract.expiry is not None:
        headers[contract.expiry.header] = expires_text(send_deadline_us)
    return headers


def correlation_of(effect: EffectView) -> Mapping[str, str]:
    """The values recorded at the request, by which the recipient can be asked."""
    found: dict[str, str] = json.loads(effect.correlation or "{}")
    return found


def _closed(conn: Connection, effect_id: UUID, attempt_no: int) -> State | None:
    """Where the effect stands, if this attempt's end is on record already (KP-20)."""
    ended_at = conn.execute(
        select(attempt_rows.c.ended_at).where(
            attempt_rows.c.effect_id == effect_id, attempt_rows.c.attempt_no == attempt_no
        )
    ).scalar()
    if ended_at is None:
        return None
    found = view(conn, effect_id)
    return None if found is None else found.state


def _is_away(error: StorageError) -> bool:
    """Whether the database as a whole fails, rather than this one transaction."""
    return isinstance(error.__cause__, OperationalError | InterfaceError | InternalError)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
