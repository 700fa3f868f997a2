"""The keeper: what time brings. Deadlines, the end of a key's memory, ageing, and gauges.

It settles no doubt and makes nothing sendable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from landed.effects.state import Reason, State
from landed.records import deadlines, retention, reviews, runs, stored_time
from landed.records.effects import EffectView, view, views
from landed.registry.horizons import policy_of
from landed.workers.desk import Desk
from landed.workers.flow import Flow

BATCH: Final = 100
_ALERT_RED_S: Final = 600.0


class Keeper:
    """The agent that keeps things in order."""

    name = "keeper"
    is_timed = True

    def __init__(self, desk: Desk, flows: Sequence[Flow] = ()) -> None:
        self._desk = desk
        self._flows = tuple(flows)
        self._policy = policy_of(desk.registry)
        self._scrubbed_ms: float | None = None
        self._gauged_ms: float | None = None
        self._page: UUID | None = None
        self.alert_age_s = 0.0
        """Age of the oldest alert nobody was told of (rule AL-4)."""

    @property
    def is_healthy(self) -> bool:
        """False while alerts do not get out."""
        return self.alert_age_s <= _ALERT_RED_S

    async def run_once(self) -> int:
        """Do what is due; returns how many rows were changed."""
        changed = await self._expire() + await self._pause_runs()
        if self._is_due(self._gauged_ms, self._desk.tempo.gauge_every_s):
            self._gauged_ms = self._now_ms()
            changed += await self._look_at_doubt()
            await self._gauge()
        if self._is_due(self._scrubbed_ms, self._desk.tempo.scrub_every_s):
            changed += await self._scrub()
        return changed

    # --- Deadlines -----------------------------------------------------------------------------

    async def _expire(self) -> int:
        """Cancel what was never begun and is too late now (E29)."""
        desk = self._desk
        ids = await desk.transact(
            lambda conn: deadlines.expired(conn, desk.books, limit=BATCH), is_durable=False
        )
        expired = 0
        for effect_id in ids:
            expired += await desk.transact(partial(self._expired, effect_id=effect_id))
        return expired

    def _expired(self, conn: Connection, *, effect_id: UUID) -> bool:
        desk = self._desk
        effect = view(conn, effect_id)
        contract = None if effect is None else desk.contract(conn, effect)
        if effect is None or contract is None:
            return False
        return deadlines.expire(
            conn,
            desk.books,
            effect,
            contract,
            now_us=desk.now_us(conn),
            delays=desk.delays(effect),
        )

    async def _pause_runs(self) -> int:
        """A recipient that is left alone gets no backfill either (rule BF-6)."""
        closed = [flow.recipient for flow in self._flows if flow.is_open]
        if not closed:
            return 0
        desk = self._desk
        because = f"{', '.join(closed)} does not answer and is left alone"
        return await desk.transact(
            lambda conn: runs.pause_all(conn, desk.books, because=because), is_durable=False
        )

    # --- Doubt ---------------------------------------------------------------------------------

    async def _look_at_doubt(self) -> int:
        """Page through the open doubts: whose resend is over (E22), whose age needs a person."""
        desk = self._desk
        ids = await desk.transact(
            lambda conn: deadlines.doubtful(conn, limit=BATCH, after=self._page), is_durable=False
        )
        self._page = ids[-1] if len(ids) == BATCH else None
        if not ids:
            return 0

        def _work(conn: Connection) -> int:
            now_us = desk.now_us(conn)
            return sum(self._told(conn, effect, now_us) for effect in views(conn, ids))

        return await desk.transact(_work)

    def _told(self, conn: Connection, effect: EffectView, now_us: int) -> bool:
        desk = self._desk
        contract = desk.contract(conn, effect)
        if contract is None or effect.state not in (State.UNKNOWN, State.ACCEPTED):
            return False
        delays = desk.delays(effect)
        is_over = deadlines.is_horizon_passed(effect, contract, now_us=now_us)
        if is_over and deadlines.pass_horizon(conn, desk.books, effect, contract, delays=delays):
            return True
        if is_over and reviews.is_open(
            conn, kind=Reason.HORIZON_PASSED.value, subject_id=str(effect.effect_id)
        ):
            return False
        since_us = effect.first_sight_at or effect.created_at
        if now_us - since_us < int(contract.series_max_s * 1_000_000):
            return False
        hours = (now_us - since_us) / 3_600_000_000
        return deadlines.ask_person(
            conn, desk.books, effect, why=f"open for {hours:.1f} h", delays=delays
        )

    # --- Ageing --------------------------------------------------------------------------------

    async def _scrub(self) -> int:
        """Scrub one batch; come again at once while there is more (TX-SCRUB)."""
        desk = self._desk

        def _work(conn: Connection) -> int:
            retention.settle_receipts(conn, desk.books)
            return retention.scrub_due(conn, desk.books, self._policy).total

        scrubbed = await desk.transact(_work)
        if scrubbed == 0:
            self._scrubbed_ms = self._now_ms()
        else:
            desk.note("keeper.scrubbed", {"rows": scrubbed})
        return scrubbed

    # --- Gauges --------------------------------------------------------------------------------

    async def _gauge(self) -> None:
        desk = self._desk

        def _work(conn: Connection) -> tuple[list[deadlines.DoubtAge], int]:
            stored_time.keep(conn, desk.books)
            return (
                list(deadlines.doubt_ages(conn, desk.books)),
                deadlines.alert_age_us(conn, desk.books),
            )

        ages, alert_us = await desk.transact(_work, is_durable=False)
        self.alert_age_s = alert_us / 1_000_000
        desk.note("landed.alert.age.max", {"seconds": self.alert_age_s})
        found = {age.recipient: age for age in ages}
        for recipient in sorted({*desk.registry.recipients, *found}):
            age = found.get(recipient)
            desk.note(
                "landed.unknown.age.max",
                {
                    "recipient": recipient,
                    "seconds": 0.0 if age is None else age.age_us / 1_000_000,
                    "count": 0 if age is None else age.doubts,
                },
            )

    def _is_due(self, last_ms: float | None, every_s: float) -> bool:
        return last_ms is None or self._now_ms() - last_ms >= every_s * 1000

    def _now_ms(self) -> float:
        return float(self._desk.books.clock.monotonic_ms())
