"""A ledger to be measured: webhooks that a handler turns into effects at an instant recipient."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection

from landed.clock import SystemClock
from landed.deliveries.classify import AcceptedEvent, fingerprint_event
from landed.deliveries.event import Event as Delivered
from landed.deliveries.event import IdentityRule, Verified
from landed.effects.answer import AttemptAnswer
from landed.fingerprint import canonical_json
from landed.intake.receive import Intake
from landed.ledger import (
    Answers,
    Call,
    Contract,
    Event,
    Key,
    Ledger,
    SameKey,
    SigningKey,
    StandardWebhooks,
    Tx,
)
from landed.records import receipts
from landed.relay.port import Handed, Outgoing, Taken

SENDS: Final = 200
"""Sends at once: two batches of what a worker begins together."""
_SECRET: Final = b"what the shop and we have in common"
_NUMBERS: Final = count(1)
_GROUP: Final = 500


class InstantSink:
    """A destination that takes everything at once."""

    proof = "nothing"
    dedup_window_s = None

    async def hand_on(self, message: Outgoing) -> Handed:
        del message
        return Taken({})

    async def close(self) -> None:
        pass


class Measured:
    """One ledger on one database, and how fast it goes."""

    def __init__(self, url: str) -> None:
        self._wanted = 0
        self._reached = asyncio.Event()
        ledger = Ledger("bench", url, digest_key=b"the benchmark's digest key", note=self._note)
        shop = ledger.producer(
            "shop",
            authentication=StandardWebhooks(keys=(SigningKey(id="k1", secret=_SECRET),)),
            types={"order.placed": None},
        )
        contract = Contract(
            key=Key(same_key=SameKey.REPLAYS, retention_s=24 * 3600),
            answers=Answers(success=("200",), is_success_durable=True),
            series_max_s=12 * 3600,
            concurrency=SENDS,
        )
        act = ledger.recipient("acme", contract).effect("act", dict)

        @ledger.on(shop, "order.placed")
        def place(tx: Tx, event: Event[Any]) -> None:
            tx.request(act, f"order/{event.data['id']}/act", event.data)

        @act.send
        async def send(call: Call) -> AttemptAnswer:
            return call.answer("200", result=b"ok")

        ledger.destination("out", InstantSink())
        ledger.prepare()
        self.ledger = ledger

    def close(self) -> None:
        """Let go of the database."""
        self.ledger.close()

    # --- Effects and publications -----------------------------------------------------------------

    def keep(self, events: int) -> None:
        """Keep so many events, not timed: they are what the peers' queues are filled with."""
        ledger = self.ledger
        arrivals = [_arrival(next(_NUMBERS)) for _ in range(events)]
        for start in range(0, events, _GROUP):
            group = arrivals[start : start + _GROUP]
            ledger.transact(lambda tx, group=group: receipts.keep(tx.conn, ledger.books, group))

    def effects(self, events: int) -> float:
        """Effects per second: handled, recorded, begun, sent, ended."""
        self.keep(events)
        return asyncio.run(self._drained(events, ("handle", "effect", "reaper"), "attempt.ended"))

    def relay(self, rows: int) -> float:
        """Publications handed on per second, to a sink that takes them at once."""
        self.publish(rows)
        return self.hand_on(rows)

    def hand_on(self, rows: int) -> float:
        """Hand on what was published; rows per second."""
        return asyncio.run(self._drained(rows, ("relay",), "relay.handed"))

    def publish(self, rows: int) -> None:
        """Record so many publications, not timed."""

        def _publish(tx: Tx, numbers: range) -> None:
            for number in numbers:
                tx.publish("order.placed", {"id": number})

        for start in range(0, rows, _GROUP):
            numbers = range(start, min(rows, start + _GROUP))
            self.ledger.transact(lambda tx, numbers=numbers: _publish(tx, numbers))

    async def _drained(self, wanted: int, lanes: tuple[str, ...], fact: str) -> float:
        self._counted, self._wanted, self._fact = 0, wanted, fact
        self._reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        worker = self.ledger.worker(lanes=lanes)
        began = time.perf_counter()
        running = asyncio.create_task(worker.run())
        await asyncio.wait_for(self._reached.wait(), 600)
        took = time.perf_counter() - began
        worker.stop()
        await running
        return wanted / took

    def _note(self, name: str, fields: Mapping[str, object]) -> None:
        del fields
        if self._wanted and name == self._fact:
            self._counted += 1
            if self._counted == self._wanted:
                self._loop.call_soon_threadsafe(self._reached.set)

    # --- Receipts ---------------------------------------------------------------------------------

    def receipts(self, events: int, *, at_once: int) -> float:
        """Signed webhooks acknowledged per second, from the raw bytes on, so many callers at once."""
        return asyncio.run(self._received(events, at_once))

    async def _received(self, events: int, at_once: int) -> float:
        ledger = self.ledger
        intake = Intake(ledger.engine, ledger.books, ledger.registry, is_grouping=at_once > 1)
        arriving = iter(deliveries(events))

        async def _caller() -> None:
            for headers, body in arriving:
                answer = await intake.receive("shop", headers, body)
                assert type(answer).__name__ == "Acknowledged", answer

        began = time.perf_counter()
        await asyncio.gather(*(_caller() for _ in range(at_once)))
        took = time.perf_counter() - began
        await intake.close()
        return events / took


def _body(number: int) -> bytes:
    return canonical_json({"id": number, "cents": 1200, "note": "n" * 120})


def _arrival(number: int) -> receipts.Arrival:
    event = Delivered(
        source="shop",
        id=f"e{number}",
        identity_rule=IdentityRule.WEBHOOK_ID,
        type="order.placed",
        data=_body(number),
    )
    return receipts.Arrival(
        event=event,
        verified=Verified(namespace="shop", key_id="k1", method="hmac"),
        disposition=AcceptedEvent(None),
        fingerprint=fingerprint_event(event),
        fingerprint_under=lambda _: None,
        handlers=("place",),
        owner="bench",
    )


def deliveries(count: int) -> list[tuple[dict[str, list[str]], bytes]]:
    """So many webhooks of the shop's, each of an event of its own, signed now."""
    return [_delivery(next(_NUMBERS)) for _ in range(count)]


def _delivery(number: int) -> tuple[dict[str, list[str]], bytes]:
    event = {"id": f"d{number}", "source": "shop", "type": "order.placed", "specversion": "1.0"}
    body = canonical_json({**event, "data": {"id": number, "note": "n" * 120}})
    stamp = str(int(SystemClock().wall_ms() // 1000))
    signed = f"d{number}.{stamp}.".encode() + body
    mark = base64.b64encode(hmac.digest(_SECRET, signed, hashlib.sha256)).decode()
    lines = {
        "content-type": "application/cloudevents+json",
        "webhook-id": f"d{number}",
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{mark}",
    }
    return {name: [line] for name, line in lines.items()}, body


def durability_of(conn: Connection) -> str:
    """The settings that say how durable a commit is."""
    if conn.dialect.name == "sqlite":
        names = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
        level = names[conn.exec_driver_sql("PRAGMA synchronous").scalar_one()]
        mode = conn.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        return f"SQLite, journal_mode={mode}, synchronous={level}"
    shown = [
        f"{name}={conn.exec_driver_sql(f'SHOW {name}').scalar_one()}"
        for name in ("fsync", "synchronous_commit", "full_page_writes")
    ]
    version = conn.exec_driver_sql("SHOW server_version").scalar_one()
    return f"PostgreSQL {version}, {', '.join(shown)}"


def filled(conn: Connection, rows: int) -> list[str]:
    """Statements that insert rows which are done with: outbox rows and effects."""
    if conn.dialect.name == "sqlite":
        source = (
            f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows})"
            " SELECT n FROM c)"
        )
        id_, digest, no = "printf('%032x', n)", "CAST(printf('%032d', n) AS BLOB)", "0"
    else:
        source = f"generate_series(1, {rows}) AS t(n)"
        id_, no = "md5('id' || n)::uuid", "false"
        digest = "decode(md5('d' || n) || md5('e' || n), 'hex')"
    outbox = (
        "INSERT INTO landed_outbox (outbox_id, kind, destination, message_id, cause_kind, type,"
        " created_at, state, done_at)"
        f" SELECT {id_}, 'event', 'out', 'm' || n, 'local', 't', n, 'done', n FROM {source}"
    )
    effects = (
        "INSERT INTO landed_effects (effect_id, recipient, effect_type, key_digest, payload_form,"
        " fingerprint, idempotency_key, contract_digest, is_behind_head, state, is_absence_final,"
        " has_late_success, is_contradicted, is_cancel_requested, created_at, settled_at,"
        " settled_mark, scrub_tier)"
        f" SELECT {id_}, 'acme', 'act', {digest}, 'jcs-1', {digest}, {id_}, {digest}, {no},"
        f" 'confirmed', {no}, {no}, {no}, {no}, n, n, 0, 2 FROM {source}"
    )
    return [outbox, effects]
