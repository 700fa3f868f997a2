"""The executor: takes due effects of one recipient and makes their attempts.

Claim and begin in one durable transaction, send with nothing open, end. A claim says only who works
next; what is begun is guarded by the effect's own row (invariants I-5, I-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from sqlalchemy import Connection

from landed.effects.contract import Contract
from landed.effects.order import OrderPolicy
from landed.effects.state import TERMINAL, State
from landed.records import attempts, deadlines, lanes, schedule
from landed.records.attempts import GRACE_US, Begun
from landed.records.effects import EffectView, effect_lane, reconcile_lane, view, views
from landed.registry import EffectType
from landed.workers.agent import LaneAgent
from landed.workers.attempt import Attempts
from landed.workers.desk import Desk
from landed.workers.flow import Flow

UNDECLARED_US: Final = 60_000_000
"""How long an effect waits whose type or contract this program does not know."""
WAIT_US: Final = 1_000_000
"""How long a newer effect waits before it is looked at again behind an older one."""


BATCH_MAX: Final = 100
"""Effects begun in one transaction: enough for its cost to be shared, few enough for it to be short."""


class Piece(NamedTuple):
    """A claimed effect as it stood when it was claimed."""

    claim: schedule.Claim
    effect: EffectView | None


class Made(NamedTuple):
    """A claimed effect, and the attempt that was begun for it, if it could be."""

    claim: schedule.Claim
    effect: EffectView | None
    begun: Begun | None
    contract: Contract | None
    effect_type: EffectType[Any] | None
    started_ms: float
    """On the monotonic clock, before it was begun."""


class Executor(LaneAgent[Made]):
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

    async def take(self, limit: int) -> Sequence[Made]:
        """Claim and begin what may be sent now; nothing while the recipient is left alone.

        Whoever is begun has its right to one call, so that nothing begun has to wait.

        Raises:
            StorageError: nothing was begun; or it is not known whether it was (KP-15), and then
                nothing is sent either: the attempts are reaped.
        """
        taken = self._flow.take_some(min(limit, BATCH_MAX))
        if not taken:
            return ()
        begun = 0
        started_ms = float(self._desk.books.clock.monotonic_ms())
        try:
            made = await self._desk.transact(lambda conn: self._begun(conn, taken, started_ms))
            begun = sum(one.begun is not None for one in made)
            if begun:
                self._desk.crash_point("KP-15")
        except BaseException:
            begun = 0
            raise
        finally:
            self._flow.give_back(taken - begun)
        return made

    async def work(self, piece: Made) -> None:
        """Send what was begun, and end it; or put what could not be begun where it belongs."""
        desk, effect = self._desk, piece.effect
        if effect is None:
            await desk.transact(lambda conn: schedule.finish(conn, [piece.claim]))
            return
        if piece.contract is None or piece.effect_type is None:
            desk.note(
                "effect.undeclared", {"recipient": effect.recipient, "type": effect.effect_type}
            )
            await desk.transact(
                lambda conn: schedule.rearm(conn, desk.books, piece.claim, delay_us=UNDECLARED_US)
            )
            return
        if piece.begun is None:
            await desk.transact(lambda conn: self._place(conn, piece, effect))
            return
        await self._attempts.finish(
            piece.begun, piece.contract, piece.effect_type, started_ms=piece.started_ms
        )

    def _begun(self, conn: Connection, limit: int, started_ms: float) -> list[Made]:
        """TX-CLAIM and TX-BEGIN of everything that is claimed."""
        desk = self._desk
        claimed = claim(conn, desk, self.name, limit=limit, lease_us=self._lease_us)
        made = {
            piece.claim.work_id: Made(
                piece.claim,
                piece.effect,
                None,
                None if piece.effect is None else desk.contract(conn, piece.effect),
                None if piece.effect is None else desk.effect_type(piece.effect),
                started_ms,
            )
            for piece in claimed
        }
        ready = [
            (one, one.effect, one.contract)
            for one in _newest(list(made.values()))
            if one.effect is not None
            and one.contract is not None
            and one.effect_type is not None
            and not deadlines.is_overtaken(conn, one.effect, one.contract)
        ]
        begun = attempts.begin_all(
            conn,
            desk.books,
            [(effect, contract) for _, effect, contract in ready],
            worker=desk.worker,
        )
        for (one, _, _), attempt in zip(ready, begun, strict=True):
            if isinstance(attempt, Begun):
                made[one.claim.work_id] = one._replace(begun=attempt)
        if any(one.begun is not None for one in made.values()):
            desk.crash_point("KP-14")
        return list(made.values())

    def _place(self, conn: Connection, piece: Made, seen: EffectView) -> None:
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
        elif contract is not None and deadlines.is_overtaken(conn, effect, contract):
            # The reconciler seals it.
            schedule.rearm(
                conn, desk.books, claim, delay_us=0, lane=reconcile_lane(effect.recipient)
            )
        else:
            if contract is not None and contract.seal is not None:
                deadlines.wake_older(conn, desk.books, effect)
            schedule.rearm(conn, desk.books, claim, delay_us=WAIT_US)


def _newest(made: Sequence[Made]) -> list[Made]:
    """Leave out older versions where the latest wins: once it has, they are not needed (E30)."""
    newest: dict[tuple[str | None, str | None], int] = {}
    for one in made:
        if _is_latest_wins(one.effect):
            place = (one.effect.order_domain, one.effect.order_key)
            newest[place] = max(newest.get(place, 0), one.effect.version or 0)
    return [
        one
        for one in made
        if not _is_latest_wins(one.effect)
        or one.effect.version == newest[one.effect.order_domain, one.effect.order_key]
    ]


def _is_latest_wins(effect: EffectView | None) -> TypeGuard[EffectView]:
    return effect is not None and effect.order_policy == OrderPolicy.LATEST_WINS.value


def claim(conn: Connection, desk: Desk, lane: str, *, limit: int, lease_us: int) -> list[Piece]:
    """Claim effects of a lane, oldest first, and read them (TX-CLAIM)."""
    if lanes.why_stopped(conn, lane) is not None:
        return []
    claims = schedule.claim(
        conn, desk.books, lane=lane, owner=desk.worker, limit=limit, lease_us=lease_us
    )
    found = {effect.effect_id: effect for effect in views(conn, [c.subject_id for c in claims])}
    if claims:
        desk.crash_point("KP-13")
    return [Piece(one, found.get(one.subject_id)) for one in claims]


async def take(desk: Desk, lane: str, *, limit: int, lease_us: int) -> list[Piece]:
    """Claim effects of a lane and read them, in a transaction of its own."""
    return await desk.transact(
        lambda conn: claim(conn, desk, lane, limit=limit, lease_us=lease_us), is_durable=False
    )
