"""Declaring, starting and asking: what a ledger takes, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict
from uuid import uuid4

import msgspec
import psycopg
import pydantic
import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.ext.asyncio import create_async_engine

from landed.clock import SystemClock
from landed.deliveries.event import Rejected
from landed.errors import ConfigurationError, PayloadMismatchError
from landed.fingerprint import canonical_json
from landed.intake.receive import Acknowledged
from landed.ledger import (
    Contract,
    EventType,
    Invalid,
    Ledger,
    Order,
    Seal,
    StandardWebhooks,
    State,
    TransportRef,
)
from landed.ledger.event_type import check_of
from landed.records import effects
from landed.records.tables import contracts, receipts
from landed.records.tables import effects as effects_table
from landed.relay import LogSink
from landed.workers import agent as workers_agent
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.ledgers import ACME, KEY, Charge, Invoice, bills, shop

AUTHENTICATION = StandardWebhooks(keys=(KEY,))


def plain(url: str = "sqlite:///nowhere.db", name: str = LEDGER) -> Ledger:
    return Ledger(name, url, digest_key=DIGEST_KEY)


def never(_tx, _event) -> None: ...


# --- Start ---------------------------------------------------------------------------------------


def test_a_type_that_nobody_handles_refuses_the_start(ledger_db: LedgerDb):
    ledger = plain(ledger_db.url)
    ledger.producer("shop", authentication=AUTHENTICATION, types={"a": None}, ignore={"b"})
    with pytest.raises(ConfigurationError, match="nothing handles it"):
        ledger.prepare()


def test_an_ordered_type_needs_a_recipient_that_can_enforce_order(ledger_db: LedgerDb):
    acme = plain().recipient("acme", Contract(ambiguity_reason="a person looks"))
    with pytest.raises(ConfigurationError, match="order"):
        acme.effect("collect", Charge, ordered="invoice")


def test_an_effect_without_a_sender_refuses_the_start(ledger_db: LedgerDb):
    ledger = plain(ledger_db.url)
    ledger.recipient("acme", ACME).effect("collect", Charge)
    with pytest.raises(ConfigurationError, match="no sender"):
        ledger.prepare()


@pytest.mark.parametrize(
    ("contract", "needs"),
    [(ACME, "look-up"), (replace(ACME, lookup=None, fence=None, seal=Seal()), "seal")],
)
def test_what_a_contract_promises_needs_the_function_that_uses_it(
    ledger_db: LedgerDb, contract: Contract, needs: str
):
    async def send(call):
        return call.answer("200")

    ledger = plain(ledger_db.url)
    collect = ledger.recipient("acme", contract).effect("collect", Charge)
    collect.send(send)
    with pytest.raises(ConfigurationError, match=f"has a {needs}, so it needs one"):
        ledger.prepare()
    with pytest.raises(ConfigurationError, match="set twice"):
        collect.send(send)


def test_a_name_is_declared_once(ledger_db: LedgerDb):
    ledger = plain()
    producer = ledger.producer("shop", authentication=AUTHENTICATION, types={"a": None})
    acme = ledger.recipient("acme", ACME)
    acme.effect("collect", Charge)
    ledger.on(producer, "a", name="one")(never)
    ledger.destination("bus", LogSink())
    for again in (
        lambda: ledger.producer("shop", authentication=AUTHENTICATION, types={}),
        lambda: ledger.recipient("acme", ACME),
        lambda: acme.effect("collect", Charge),
        lambda: ledger.on(producer, "a", name="one")(never),
        lambda: ledger.destination("bus", LogSink()),
    ):
        with pytest.raises(ConfigurationError, match="declared twice"):
            again()


def test_nothing_is_declared_after_the_start(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        for late in (
            lambda: made.ledger.producer("other", authentication=AUTHENTICATION, types={}),
            lambda: made.ledger.on(made.producer, "invoice.finalized", name="x")(never),
            lambda: made.ledger.recipient("other", ACME),
            lambda: made.ledger.destination("other", LogSink()),
            lambda: made.ledger.alerts(LogSink()),
            lambda: made.collect.settled(never),
        ):
            with pytest.raises(ConfigurationError, match="start"):
                late()


def test_two_ledgers_in_one_process_know_nothing_of_each_other(ledger_db: LedgerDb):
    one, two = plain(), plain()
    one.producer("shop", authentication=AUTHENTICATION, types={})
    assert two.registry.producers == {}
    two.producer("shop", authentication=AUTHENTICATION, types={})


async def test_another_name_refuses_the_start(ledger_db: LedgerDb):
    with shop(ledger_db), pytest.raises(ConfigurationError, match="belongs to ledger 'tests'"):
        await plain(ledger_db.url, "another").start()


async def test_another_digest_key_refuses_the_start(ledger_db: LedgerDb):
    with pytest.raises(ConfigurationError, match="digest key"):
        await Ledger(LEDGER, ledger_db.url, digest_key=b"another key altogether").start()


async def test_contracts_are_remembered_and_old_ones_found_again(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        old = ACME.digest()
        assert made.ledger.registry.contracts[old] == ACME
    changed = plain(ledger_db.url)
    acme = changed.recipient("acme", Contract(ambiguity_reason="a person looks"))
    await changed.start()
    assert changed.registry.contracts[old] == ACME, "open effects stay bound to it"
    assert changed.registry.contracts[acme.contract.digest()] == acme.contract
    with changed.engine.connect() as conn:
        assert len(conn.execute(select(contracts)).all()) == 2
    changed.close()


async def test_a_start_may_be_repeated(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        assert await made.ledger.start() is made.ledger


# --- Keys and engines ----------------------------------------------------------------------------


def test_a_sqlite_ledger_makes_its_digest_key_and_keeps_it(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("LANDED_DIGEST_KEY", raising=False)
    told: list[Any] = []
    url = f"sqlite:///{tmp_path}/app.db"
    first = Ledger("mine", url, note=lambda name, fields: told.append((name, fields)))
    first.prepare()
    first.close()
    file = tmp_path / "app.db.digest-key"
    assert file.stat().st_mode & 0o077 == 0
    assert [name for name, _ in told] == ["ledger.key_made"]
    again = Ledger("mine", url)
    again.prepare()
    assert again.books.digest_key == first.books.digest_key
    again.close()
    file.unlink()
    with pytest.raises(ConfigurationError, match="bring it back"):
        Ledger("mine", url).prepare()
    assert not file.exists(), "no other key is made"


def test_a_digest_key_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch):
    url = "postgresql://nowhere/x"
    monkeypatch.delenv("LANDED_DIGEST_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="LANDED_DIGEST_KEY"):
        _ = Ledger("mine", url).books
    monkeypatch.setenv("LANDED_DIGEST_KEY_FILE", str(tmp_path / "key"))
    (tmp_path / "key").write_text("sixteen bytes or more\n")
    assert Ledger("mine", url).books.digest_key == b"sixteen bytes or more"
    monkeypatch.setenv("LANDED_DIGEST_KEY", "short")
    with pytest.raises(ConfigurationError, match="at least 16"):
        _ = Ledger("mine", url).books


async def test_an_engine_of_the_users_is_taken_as_it_is_or_by_its_address(ledger_db: LedgerDb):
    with shop(ledger_db):
        url = ledger_db.url.replace("postgresql://", "postgresql+psycopg://")
        mine = create_engine(url)
        ledger = Ledger(LEDGER, mine, digest_key=DIGEST_KEY)
        await ledger.start()
        assert (ledger.engine is mine) == ledger_db.is_postgres
        ledger.close()
        mine.dispose()
        theirs = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        ledger = Ledger(LEDGER, theirs, digest_key=DIGEST_KEY)
        await ledger.start()
        ledger.close()
        await theirs.dispose()


# --- Requests ------------------------------------------------------------------------------------


class ChargeDict(TypedDict):
    invoice: str
    cents: int


class ChargeStruct(msgspec.Struct):
    invoice: str
    cents: int


class ChargeModel(pydantic.BaseModel):
    invoice: str
    cents: int


@dataclass(frozen=True)
class Nested:
    charge: Charge
    tags: tuple[str, ...]


PAYLOADS = [
    Charge("i1", 1200),
    ChargeDict(invoice="i1", cents=1200),
    ChargeStruct("i1", 1200),
    ChargeModel(invoice="i1", cents=1200),
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_any_payload_model_becomes_the_same_bytes(ledger_db: LedgerDb, payload: Any):
    with shop(ledger_db) as made, made.ledger.begin() as tx:
        made.collect.payload = type(payload)
        ref = tx.request(made.collect, "one", payload)
        stored = effects.view(tx.conn, ref.effect_id)
        assert stored is not None
        assert stored.payload == b'{"cents":1200,"invoice":"i1"}'


@pytest.mark.parametrize("made_of", [Charge, ChargeDict, ChargeStruct, ChargeModel])
def test_any_payload_model_checks_what_arrives(made_of: Any):
    check = check_of(made_of)
    good = check({"invoice": "i1", "cents": 1200})
    assert canonical_json(
        good.model_dump() if isinstance(good, ChargeModel) else msgspec.to_builtins(good)
    ) == canonical_json({"invoice": "i1", "cents": 1200})
    with pytest.raises(Invalid):
        check({"invoice": "i1"})


@pytest.mark.parametrize("bad", [float("nan"), 2**53 + 1, object()])
def test_a_payload_that_exact_json_cannot_hold_is_refused(ledger_db: LedgerDb, bad: Any):
    with shop(ledger_db) as made, made.ledger.begin() as tx:
        with pytest.raises(ConfigurationError, match="exact JSON"):
            tx.request(made.collect, "one", Charge("i1", bad))
        assert tx.conn.execute(select(effects_table)).all() == []


@pytest.mark.scenario("AS-47")
def test_a_changed_payload_under_a_known_key_is_refused_before_any_write(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        with made.ledger.begin() as tx:
            tx.request(made.collect, "one", Charge("i1", 1200))
        with (
            made.ledger.begin() as tx,
            pytest.raises(PayloadMismatchError, match="revision"),
        ):
            tx.request(made.collect, "one", Charge("i1", 1300))


@pytest.mark.scenario("AS-52")
def test_an_event_id_or_a_transport_offset_is_no_effect_key(ledger_db: LedgerDb):
    refused: list[str] = []

    def handler(tx, event):
        for key in (event.id, TransportRef("17"), "", "k" * 5000):
            try:
                tx.request(made.collect, key, Charge("i1", 1))
            except ConfigurationError as e:
                refused.append(str(e))
        tx.request(made.one_to_one, event.id, Charge("i1", 1))

    def declare(made):
        made.one_to_one = made.ledger.registry.recipients["acme"].effect(
            "mirror", Charge, one_to_one_with_event=True
        )
        made.one_to_one.send(made.collect.sender)
        made.one_to_one.lookup(made.collect.looker)

    with shop(ledger_db, handler, declare=declare) as made:
        made.receive("e1")
        assert asyncio.run(made.agent().run_once()) == 1
        words = ["is the event's id", "a transport's offset", "characters", "characters"]
        assert len(refused) == 4
        assert all(word in text for word, text in zip(words, refused, strict=True)), refused
        with made.engine.connect() as conn:
            assert list(conn.execute(select(effects_table.c.effect_key)).scalars()) == ["e1"]


def test_an_ordered_type_takes_a_version_and_an_unordered_one_does_not(ledger_db: LedgerDb):
    with shop(ledger_db) as made, made.ledger.begin() as tx:
        with pytest.raises(ConfigurationError, match="say order="):
            tx.request(made.ordered, "one", Charge("i1", 1))
        with pytest.raises(ConfigurationError, match="not declared ordered"):
            tx.request(made.collect, "one", Charge("i1", 1), order=Order("i1", version=1))
        with pytest.raises(ConfigurationError, match="time zone"):
            tx.request(made.collect, "one", Charge("i1", 1), not_after=datetime(2030, 1, 1))


def test_a_publication_larger_than_its_destination_takes_is_refused(ledger_db: LedgerDb):
    def declare(made):
        made.ledger.destination("small", LogSink(), body_bytes_max=20)

    with shop(ledger_db, declare=declare) as made, made.ledger.begin() as tx:
        with pytest.raises(ConfigurationError, match="20 bytes at most"):
            tx.publish("a", {"text": "x" * 100}, to="small")
        with pytest.raises(ConfigurationError, match="declared destinations are bus, small"):
            tx.publish("a", {})
        tx.publish("a", {"n": 1}, to="small")


# --- Questions -----------------------------------------------------------------------------------


async def test_an_effect_is_found_by_its_key_and_waited_for(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        assert await made.ledger.effect(made.collect, "one") is None
        async with made.ledger.begin() as tx:
            ref = await tx.request(made.collect, "one", Charge("i1", 1))
        found = await made.ledger.effect(made.collect, "one")
        assert found is not None
        assert (found.effect_id, found.state) == (ref.effect_id, State.PENDING)
        with pytest.raises(TimeoutError):
            await made.ledger.wait(ref, timeout_s=0.01)


def test_a_connection_that_is_in_use_at_the_close_is_closed_when_it_comes_back(
    ledger_db: LedgerDb,
):
    with shop(ledger_db) as made:
        used = made.ledger.engine.connect()
        driver: Any = used.connection.driver_connection
    driver.execute("SELECT 1")
    used.close()
    with pytest.raises((psycopg.OperationalError, sqlite3.ProgrammingError), match="closed"):
        driver.execute("SELECT 1")


async def test_a_transaction_of_the_ledgers_own_rolls_back_if_its_block_raises(
    ledger_db: LedgerDb,
):
    with shop(ledger_db) as made:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with made.ledger.begin() as tx:
                await tx.request(made.collect, "one", Charge("i1", 1))
                _ = 1 / 0
        with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117
            with made.ledger.begin() as tx:
                tx.request(made.collect, "one", Charge("i1", 1))
                _ = 1 / 0
        assert await made.ledger.effect(made.collect, "one") is None


async def test_a_block_that_is_cancelled_in_the_middle_of_a_statement_rolls_back(
    ledger_db: LedgerDb,
):
    with shop(ledger_db) as made:
        inside, go = threading.Event(), threading.Event()

        def slow(tx):
            tx.conn.execute(insert(bills).values(id="late", cents=1))
            inside.set()
            go.wait(20)
            tx.conn.execute(insert(bills).values(id="later", cents=1))

        async def block() -> None:
            async with made.ledger.begin() as tx:
                await tx.run(slow)

        task = asyncio.ensure_future(block())
        await asyncio.to_thread(inside.wait, 20)
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.billed() == {}


async def test_what_one_block_asks_for_at_once_is_done_one_after_another(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        async with made.ledger.begin() as tx:
            refs = await asyncio.gather(
                *(tx.request(made.collect, f"k{n}", Charge("i1", n)) for n in range(8))
            )
        assert len({ref.effect_id for ref in refs}) == 8


def test_a_handler_that_is_async_is_refused_where_it_is_declared():
    ledger = plain()
    producer = ledger.producer("shop", authentication=AUTHENTICATION, types={"a": Invoice})

    async def handler(_tx, _event): ...

    with pytest.raises(ConfigurationError, match="async"):
        ledger.on(producer, "a")(handler)
    with pytest.raises(ConfigurationError, match="declares no type b"):
        ledger.on(producer, "b")
    with pytest.raises(ConfigurationError, match="is no sink"):
        ledger.destination("bus", "nats://localhost")


def test_a_type_has_one_business_condition():
    ledger = plain()
    producer = ledger.producer("shop", authentication=AUTHENTICATION, types=[EventType(name="a")])
    ledger.on(producer, "a", name="one", when=bool, why="empty")(never)
    declared = ledger.registry.producers["shop"].types["a"]
    assert declared.when is not None
    assert (declared.when({}), declared.when({"a": 1}), declared.when_reason) == (
        False,
        True,
        "empty",
    )
    with pytest.raises(ConfigurationError, match="a type has one"):
        ledger.on(producer, "a", name="two", when=lambda data: True)(never)


# --- What works for it ---------------------------------------------------------------------------


def delivery(id: str = "e1") -> tuple[dict[str, str], bytes]:
    """A signed CloudEvent of the shop's."""
    body = json.dumps(
        {
            "specversion": "1.0",
            "id": id,
            "source": "/shop",
            "type": "invoice.finalized",
            "datacontenttype": "application/json",
            "data": {"id": "i1", "cents": 1200},
        }
    ).encode()
    stamp = str(SystemClock().wall_ms() // 1000)
    signed = hmac.digest(KEY.secret, f"{id}.{stamp}.".encode() + body, "sha256")
    return {
        "Content-Type": "application/cloudevents+json",
        "Webhook-Id": id,
        "Webhook-Timestamp": stamp,
        "Webhook-Signature": "v1," + base64.b64encode(signed).decode(),
    }, body


async def test_a_delivery_becomes_a_confirmed_effect_and_its_story_is_told(ledger_db: LedgerDb):
    def handler(tx, event):
        tx.request(made.collect, "i1/collect", Charge(event.data.id, event.data.cents))

    async def send(call):
        return call.answer("200", result=b"done")

    with shop(ledger_db, handler) as made:
        made.collect.sender = send
        headers, body = delivery()
        first = await made.ledger.receive(made.producer, headers=headers, body=body)
        again = await made.ledger.receive(made.producer, headers=headers.items(), body=body)
        assert isinstance(first, Acknowledged)
        assert isinstance(again, Acknowledged)
        assert first.items[0].receipt_id == again.items[0].receipt_id
        assert [type(item).__name__ for item in (*first.items, *again.items)] == ["Kept", "Seen"]
        worker = made.ledger.worker(lanes=["handle", "effect"])
        working = asyncio.ensure_future(worker.run())
        effect = await made.ledger.wait(made.collect, "i1/collect", timeout_s=30)
        worker.stop()
        await working
        assert (effect.state, effect.result) == (State.CONFIRMED, b"done")
        told = await made.ledger.explain(effect.effect_id)
        assert told is not None
        assert (told.kind, told.state) == ("effect", "confirmed")
        assert await made.ledger.explain(uuid4()) is None
        await made.ledger.aclose()


@pytest.mark.parametrize("by", ["receive", "begin", "transact"])
async def test_what_is_committed_here_is_done_at_once_by_a_worker_of_this_process(
    ledger_db: LedgerDb, monkeypatch: pytest.MonkeyPatch, by: str
):
    """Its looks are an hour apart, and it rests already: nothing but the commit wakes it."""
    monkeypatch.setattr(workers_agent, "IDLE_MIN_S", 3600.0)
    charge = Charge("i1", 1200)

    async def send(call):
        return call.answer("200", result=b"done")

    def handler(tx, _event):
        tx.request(made.collect, "i1/collect", charge)

    with shop(ledger_db, handler) as made:
        made.collect.sender = send
        worker = made.ledger.worker(lanes=["handle", "effect"])
        worker._life.idle_max_s = 3600.0
        working = asyncio.ensure_future(worker.run())
        async with asyncio.timeout(20):
            while len(worker._life.now._waiters) < len(worker.agents):
                await asyncio.sleep(0.01)
        match by:
            case "receive":
                headers, body = delivery()
                await made.ledger.receive(made.producer, headers=headers, body=body)
            case "begin":
                async with made.ledger.begin() as tx:
                    await tx.request(made.collect, "i1/collect", charge)
            case _:
                await asyncio.to_thread(
                    made.ledger.transact, lambda tx: tx.request(made.collect, "i1/collect", charge)
                )
        effect = await made.ledger.wait(made.collect, "i1/collect", timeout_s=10)
        assert effect.state is State.CONFIRMED
        worker.stop()
        await working
        await made.ledger.aclose()


@pytest.mark.scenario("RC-14")
@pytest.mark.parametrize("keeps", [True, False])
def test_a_receipt_in_a_users_transaction_is_kept_or_vanishes_with_it(
    ledger_db: LedgerDb, keeps: bool
):
    with shop(ledger_db) as made:
        headers, body = delivery()
        with made.engine.connect() as conn:
            transaction = conn.begin()
            conn.execute(insert(bills).values(id="mine", cents=1))
            tx = made.ledger.join(conn)
            answer = made.ledger.receive_within(tx, made.producer, headers=headers, body=body)
            assert isinstance(answer, Acknowledged)
            assert transaction.is_active
            transaction.commit() if keeps else transaction.rollback()
        with made.engine.connect() as conn:
            kept = len(conn.execute(select(receipts)).all())
        assert (kept, len(made.outbox()), len(made.billed())) == ((1, 1, 1) if keeps else (0, 0, 0))
        refused = made.ledger.transact(
            lambda tx: made.ledger.receive_within(
                tx, made.producer, headers={**headers, "Webhook-Signature": "v1,AAAA"}, body=body
            )
        )
        assert isinstance(refused, Rejected)


# --- Types ---------------------------------------------------------------------------------------

RIGHT = """
from dataclasses import dataclass, replace
from landed.ledger import Answers, Contract, EffectType, Event, Key, Ledger, Order, SameKey, Tx
from landed.ledger import SigningKey, StandardWebhooks, Call, Settlement
from landed.effects.answer import AttemptAnswer
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

@dataclass
class Invoice:
    id: str

@dataclass
class Charge:
    invoice: str

@dataclass
class Other:
    invoice: str

ledger = Ledger("mine", "sqlite:///app.db")
shop = ledger.producer(
    "shop",
    authentication=StandardWebhooks(keys=(SigningKey(id="k", secret=b"s"),)),
    types={"invoice.finalized": Invoice},
)
acme = ledger.recipient("acme", Contract())
collect = acme.effect("collect", Charge)

@collect.send
async def send(call: Call) -> AttemptAnswer:
    return call.answer("200")

@ledger.on(shop, "invoice.finalized", serial=lambda invoice: invoice.id)
def bill(tx: Tx, event: Event[Invoice]) -> None:
    ref = tx.request(collect, f"invoice/{event.data.id}/collect", Charge(event.data.id))
    reveal: bool = ref.is_created
    tx.publish("billing.opened", {"id": event.data.id}, key=event.data.id)

@collect.settled
def paid(tx: Tx, done: Settlement) -> None: ...

def mine(conn: Connection) -> None:
    ledger.join(conn).request(collect, "k", Charge("1"))

async def theirs(conn: AsyncConnection) -> None:
    tx = await ledger.join(conn)
    await tx.request(collect, "k", Charge("1"))
"""
WRONG = """
def wrong(conn: Connection) -> None:
    ledger.join(conn).request(collect, "k", Other("1"))

async def wrong_too(conn: AsyncConnection) -> None:
    tx = await ledger.join(conn)
    await tx.request(collect, "k", Other("1"))
"""


def test_the_wrong_payload_is_a_type_error_and_the_right_one_is_not(tmp_path: Path):
    """Rule PY-6, with the type checker that users have."""
    file = tmp_path / "users_code.py"
    file.write_text(RIGHT + WRONG)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(file)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=Path(__file__).parents[2],  # strict, and what was checked before need not be again
        env={**os.environ, "MYPYPATH": "src"},
    )
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    lines = (RIGHT + WRONG).splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "Other(" in line]
    assert [int(error.split(":")[1]) for error in errors] == wrong, checked.stdout + checked.stderr
