"""The executor: takes due effects of one recipient and makes their attempts.

Claim, begin (durable), send with nothing open, end. A claim says only who works next; what is begun
is guarded by the effect's own row (invariants I-5, I-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection

from landed.effects.state import TERMINAL, State
from landed.records import deadlines, lanes, schedule
from landed.records.attempts import GRACE_US, NotBegun
from landed.records.effects import EffectView, effect_lane, reconcile_lane, view, views
from landed.workers.agent import LaneAgent
from landed.workers.attempt import Attempts
from landed.workers.desk import Desk
from landed.workers.flow import Flow

UNDECLARED_US: Final = 60_000_000
"""How long an effect waits whose type or contract this program does not know."""
WAIT_US: Final = 1_000_000
"""How long a newer effect waits before it is looked at again behind an older one."""


class Piece(NamedTuple):
    """A claimed effect as it stood when it was claimed."""

    claim: schedule.Claim
    effect: EffectView | None


class Executor(LaneAgent[Piece]):
    """The agent of the lane ``effect:<recipient>``."""

    def __init__(self, desk: Desk, recipient: str, flow: Flow, *, slots: int | None = None) -> None:
        declared = desk.registry.recipients[recipient].contract
        super().__init__(
            effect_lane(recipient),
            slots=declared.concurrency if slots is None else min(slots, declared.concurrency),
            note=desk.note,
        )
        self._desk = desk
        self._flow = flow
        self._attempts = Attempts(desk, flow)
        self._lease_us = int((desk.tempo.lease_s + declared.timeout_s) * 1_000_000)

    async def take(self, limit: int) -> Sequence[Piece]:
        """Claim what may be sent now; nothing while the recipient is left alone."""
        limit = self._flow.room(limit)
        if limit < 1:
            return ()
        return await take(self._desk, self.name, limit=limit, lease_us=self._lease_us)

    async def work(self, piece: Piece) -> None:
        """Make one attempt at one effect, or put it where it belongs."""
        desk, effect = self._desk, piece.effect
        if effect is None:
            await desk.transact(lambda conn: schedule.finish(conn, [piece.claim]))
            return
        effect_type = desk.effect_type(effect)
        contract = desk.registry.contracts.get(effect.contract_digest)
        if contract is None:
            contract = await desk.transact(lambda conn: desk.contract(conn, effect))
        if effect_type is None or contract is None:
            desk.note(
                "effect.undeclared", {"recipient": effect.recipient, "type": effect.effect_type}
            )
            await desk.transact(
                lambda conn: schedule.rearm(conn, desk.books, piece.claim, delay_us=UNDECLARED_US)
            )
            return
        if not self._flow.take():
            await self._give_back(piece)
            return
        made = await self._attempts.make(effect, contract, effect_type)
        if isinstance(made, NotBegun):
            await desk.transact(lambda conn: self._place(conn, piece, effect))

    async def _give_back(self, piece: Piece) -> None:
        """The recipient is to be left alone: due again at once, and claimed when it may be."""
        await self._desk.transact(
            lambda conn: schedule.rearm(conn, self._desk.books, piece.claim, delay_us=0)
        )

    def _place(self, conn: Connection, piece: Piece, seen: EffectView) -> None:
        """Say where claimed work belongs that could not be begun, by what stands now."""
        desk, claim = self._desk, piece.claim
        effect = view(conn, seen.effect_id)
        if effect is None or effect.state in TERMINAL or effect.state is State.PARKED:
            schedule.finish(conn, [claim])
            return
        now_us = desk.now_us(conn)
        contract = desk.contract(conn, effect)
        if contract is not None and deadlines.expire(
            conn, desk.books, effect, contract, now_us=now_us, delays=desk.delays(effect)
        ):
            return
        if effect.state in (State.UNKNOWN, State.ACCEPTED):
            schedule.rearm(
                conn, desk.books, claim, delay_us=0, lane=reconcile_lane(effect.recipient)
            )
        elif effect.state is State.SENDING:
            # Whoever began it moves this row when it ends; else the reaper does.
            until_us = max(0, (effect.send_deadline or now_us) - now_us) + GRACE_US
            schedule.rearm(conn, desk.books, claim, delay_us=until_us)
        elif effect.held_by is not None:
            # In place; the release makes it due.
            schedule.rearm(conn, desk.books, claim, delay_us=None)
        else:
            if contract is not None and contract.seal is not None:
                deadlines.wake_older(conn, desk.books, effect)
            schedule.rearm(conn, desk.books, claim, delay_us=WAIT_US)


async def take(desk: Desk, lane: str, *, limit: int, lease_us: int) -> list[Piece]:
    """Claim effects of a lane and read them, in one transaction (TX-CLAIM)."""

    def _work(conn: Connection) -> list[Piece]:
        if lanes.why_stopped(conn, lane) is not None:
            return []
        claims = schedule.claim(
            conn, desk.books, lane=lane, owner=desk.worker, limit=limit, lease_us=lease_us
        )
        found = {effect.effect_id: effect for effect in views(conn, [c.subject_id for c in claims])}
        if claims:
            desk.crash_point("KP-13")
        return [Piece(claim, found.get(claim.subject_id)) for claim in claims]

    return await desk.transact(_work, is_durable=False)
