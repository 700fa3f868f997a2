"""Runs through the doors of live traffic: counted, bounded, paused, rehearsed, and killed."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from landed.deliveries.event import IdentityRule
from landed.effects.answer import Ambiguous, Success
from landed.errors import ApprovalMissingError
from landed.ledger import Invalid, Ledger
from landed.records import retention, runs
from landed.records.session import transact
from landed.records.tables import effects as effect_rows
from landed.records.tables import quarantine, receipts, schedule
from landed.workers.backfill import Clerk, go, step
from landed.workers.handling import Handling
from landed.workers.rehearsal import rehearse
from landed.workers.sources import DeliveryFile, ReceiptList
from tests.handling import lives
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.doors import KEY, TYPE, Door, door, sign
from tests.handling.ledgers import ACME, Charge

pytestmark = pytest.mark.real_loop
DAY_US = 24 * 3_600_000_000


class KilledError(BaseException):
    """Ends everything, like a kill."""


@dataclass
class Shop:
    """A ledger whose handler asks for one effect an invoice, and its clerk."""

    db: LedgerDb
    ledger: Ledger
    path: Path

    def line(self, id: str, *, cents: Any = 1200, age_s: int = 0, key: bytes = KEY.secret) -> str:
        body = json.dumps({"type": TYPE, "id": id, "cents": cents})
        at_s = self.ledger.books.now_us() // 1_000_000 - age_s
        headers = {
            "Webhook-Id": id,
            "Webhook-Timestamp": str(at_s),
            "Webhook-Signature": sign(body.encode(), id=id, at_s=at_s, key=key),
        }
        return json.dumps({"headers": headers, "body": body})

    def source(self, *lines: str) -> DeliveryFile:
        self.path.write_text("\n".join(lines) + "\n\n")
        return DeliveryFile(self.path)

    def plan(self, **more: Any) -> runs.Plan:
        made: dict[str, Any] = {
            "kind": runs.BACKFILL,
            "label": "test",
            "namespace": "shop",
            "source": str(self.path),
            **more,
        }
        return runs.Plan(**made)

    def approved(self, **more: Any):
        plan = self.plan(**more)

        def work(conn):
            run_id = runs.create(conn, self.ledger.books, plan, by="bob", why="an outage")
            runs.approve(conn, self.ledger.books, run_id, by="ann", plan_digest=plan.digest())
            return run_id

        return self.db.transact(work)

    def clerk(self, **more: Any) -> Clerk:
        return Clerk(
            engine=self.ledger.engine,
            books=self.ledger.books,
            registry=self.ledger.registry,
            **more,
        )

    def run(self, run_id, source, **more: Any):
        return asyncio.run(go(self.clerk(**more), run_id, source))

    def counts(self, run_id) -> dict[str, int]:
        row = self.db.transact(lambda conn: runs.load(conn, run_id))
        names = ("accepted", "duplicates", "quarantined", "conflicts", "rejected")
        return {name: row[name] for name in names if row[name]}

    def handle(self) -> list[str]:
        """Let the handlers run; returns the keys of all effects."""
        agent = Handling(
            self.ledger.engine,
            self.ledger.books,
            self.ledger.registry,
            owner="w1",
            chance=random.Random(1),
        )

        async def run() -> None:
            while await agent.run_once():
                pass

        asyncio.run(run())
        with self.db.engine.connect() as conn:
            return sorted(conn.execute(select(effect_rows.c.effect_key)).scalars())


@pytest.fixture
def shop(ledger_db: LedgerDb, tmp_path: Path):
    def check(document: Any) -> Any:
        if not isinstance(document["cents"], int):
            raise Invalid("cents is a number")
        return document

    ledger = Ledger(LEDGER, ledger_db.url, digest_key=DIGEST_KEY)
    from landed.ledger import StandardWebhooks

    producer = ledger.producer(
        "shop",
        authentication=StandardWebhooks(keys=(KEY,)),
        types={TYPE: check},
        identity=IdentityRule.WEBHOOK_ID,
        has_signed_event_time=True,
    )
    collect = ledger.recipient("acme", ACME).effect("collect", Charge)
    collect.send(_never)
    collect.lookup(_never)

    @ledger.on(producer, TYPE)
    def bill(tx: Any, event: Any) -> None:
        if event.data["cents"] < 0:
            raise ValueError("negative")
        key = f"invoice/{event.data['id']}/collect"
        tx.request(collect, key, Charge(event.data["id"], event.data["cents"]))

    ledger.prepare()
    yield Shop(ledger_db, ledger, tmp_path / "stored.jsonl")
    ledger.close()


async def _never(_call: Any) -> Any:
    raise AssertionError("no network in these tests")


@pytest.mark.scenario("AS-96")
def test_a_backfill_counts_every_item_and_pauses_on_a_conflict(shop: Shop):
    held = [shop.line(f"i{n}") for n in range(20)]
    first = shop.approved(label="first")
    assert shop.run(first, shop.source(*held)).state == "completed"
    assert shop.counts(first) == {"accepted": 20}
    lines = [shop.line(f"i{n}", cents=7 if n in (3, 4) else 1200) for n in range(20)]
    lines += [shop.line(f"new{n}") for n in range(30)]
    lines += [shop.line("bad", cents="x"), "not json at all", shop.line("forged", key=b"y" * 20)]
    second = shop.approved(label="second")
    source = shop.source(*lines)
    paused = shop.run(second, source, batch=10)
    assert (paused.state, paused.done) == ("paused", 10)
    assert "another payload" in paused.why
    assert shop.run(second, source, batch=10).state == "completed"
    assert shop.counts(second) == {
        "accepted": 30,
        "duplicates": 18,
        "quarantined": 1,
        "conflicts": 2,
        "rejected": 2,
    }
    with shop.db.engine.connect() as conn:
        origins = set(
            conn.execute(
                select(receipts.c.origin).where(receipts.c.event_id.like("new%"))
            ).scalars()
        )
    assert origins == {f"backfill:{second}"}
    assert len(shop.handle()) == 50, "one effect an invoice, whatever came twice"


@pytest.mark.scenario("AS-97")
def test_an_unapproved_run_takes_nothing(shop: Shop):
    plan = shop.plan()
    run_id = shop.db.transact(
        lambda conn: runs.create(conn, shop.ledger.books, plan, by="bob", why="an outage")
    )
    with pytest.raises(ApprovalMissingError):
        shop.run(run_id, shop.source(shop.line("i1")))
    assert shop.counts(run_id) == {}


@pytest.mark.scenario("AS-99")
def test_a_ceiling_stops_the_run_before_the_item_that_would_be_too_many(shop: Shop):
    run_id = shop.approved(ceilings=runs.Ceilings(receipts=7))
    source = shop.source(*[shop.line(f"i{n}") for n in range(20)])
    paused = shop.run(run_id, source, batch=5)
    assert (paused.state, paused.done) == ("paused", 7)
    assert "7 receipts" in paused.why
    assert shop.counts(run_id) == {"accepted": 7}


@pytest.mark.scenario("AS-98")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)  # PostgreSQL has its own clock
def test_the_rate_holds_over_two_workers_and_a_restart(shop: Shop):
    class Turned:
        ms = 1_800_000_000_000

        def wall_ms(self):
            return self.ms

        def monotonic_ms(self):
            return float(self.ms)

    clock = Turned()
    books = replace(shop.ledger.books, clock=clock)
    run_id = shop.approved(rate_per_s=20.0, is_stale_approved=True)
    source = shop.source(*[shop.line(f"i{n}") for n in range(100)])
    taken: list[int] = []
    workers = [replace(shop.clerk(), books=books) for _ in range(2)]
    keepers = [worker.doorkeeper() for worker in workers]
    transact(shop.ledger.engine, lambda conn: runs.start(conn, books, run_id))
    for tick in range(30):
        if tick == 15:
            workers = [replace(shop.clerk(), books=books) for _ in range(2)]
        for worker, keeper in zip(workers, keepers, strict=True):
            progress = step(worker, keeper, run_id, source)
        taken.append(progress.done)
        clock.ms += 100
    assert taken[-1] > 40, "it goes on"
    for start in range(20):
        assert taken[start + 10] - taken[start] <= 40, "one second's worth, and one burst"


@pytest.mark.scenario("BF-6")
def test_a_run_in_doubt_is_paused_with_the_numbers_and_goes_on_once_it_is_settled(shop: Shop):
    run_id = shop.approved()
    source = shop.source(*[shop.line(f"i{n}") for n in range(40)])
    worker, books = shop.clerk(batch=20), shop.ledger.books
    keeper = worker.doorkeeper()
    transact(shop.ledger.engine, lambda conn: runs.start(conn, books, run_id))
    assert step(worker, keeper, run_id, source).done == 20
    shop.handle()
    with shop.db.engine.connect() as conn:
        ids = list(conn.execute(select(effect_rows.c.effect_id)).scalars())
    for effect_id in ids[:5]:
        shop.db.transact(
            lambda conn, effect_id=effect_id: lives.attempted(
                conn, books, effect_id, Ambiguous("reset"), ACME
            )
        )
    paused = step(worker, keeper, run_id, source)
    assert (paused.state, paused.done) == ("paused", 20)
    assert paused.why == "5 of its 20 effects are in doubt"
    shop.db.transact(
        lambda conn: lives.attempted(conn, books, ids[0], Success(b"", None, "200"), ACME)
    )
    assert shop.run(run_id, source).state == "completed", "four of twenty are no alarm"
    assert shop.counts(run_id) == {"accepted": 40}


@pytest.mark.scenario("AS-100")
def test_killed_anywhere_a_run_neither_skips_nor_recounts(shop: Shop):
    run_id = shop.approved()
    source = shop.source(*[shop.line(f"i{n}") for n in range(40)])
    chance = random.Random(3)
    kills = 0
    for _ in range(60):
        left = chance.randint(0, 12)

        def note(name: str, _fields: Any) -> None:
            nonlocal left
            if name == "kp":
                left -= 1
                if left < 0:
                    raise KilledError

        worker = shop.clerk(note=note, batch=4)
        keeper = worker.doorkeeper()
        transact(shop.ledger.engine, lambda conn: runs.start(conn, shop.ledger.books, run_id))
        try:
            while step(worker, keeper, run_id, source).state == "running":
                pass
            break
        except KilledError:
            kills += 1
            done = shop.db.transact(lambda conn: runs.load(conn, run_id))["cursor"]
            assert shop.counts(run_id).get("accepted", 0) == done
            with shop.db.engine.connect() as conn:
                assert len(conn.execute(select(receipts.c.receipt_id)).all()) == done
    assert kills > 2
    assert shop.counts(run_id) == {"accepted": 40}


@pytest.mark.scenario("AS-101")
def test_a_rehearsal_says_what_the_run_then_does_and_leaves_no_row(shop: Shop):
    shop.run(shop.approved(label="first"), shop.source(shop.line("held"), shop.line("other")))
    before = shop.handle()
    lines = [
        shop.line("held"),
        shop.line("other", cents=5),
        *[shop.line(f"new{n}") for n in range(5)],
        shop.line("new0"),
        shop.line("bad", cents="x"),
        shop.line("minus", cents=-1),
        "nonsense",
    ]
    source = shop.source(*lines)
    with shop.db.engine.connect() as conn:
        rows_before = len(conn.execute(select(receipts.c.receipt_id)).all())
    foreseen = rehearse(shop.clerk(), shop.plan(), source)
    with shop.db.engine.connect() as conn:
        assert len(conn.execute(select(receipts.c.receipt_id)).all()) == rows_before
        assert sorted(conn.execute(select(effect_rows.c.effect_key)).scalars()) == before
    run_id = shop.approved(label="second")
    while shop.run(run_id, source).state != "completed":
        pass
    assert {name: n for name, n in foreseen.counts.items() if n} == shop.counts(run_id)
    new = sorted(set(shop.handle()) - set(before))
    assert sorted(key.removeprefix("acme/") for key in foreseen.effect_keys) == new
    assert [failure.partition(":")[0] for failure in foreseen.failures] == ["minus"]


@pytest.mark.scenario("AS-104")
def test_stale_signatures_pass_only_under_approval_and_false_ones_never(shop: Shop):
    lines = [shop.line("old", age_s=86_400), shop.line("forged", age_s=86_400, key=b"z" * 20)]
    source = shop.source(*lines)
    plain = shop.approved(label="plain")
    shop.run(plain, source)
    assert shop.counts(plain) == {"rejected": 2}
    stale = shop.approved(label="stale", is_stale_approved=True)
    shop.run(stale, source)
    assert shop.counts(stale) == {"accepted": 1, "rejected": 1}
    with shop.db.engine.connect() as conn:
        assert (
            conn.execute(select(receipts.c.auth_result)).scalar_one() == "verified-stale-approved"
        )


def test_a_run_yields_to_live_events_that_wait(shop: Shop):
    async def live() -> None:
        async with door(
            shop.db, ledger=(shop.ledger, shop.ledger.registry.producers["shop"])
        ) as at:
            made = json.loads(shop.line("live"))
            await at.post({"content": made["body"], "headers": made["headers"]})

    asyncio.run(live())
    late = update(schedule).values(ready_at=schedule.c.ready_at - 120_000_000)
    shop.db.transact(lambda conn: conn.execute(late))
    run_id = shop.approved()
    source = shop.source(shop.line("old"))
    clerk = shop.clerk()
    keeper = clerk.doorkeeper()
    shop.db.transact(lambda conn: runs.start(conn, shop.ledger.books, run_id))
    assert step(clerk, keeper, run_id, source)[2:] == ("running", "live traffic")
    shop.handle()
    assert step(clerk, keeper, run_id, source).done == 1


@pytest.mark.scenario("AS-88")
def test_a_run_refuses_what_is_older_than_the_replay_floor(shop: Shop):
    producer = shop.ledger.registry.producers["shop"]
    now_us = shop.ledger.books.now_us()
    shop.db.transact(lambda conn: retention.raise_floor(conn, producer, now_us - DAY_US))
    body = json.dumps({"type": TYPE, "id": "a", "cents": 1, "timestamp": "2001-02-03T04:05:06Z"})
    at_s = now_us // 1_000_000
    headers = {
        "webhook-id": "a",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(body.encode(), id="a", at_s=at_s),
    }
    run_id = shop.approved()
    shop.run(run_id, shop.source(json.dumps({"headers": headers, "body": body})))
    assert shop.counts(run_id) == {"rejected": 1}


@pytest.mark.scenario("AS-23")
def test_a_reprocessing_releases_what_the_declarations_of_today_accept(shop: Shop):
    run_id = shop.approved()
    shop.run(run_id, shop.source(shop.line("good", cents="5"), shop.line("bad", cents="x")))
    assert shop.counts(run_id) == {"quarantined": 2}
    assert shop.handle() == []
    types = shop.ledger.registry.producers["shop"].types

    def check(document: Any) -> Any:
        return {**document, "cents": int(document["cents"])}

    types[TYPE] = replace(types[TYPE], versions={None: check})  # type: ignore[index]
    again = shop.approved(kind=runs.REPROCESS, label="schema 2", source="quarantine")
    source = ReceiptList(shop.ledger.engine, "shop", not_after=again)
    assert shop.run(again, source).state == "completed"
    assert shop.counts(again) == {"accepted": 1, "quarantined": 1}
    assert shop.handle() == ["invoice/good/collect"]
    with shop.db.engine.connect() as conn:
        decided = conn.execute(
            select(quarantine.c.run_id).where(quarantine.c.decision == "released")
        ).scalar_one()
    assert decided == again

    async def redelivered() -> str:
        async with door(
            shop.db, ledger=(shop.ledger, shop.ledger.registry.producers["shop"])
        ) as at:
            stored = json.loads(shop.line("good", cents="5"))
            made = {"content": stored["body"], "headers": stored["headers"]}
            return await _word(at, made)

    assert asyncio.run(redelivered()) == "duplicate"
    assert shop.handle() == ["invoice/good/collect"]


async def _word(at: Door, made: dict[str, Any]) -> str:
    return str((await at.post(made)).headers["landed-disposition"])
