"""An event written to a log causes an effect, and the effect's result lands in the log: once each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import delete, select, update

import landed
from landed.bridge import Followed, LogFollower, log_producer
from landed.deliveries.event import Rejected
from landed.errors import AggregateMissingError, ConfigurationError, VersionConflictError
from landed.ids import AggregateKey, ClientId
from landed.ledger import (
    Answers,
    Contract,
    Key,
    Ledger,
    Lookup,
    PayloadEquality,
    SameKey,
    State,
)
from landed.log import Delete, DeleteLeg, Event, Leg, Read, Write
from landed.records import invariants
from landed.records.tables import cursors, effects, receipts, schedule
from landed.workers.desk import Desk, Tempo
from landed.workers.worker import Worker, agents_of
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.test_handlers import Killed

ORG, ACCOUNTS, RESULTS = uuid4(), uuid4(), uuid4()
CLIENT = ClientId(uuid4())
OPENED, RENAMED, RESULT = 1, 2, 9
LOG_AS_RECIPIENT = Contract(
    source="log rule W7: a guarded first write succeeds once",
    key=Key(same_key=SameKey.REPLAYS, payload_equality=PayloadEquality.REJECTED, retention_s=1e9),
    answers=Answers(success=("landed", "had landed"), is_success_durable=True),
    lookup=Lookup(lag_s=0.0),
    series_max_s=3600.0,
)


@dataclass
class Opened:
    account: str


@dataclass
class Bridged:
    """A log, and a ledger that follows it and writes back to it."""

    db: LedgerDb
    log: Any
    ledger: Ledger
    follower: LogFollower
    kill_at: list[str] = field(default_factory=list)

    def note(self, name: str, fields: Any) -> None:
        if name == "kp" and self.kill_at and fields["point"] == self.kill_at[0]:
            raise Killed(self.kill_at.pop())

    def worker(self) -> Worker:
        desk = Desk(
            engine=self.ledger.engine,
            books=self.ledger.books,
            registry=self.ledger.registry,
            worker="w",
            note=self.note,
            chance=Random(1),
            tempo=Tempo(retry_us=0, retry_max_us=0, question_us=0, question_max_us=0),
        )
        return Worker([self.follower, *agents_of(desk)], note=self.note)

    async def settle(self) -> None:
        """Work until nothing is due, with time passed for whatever was left behind."""
        for _ in range(4):
            await asyncio.to_thread(self._pass_time)
            await self.worker().run_until_idle()

    def _pass_time(self) -> None:
        with self.ledger.engine.begin() as conn:
            conn.execute(update(schedule).values(lease_until=1, ready_at=1))
            conn.execute(update(effects).values(send_deadline=1))

    async def results(self) -> list[bytes]:
        """What every effect wrote into the log."""
        with self.ledger.engine.connect() as conn:
            keys = conn.execute(select(effects.c.idempotency_key)).scalars().all()
        found: list[bytes] = []
        for key in keys:
            try:
                page = await self.log.read(Read(result_key(key)))
            except AggregateMissingError:
                continue
            found += [event.value for batch in page.batches for event in batch.events]
        return found

    def rows(self, table: Any) -> list[Any]:
        with self.ledger.engine.connect() as conn:
            return list(conn.execute(select(table)))


def result_key(key: UUID) -> AggregateKey:
    return AggregateKey(ORG, RESULTS, key)


@asynccontextmanager
async def bridged(db: LedgerDb, *, log: Any = None) -> AsyncIterator[Bridged]:
    opened = await landed.connect("memory:") if log is None else log
    ledger = Ledger(LEDGER, db.url, digest_key=DIGEST_KEY)
    producer = log_producer(ledger, "accounts-log", {"account.opened": Opened})
    acme = ledger.recipient("results-log", LOG_AS_RECIPIENT)
    welcome = acme.effect("welcome", dict[str, str])

    @welcome.send
    async def send(call):
        event = Event.new(RESULT, call.body, client_seq=0, event_id=call.idempotency_key)
        leg = Leg(result_key(call.idempotency_key), (event,), 0, True, False)
        try:
            await opened.write(Write(CLIENT, (leg,)))
        except VersionConflictError:
            return call.answer("had landed")
        return call.answer("landed")

    @welcome.lookup
    async def lookup(ask):
        try:
            await opened.details(result_key(ask.idempotency_key))
        except AggregateMissingError:
            return ask.absent()
        return ask.present()

    @ledger.on(producer, "account.opened")
    def greet(tx, event):
        tx.request(welcome, f"account/{event.data.account}/welcome", {"to": event.data.account})

    await ledger.start()
    made = Bridged(db, opened, ledger, None)  # type: ignore[arg-type]
    made.follower = LogFollower(
        opened,
        ledger,
        producer,
        Followed(types={OPENED: "account.opened"}, aggregate_types=frozenset({ACCOUNTS})),
        page=3,
        note=made.note,
    )
    try:
        yield made
    finally:
        ledger.close()
        if log is None:
            await opened.close()


async def append(
    log: Any, account: UUID, *events: tuple[int, Any], type: UUID = ACCOUNTS, seq: int = 0
) -> None:
    written = tuple(
        Event.new(major, json.dumps(value).encode(), client_seq=seq, event_id=None, event_ms=5)
        for major, value in events
    )
    leg = Leg(AggregateKey(ORG, type, account), written, None, True, False)
    await log.write(Write(CLIENT, (leg,)))


@pytest.mark.scenario("AS-125")
async def test_an_event_written_once_causes_one_effect_whose_result_lands_once(
    ledger_db: LedgerDb,
):
    async with bridged(ledger_db) as made:
        account = uuid4()
        await append(made.log, account, (OPENED, {"account": str(account)}), (RENAMED, {}))
        await append(made.log, uuid4(), (OPENED, {"account": "elsewhere"}), type=uuid4())
        await made.worker().run_until_idle()
        (receipt,) = made.rows(receipts)
        assert (receipt.namespace, receipt.type, receipt.auth_method, receipt.transport) == (
            "accounts-log",
            "account.opened",
            "log",
            "log",
        )
        assert receipt.subject == str(account)
        (effect,) = made.rows(effects)
        assert effect.state == State.CONFIRMED.value
        assert await made.results() == [json.dumps({"to": str(account)}).replace(" ", "").encode()]
        assert await made.worker().run_until_idle() == 0, "its own result is not followed"


POINTS = ["KP-1", "KP-7", "KP-8", "KP-13", "KP-14", "KP-15", "KP-16", "KP-18", "KP-19", "KP-20"]


@pytest.mark.scenario("AS-125")
@pytest.mark.parametrize("point", POINTS)
async def test_one_effect_and_one_result_though_the_worker_dies_on_the_way(
    ledger_db: LedgerDb, point: str
):
    async with bridged(ledger_db) as made:
        await append(made.log, uuid4(), (OPENED, {"account": "a1"}))
        made.kill_at = [point]
        with pytest.raises(Killed):
            await made.worker().run_until_idle()
        assert made.kill_at == [], "the point was passed"
        await made.settle()
        (effect,) = made.rows(effects)
        assert effect.state == State.CONFIRMED.value
        assert await made.results() == [b'{"to":"a1"}']
        assert len(made.rows(receipts)) == 1
        with made.ledger.engine.connect() as conn:
            assert invariants.check(conn, made.ledger.books) == []


async def test_the_cursor_moves_with_the_receipts_and_may_be_lost(ledger_db: LedgerDb):
    async with bridged(ledger_db) as made:
        for number in range(8):
            await append(made.log, uuid4(), (OPENED, {"account": f"a{number}"}))
        assert await made.follower.run_once() == 3
        assert len(made.rows(receipts)) == 3
        made.kill_at = ["KP-1"]
        with pytest.raises(Killed):
            await made.follower.run_once()
        assert len(made.rows(receipts)) == 3, "neither receipts nor cursor"
        while await made.follower.run_once():
            pass
        assert len(made.rows(receipts)) == 8
        with made.ledger.engine.begin() as conn:
            conn.execute(delete(cursors))
        while await made.follower.run_once():
            pass
        assert len(made.rows(receipts)) == 8, "an event is known by what it is, not where it stood"
        with made.ledger.engine.connect() as conn:
            assert invariants.check(conn, made.ledger.books) == []


async def test_a_second_life_of_an_aggregate_is_other_events(ledger_db: LedgerDb):
    """Numbering begins at 1 again; the bytes may even be equal."""
    async with bridged(ledger_db) as made:
        account = uuid4()
        key = AggregateKey(ORG, ACCOUNTS, account)
        await append(made.log, account, (OPENED, {"account": "a1"}), seq=1)
        assert await made.follower.run_once() == 1
        await made.log.delete(Delete(CLIENT, (DeleteLeg(key, None, True, False),)))
        await append(made.log, account, (OPENED, {"account": "a1"}), seq=2)
        while await made.follower.run_once():
            pass
        kept = made.rows(receipts)
        assert len({row.event_id for row in kept}) == len(kept) == 2


async def test_another_log_is_refused_under_the_same_name(ledger_db: LedgerDb):
    async with bridged(ledger_db) as made:
        await append(made.log, uuid4(), (OPENED, {"account": "a1"}))
        await made.follower.run_once()
    async with bridged(ledger_db) as made:
        with pytest.raises(ConfigurationError, match="another namespace for another log"):
            await made.follower.run_once()


async def test_an_event_that_does_not_fit_is_set_aside_and_the_feed_goes_on(ledger_db: LedgerDb):
    async with bridged(ledger_db) as made:
        await append(made.log, uuid4(), (OPENED, {"wrong": 1}))
        await append(made.log, uuid4(), (OPENED, {"account": "a1"}))
        await made.worker().run_until_idle()
        assert sorted(row.disposition for row in made.rows(receipts)) == [
            "accepted",
            "quarantined",
        ]
        assert await made.results() == [b'{"to":"a1"}']


async def test_nobody_can_deliver_over_http_in_a_logs_name(ledger_db: LedgerDb):
    async with bridged(ledger_db) as made:
        producer = made.ledger.registry.producers["accounts-log"]
        answer = await made.ledger.receive(
            producer,
            headers={"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"},
            body=b"{}",
        )
        assert isinstance(answer, Rejected)
        assert answer.status in (400, 401)
        assert made.rows(receipts) == []
        await made.ledger.aclose()
