"""Behind a proxy that pools transactions: nothing is kept in a session, so nothing is lost with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from landed.testing import Crash, FaultyRecipient, crash_at
from tests.handling.conftest import LedgerDb
from tests.handling.pooler import pooled
from tests.handling.stories import test_essential as essential
from tests.handling.stories.billing import billing
from tests.handling.stories.test_essential import bank, bus, is_done_once

__all__ = ["bank", "bus"]  # fixtures

pytestmark = [
    pytest.mark.real_loop,
    pytest.mark.scenario("AS-121", "SQ-7"),
    pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True),
]


@pytest.fixture
def behind(ledger_db: LedgerDb) -> Iterator[LedgerDb]:
    """The database, reached through the proxy; named statements are off, as such a proxy needs."""
    with pooled(ledger_db.url) as proxy:
        engine = create_engine(proxy.url, connect_args={"prepare_threshold": None})
        yield replace(ledger_db, given=engine)
        engine.dispose()
        assert proxy.hops >= 3, "connections got other servers in between"


async def test_one_event_at_once_and_after_a_restart(behind, bank: FaultyRecipient, bus: Path):
    await essential.test_the_same_event_at_once_and_after_a_restart_is_one_receipt_and_one_charge(
        behind, bank, bus
    )


async def test_a_publication_before_its_record(behind, bank: FaultyRecipient, bus: Path):
    async with billing(behind, bank, bus, note=crash_at("KP-10", kill=False)) as service:
        await service.invoice()
        with pytest.raises(Crash):
            await service.work()
    async with billing(behind, bank, bus) as service:
        await service.recover()
        await is_done_once(service)
        assert len(service.published()) == 2, "again, under the same id"


async def test_an_answer_that_is_lost(behind, bank: FaultyRecipient, bus: Path):
    await essential.test_an_unknown_result_is_reconciled_and_not_charged_again(
        behind, bank, bus, "lose"
    )


async def test_an_older_event_after_a_newer_one(behind, bank: FaultyRecipient, bus: Path):
    await essential.test_an_old_event_after_a_newer_one_is_refused_by_the_bank(behind, bank, bus)
