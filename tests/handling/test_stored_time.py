"""A SQLite ledger on a host whose clock was put back while nothing ran (SQ-18)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from landed.clock import MonotonicMs, SystemClock, WallMs
from landed.deliveries.event import Rejected
from landed.intake.receive import Acknowledged
from landed.ledger import Ledger, StandardWebhooks
from landed.records import ingest, receipts, schedule, stored_time
from landed.records.receipts import HANDLE_LANE
from landed.records.session import transact
from landed.records.tables import ingest_clock
from tests.handling.conftest import DIGEST_KEY, LEDGER
from tests.handling.ledgers import KEY, Invoice
from tests.handling.lives import arrival
from tests.handling.test_ledger_face import delivery

HOUR_MS = 3_600_000
pytestmark = pytest.mark.scenario("SQ-18")


@dataclass
class Host:
    """The host of one life: its wall clock is off by so much, and stands still unless it passes."""

    off_ms: int = 0
    passed_ms: float = 0.0
    start_ms: int = field(default_factory=lambda: int(SystemClock().wall_ms()))

    def wall_ms(self) -> WallMs:
        return WallMs(int(self.start_ms + self.off_ms + self.passed_ms))

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self.passed_ms)


@contextmanager
def life(folder: Path, host: Host, told: list[Any] | None = None) -> Iterator[Ledger]:
    """One process's life with the ledger."""
    ledger = Ledger(
        LEDGER,
        f"sqlite:///{folder / 'ledger.db'}",
        digest_key=DIGEST_KEY,
        clock=host,
        note=lambda name, fields: None if told is None else told.append((name, fields)),
    )
    producer = ledger.producer(
        "shop",
        authentication=StandardWebhooks(keys=(KEY,)),
        types={"invoice.finalized": Invoice},
    )
    ledger.on(producer, "invoice.finalized", name="bill")(lambda _tx, _event: None)
    ledger.prepare()
    try:
        yield ledger
    finally:
        ledger.close()


def receive(ledger: Ledger) -> None:
    given = arrival("e1", b'{"id":"i1","cents":1}', handlers=("bill",))
    transact(ledger.engine, lambda conn: receipts.keep(conn, ledger.books, [given]))


def claim(ledger: Ledger, owner: str) -> int:
    return len(
        transact(
            ledger.engine,
            lambda conn: schedule.claim(
                conn,
                ledger.books,
                lane=HANDLE_LANE,
                owner=owner,
                limit=9,
                lease_us=30_000_000,
            ),
        )
    )


def test_a_claim_of_a_killed_worker_ends_in_time_although_the_clock_was_put_back(tmp_path: Path):
    with life(tmp_path, Host()) as first:
        receive(first)
        assert claim(first, "killed") == 1
    later = Host(off_ms=-HOUR_MS)
    with life(tmp_path, later) as second:
        assert claim(second, "next") == 0
        later.passed_ms += 31_000
        assert claim(second, "next") == 1, "half a minute later, and not an hour"


def test_what_is_due_a_second_later_is_so_although_the_clock_is_put_back_meanwhile(tmp_path: Path):
    host = Host()
    with life(tmp_path, host) as ledger:
        receive(ledger)
        assert claim(ledger, "killed") == 1
        host.off_ms = -HOUR_MS
        host.passed_ms += 31_000
        assert claim(ledger, "next") == 1


@pytest.mark.parametrize("by", ["receipt", "beat", "keeper"])
def test_time_goes_on_from_the_newest_record_and_the_jump_is_told(tmp_path: Path, by: str):
    with life(tmp_path, Host()) as first:
        match by:
            case "receipt":
                receive(first)
            case "beat":
                transact(first.engine, lambda conn: ingest.beat(conn, first.books))
            case _:
                transact(first.engine, lambda conn: stored_time.keep(conn, first.books))
        before_us = first.books.now_us()
    told: list[Any] = []
    with life(tmp_path, Host(off_ms=-HOUR_MS), told) as second:
        assert second.books.now_us() >= before_us - 1000, "ids tell milliseconds"
        (behind,) = [fields for name, fields in told if name == "ledger.clock_behind"]
        assert 3595 < behind["seconds"] < 3605


async def test_whoever_works_writes_down_what_time_it_is(tmp_path: Path):
    host = Host(off_ms=HOUR_MS)
    with life(tmp_path, host) as first:
        await first.worker(lanes=["keeper"]).run_until_idle()
        before_us = first.books.now_us()
        transact(first.engine, lambda conn: conn.execute(delete(ingest_clock)))
    with life(tmp_path, Host()) as second:
        assert second.books.now_us() >= before_us


def test_nothing_is_told_of_a_clock_that_is_right(tmp_path: Path):
    told: list[Any] = []
    for _ in range(2):
        with life(tmp_path, Host(), told) as ledger:
            receive(ledger)
    assert [name for name, _ in told if name == "ledger.clock_behind"] == []


async def test_a_signed_time_is_judged_by_the_hosts_clock_and_not_by_one_that_was_ahead(
    tmp_path: Path,
):
    """Else every delivery would be refused as stale from then on."""
    with life(tmp_path, Host(off_ms=HOUR_MS)) as first:
        receive(first)
    with life(tmp_path, Host()) as second:
        assert second.books.now_us() > second.books.wall_us() + 3_000_000_000
        headers, body = delivery("e2")
        taken = await second.intake.receive(
            "shop", {name.lower(): [value] for name, value in headers.items()}, body
        )
        assert not isinstance(taken, Rejected)
        assert isinstance(taken, Acknowledged)
        await second.aclose()
