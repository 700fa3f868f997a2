"""Leases that are renewed while their work is under way, so that they can be short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

from landed.errors import StorageError
from landed.records import schedule
from landed.records.session import Books
from landed.records.turns import Turns

TAKEOVER_S: Final = 10.0
"""Length of a renewed lease: how long the work of a killed worker waits for another one."""
_RENEWALS: Final = 3
"""In the time of one lease, so that one or two may fail."""


class Leases:
    """The claims that one agent works on (rule CL-5). A lost lease costs work done twice, no effect."""

    def __init__(self, turns: Turns, books: Books, *, lease_s: float) -> None:
        self._turns = turns
        self._books = books
        self._lease_s = lease_s
        self._held: dict[UUID, schedule.Claim] = {}

    def hold(self, claims: Iterable[schedule.Claim]) -> None:
        """Renew these from now on."""
        self._held |= {claim.work_id: claim for claim in claims}

    def let_go(self, claims: Iterable[schedule.Claim]) -> None:
        """These are finished, or given back."""
        for claim in claims:
            self._held.pop(claim.work_id, None)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew what is held, as long as the block runs."""
        renewing = asyncio.create_task(self._renew(), name="landed leases")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew(self) -> None:
        lease_us = int(self._lease_s * 1_000_000)
        while True:
            await asyncio.sleep(self._lease_s / _RENEWALS)
            claims = list(self._held.values())
            if claims:
                with suppress(StorageError):  # the next renewal comes, or somebody takes over
                    await self._turns.transact(
                        lambda conn, claims=claims: schedule.renew(  # type: ignore[misc]
                            conn, self._books, claims, lease_us=lease_us
                        ),
                        is_durable=False,
                    )
