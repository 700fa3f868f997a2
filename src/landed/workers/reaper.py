"""The reaper: closes attempts that nobody closed in time. The effect is then unknown (CL-4).

It never makes anything sendable: an attempt past its deadline may have acted.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from landed.records import attempts
from landed.records.effects import view
from landed.workers.desk import Desk

BATCH: Final = 100


class Reaper:
    """The agent that reaps."""

    name = "reaper"
    is_timed = True

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run_once(self) -> int:
        """Reap what is overdue; returns how many attempts were closed."""
        desk = self._desk
        overdue = await desk.transact(
            lambda conn: attempts.overdue(conn, desk.books, limit=BATCH), is_durable=False
        )
        reaped = 0
        for effect_id in overdue:
            reaped += await self._reaped(effect_id)
        return reaped

    async def _reaped(self, effect_id: UUID) -> bool:
        desk = self._desk

        def _work(conn: Connection) -> bool:
            effect = view(conn, effect_id)
            if effect is None or effect.send_deadline is None:
                return False
            if effect.send_deadline + attempts.GRACE_US >= desk.now_us(conn):
                # A newer attempt was opened since it was found.
                return False
            contract = desk.contract(conn, effect)
            if contract is None:
                return False
            return attempts.reap(conn, desk.books, effect, contract, delays=desk.delays(effect))

        is_reaped = await desk.transact(_work)
        desk.crash_point("KP-25")
        if is_reaped:
            desk.note("attempt.reaped", {"effect_id": str(effect_id)})
        return is_reaped
