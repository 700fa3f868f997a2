"""What operators live with: alerts that do not get out, logs without secrets, stops, and stopped lanes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from landed.cli import app as door_of_cli
from landed.cli import logs
from landed.clock import SystemClock
from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.effects.state import State
from landed.ledger import Ledger
from landed.recipient import Promises, contract_from, describe
from landed.records import effects as records
from landed.records import receipts
from landed.records.tables import attempts, effects, outbox, quarantine, reviews, schedule
from landed.records.tables import receipts as receipt_rows
from landed.relay.port import NotHanded, Outgoing, Taken
from landed.testing import FaultyRecipient, invariants
from landed.workers.keeper import Keeper
from tests.handling import lives
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.stories.billing import billing
from tests.handling.stories.test_essential import bank, bus
from tests.lines import next_line

__all__ = ["bank", "bus"]  # fixtures

pytestmark = pytest.mark.real_loop


def count(db: LedgerDb, table: Any, *conditions: Any) -> int:
    with db.engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(table).where(*conditions)).scalar_one()


# --- Alerts --------------------------------------------------------------------------------------


class Pager:
    """Where alerts go; down until it is mended."""

    proof = "the pager took it"
    dedup_window_s = None

    def __init__(self) -> None:
        self.is_down = True
        self.got: list[dict[str, Any]] = []

    async def hand_on(self, message: Outgoing) -> Taken | NotHanded:
        if self.is_down:
            return NotHanded("nobody answers")
        self.got.append(json.loads(message.data))
        return Taken({})

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.scenario("AS-108", "AL-2", "AL-3", "AL-4")
@pytest.mark.parametrize("events", [500, pytest.param(10_000, marks=pytest.mark.long)])
async def test_alerts_that_do_not_get_out_hold_up_no_receipt_and_are_few(
    ledger_db: LedgerDb, events: int
):
    pager = Pager()
    ledger = Ledger(LEDGER, ledger_db.url, digest_key=DIGEST_KEY)
    ledger.alerts(pager)
    await ledger.start()
    aside = QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "unknown.v1")
    for start in range(0, events, 250):
        group = [lives.arrival(f"e{n}", disposition=aside) for n in range(start, start + 250)]
        taken = ledger_db.transact(
            lambda conn, group=group: receipts.keep(conn, ledger_db.books, group)
        )
        assert {one.disposition for one in taken} == {"quarantined"}
    worker = ledger.worker(lanes=["alert", "keeper"])
    await worker.run_until_idle(rounds_max=5)
    raised = [count for count in (1, 10, 100, 1000, 10_000) if count <= events]
    assert count(ledger_db, receipt_rows) == count(ledger_db, quarantine) == events
    assert count(ledger_db, reviews, reviews.c.state == "open") == events
    assert count(ledger_db, outbox, outbox.c.kind == "alert") == len(raised)
    assert worker.health()["is_healthy"]

    an_hour_us = 3_600_000_000
    ledger_db.transact(
        lambda conn: conn.execute(
            update(outbox).values(created_at=outbox.c.created_at - an_hour_us)
        )
    )
    later = ledger.worker(lanes=["alert", "keeper"])
    await later.run_until_idle(rounds_max=5)
    assert not later.health()["is_healthy"], "nobody was told for an hour"
    assert later.health()["alert_age_s"] >= 3600

    pager.is_down = False
    ledger_db.transact(lambda conn: conn.execute(update(schedule).values(ready_at=1)))
    mended = ledger.worker(lanes=["alert", "keeper"])
    await mended.run_until_idle(rounds_max=50)
    assert sorted(alert["count"] for alert in pager.got) == raised
    (keeper,) = [agent for agent in mended.agents if isinstance(agent, Keeper)]
    keeper._gauged_ms = None
    await keeper.run_once()
    assert mended.health()["is_healthy"]
    invariants(ledger)
    await ledger.aclose()


# --- Logs ----------------------------------------------------------------------------------------


@pytest.mark.scenario("AS-111", "SE-2")
async def test_no_log_line_holds_a_key_a_subject_or_a_payload(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path, capsys, caplog
):
    """Through loss, refusal, doubt, conflict, a failing handler, and an alert."""
    secret = "4111111111111111"
    facts: list[str] = []
    printed = logs.log_to(logs.LogFormat.JSON, SystemClock(), is_verbose=True)

    def note(name: str, fields: Any) -> None:
        facts.append(f"{name} {dict(fields)}")
        printed(name, fields)

    for fault, n in (("lose", 0), ("status", 500), ("drop", 0), ("act-and-status", 503)):
        bank.next(fault, n=n)
    async with billing(ledger_db, bank, bus, note=note) as service:
        for number in range(4):
            event = f"{secret}-e{number}"
            answer = await service.invoice(event, id=f"{secret}-i{number}", subject=secret)
            assert answer.status_code == 202
        await service.invoice(f"{secret}-e0", id=f"{secret}-i9", cents=1)  # a conflict
        await service.invoice(
            f"{secret}-e9", id=f"{secret}-i0", cents=1
        )  # another payload, one key
        refused = await service.door.client.post("/shop", content=secret.encode())
        assert refused.status_code in (400, 401)
        await service.recover()
        assert bank.effects == 4
        assert count(ledger_db, reviews) >= 2
    out, err = capsys.readouterr()
    assert len(facts) > 20
    told = [line for line in [*facts, *out.splitlines(), *err.splitlines()] if secret in line]
    assert told == []
    assert secret not in caplog.text


# --- A stop --------------------------------------------------------------------------------------

APP = """
import os
from landed.ledger import Call, Ledger
from landed.outbound import HttpOut
from landed.recipient import Promises, contract_from, describe

ledger = Ledger("tests", os.environ["TEST_DATABASE"], digest_key=b"the tests' own digest key")
promises = describe(Promises(key_retention_s=86_400.0, success=(200,)))
from dataclasses import replace
bank = ledger.recipient("acme", replace(contract_from(promises, source="test"), concurrency=20))
collect = bank.effect("collect", dict)


@collect.send
async def send(call: Call):
    async with HttpOut() as out:
        return await out.send(call, os.environ["TEST_BANK"] + "/effects")


@collect.lookup
async def lookup(ask):
    return ask.inconclusive()


@collect.seal
async def seal(ask):
    return ask.inconclusive()
"""


@contextmanager
def killed_in_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def wait_until(condition: Any, *, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


@pytest.mark.scenario("AS-72", "AT-11")
def test_a_worker_that_is_stopped_with_twenty_open_sends_sends_none_of_them_again_on_a_guess(
    ledger_db: LedgerDb, bank: FaultyRecipient, tmp_path: Path, monkeypatch, capsys
):
    name = f"stopped_{ledger_db.dialect}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_DATABASE", ledger_db.url)
    monkeypatch.setenv("TEST_BANK", bank.url)
    command = ["work", f"{name}:ledger", "--log-format", "none"]
    promises = describe(Promises(key_retention_s=86_400.0, success=(200,)))
    contract = replace(contract_from(promises, source="test"), concurrency=20)
    ids = ledger_db.transact(
        lambda conn: [
            records.request(
                conn, ledger_db.books, lives.intent(f"k{n}", contract=contract)
            ).effect_id
            for n in range(20)
        ]
    )
    bank.next("hang", times=20)
    with (
        subprocess.Popen(
            [sys.executable, "-m", "landed", *command, "--grace", "0.5"],
            stdout=subprocess.PIPE,
            text=True,
        ) as worker,
        killed_in_the_end(worker),
    ):
        assert worker.stdout is not None
        assert next_line(worker).startswith("landed work: working")
        wait_until(lambda: len(bank.requests) == 20)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert states(ledger_db, ids) == {State.SENDING.value}, "none is rewritten to be sent again"
    assert count(ledger_db, attempts, attempts.c.outcome.is_not(None)) == 0
    bank.release()
    wait_until(lambda: bank.effects == 20)
    overdue = update(effects).values(send_deadline=1)
    ledger_db.transact(lambda conn: conn.execute(overdue))
    for lanes in ("reaper", "effect,reconcile", "effect,reconcile"):
        ledger_db.transact(
            lambda conn: conn.execute(update(schedule).values(ready_at=1, lease_until=1))
        )
        assert door_of_cli.run([*command, "--once", "--lanes", lanes]) == 0
    capsys.readouterr()
    sys.modules.pop(name).ledger.close()
    assert states(ledger_db, ids) == {State.CONFIRMED.value}
    assert (bank.effects, set(bank.acted.values())) == (20, {1})
    assert count(ledger_db, attempts, attempts.c.outcome == "abandoned") == 20


def states(db: LedgerDb, ids: list[UUID]) -> set[str]:
    with db.engine.connect() as conn:
        query = select(effects.c.state).where(effects.c.effect_id.in_(ids))
        return set(conn.execute(query).scalars())
