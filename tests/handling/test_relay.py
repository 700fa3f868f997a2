"""Publications on their way out: once it is proven, in order, and never forgotten."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import OperationalError

from landed.ledger import Ledger
from landed.records import lanes, outbox, reviews
from landed.records.tables import schedule
from landed.relay import (
    Gone,
    Handed,
    LogSink,
    NotHanded,
    Outgoing,
    Pace,
    Relay,
    Taken,
    Undeliverable,
    relays,
)
from landed.workers.agent import Life, run
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.ledgers import Shop, shop
from tests.handling.test_handlers import Killed, killing

QUICK = Pace(backoff_us=0, backoff_max_us=0, tries_max=5)


class Bus:
    """A destination that notes what reaches it, and answers as it is told."""

    proof = "a note"
    dedup_window_s: float | None = None

    def __init__(self, answer: Callable[[Outgoing], Handed | None] | None = None) -> None:
        self.reached: list[Outgoing] = []
        self._answer = answer

    async def hand_on(self, message: Outgoing) -> Handed:
        self.reached.append(message)
        handed = None if self._answer is None else self._answer(message)
        return Taken({"n": len(self.reached)}) if handed is None else handed

    async def close(self) -> None:
        return

    @property
    def types(self) -> list[str]:
        return [message.type for message in self.reached]


def relay(made: Shop, bus: Any, *, pace: Pace = QUICK, **more: Any) -> Relay:
    return Relay(
        made.engine,
        made.books,
        lane="relay:bus",
        sink=bus,
        owner=more.pop("owner", "r1"),
        chance=random.Random(1),
        pace=pace,
        **more,
    )


def publish(made: Shop, *messages: tuple[str, str | None]) -> None:
    for type, key in messages:
        with made.ledger.begin() as tx:
            tx.publish(type, {"type": type}, key=key)


def pump(*agents: Relay) -> int:
    """Until nothing is due."""

    async def all_of_them() -> int:
        total = 0
        while done := sum(await asyncio.gather(*(agent.run_once() for agent in agents))):
            total += done
        return total

    return asyncio.run(all_of_them())


def once(agent: Relay) -> int:
    return asyncio.run(agent.run_once())


def states(made: Shop) -> dict[str, str]:
    return {row.type: row.state for row in made.outbox() if row.kind == "event"}


def due_now(made: Shop) -> None:
    with made.engine.begin() as conn:
        conn.execute(update(schedule).values(ready_at=1, lease_until=None))


# --- Proof ---------------------------------------------------------------------------------------


def test_a_message_is_done_only_with_its_proof(ledger_db: LedgerDb):
    bus = Bus(lambda message: None if len(bus.reached) > 2 else NotHanded("no"))
    with shop(ledger_db) as made:
        publish(made, ("a", None))
        once(relay(made, bus))
        (row,) = made.outbox()
        assert (row.state, row.tries, row.last_error, row.proof) == ("queued", 1, "no", None)
        pump(relay(made, bus))
        (row,) = made.outbox()
        assert (row.state, json.loads(row.proof)) == ("done", {"n": 3})
        with made.engine.connect() as conn:
            assert conn.execute(select(schedule)).all() == []


def test_a_sink_that_raises_or_hangs_has_not_taken_anything(ledger_db: LedgerDb):
    class Broken(Bus):
        async def hand_on(self, message):
            self.reached.append(message)
            if len(self.reached) == 1:
                raise OSError("reset by peer")
            await asyncio.Event().wait()

    with shop(ledger_db) as made:
        publish(made, ("a", None))
        bus = Broken()
        once(relay(made, bus))
        assert made.outbox()[0].last_error == "OSError: reset by peer"
        once(relay(made, bus, pace=Pace(timeout_s=0.05, backoff_us=0)))
        assert made.outbox()[0].last_error.startswith("TimeoutError")
        assert made.outbox()[0].state == "queued"


@pytest.mark.scenario("AS-36", "KP-10", "OB-2")
def test_a_message_goes_out_again_the_same_after_a_crash_before_its_record(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        publish(made, ("a", "k"))
        bus = Bus()
        with pytest.raises(Killed):
            once(relay(made, bus, note=killing("KP-10")))
        assert states(made) == {"a": "queued"}
        due_now(made)
        once(relay(made, bus))
        first, second = bus.reached
        assert first == second
        assert first.cloudevent() == second.cloudevent()
        assert states(made) == {"a": "done"}


@pytest.mark.scenario("KP-9")
def test_a_message_claimed_before_a_crash_goes_out_later(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        publish(made, ("a", None))
        bus = Bus()
        with pytest.raises(Killed):
            once(relay(made, bus, note=killing("KP-9")))
        assert bus.reached == []
        due_now(made)
        once(relay(made, bus))
        assert states(made) == {"a": "done"}


@pytest.mark.scenario("OB-10")
def test_a_message_is_a_cloudevent_that_lets_gaps_be_measured(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        publish(made, ("a", "k"), ("b", "k"), ("c", None))
        bus = Bus()
        pump(relay(made, bus))
        events = {m.type: json.loads(m.cloudevent()) for m in bus.reached}
        assert events["a"]["source"] == "tests/events"
        assert events["a"]["id"] == next(m.message_id for m in bus.reached if m.type == "a")
        assert events["a"]["data"] == {"type": "a"}
        assert [events[type].get("sequence") for type in "abc"] == ["1", "2", None]


@pytest.mark.scenario("OB-5")
def test_a_repeat_after_the_destinations_window_is_noted(ledger_db: LedgerDb):
    facts: list[str] = []
    with shop(ledger_db) as made:
        publish(made, ("a", None))
        bus = Bus(lambda _message: NotHanded("no") if len(bus.reached) == 1 else None)
        bus.dedup_window_s = -1.0
        agent = relay(made, bus, note=lambda name, _fields: facts.append(name))
        once(agent)
        assert "relay.outside_window" not in facts, "the first time is no repeat"
        once(agent)
        assert "relay.outside_window" in facts


# --- Order ---------------------------------------------------------------------------------------


@pytest.mark.scenario("BC-23", "AS-39")
def test_a_message_waits_for_the_one_before_it_and_for_no_other_key(ledger_db: LedgerDb):
    """Two relays, one message at a time; the head fails twice and is backing off."""
    fails = 2

    def answer(message: Outgoing) -> Handed | None:
        nonlocal fails
        if message.type == "r1" and fails > 0:
            fails -= 1
            return NotHanded("not yet")
        return None

    bus = Bus(answer)
    slow = Pace(batch=1, backoff_us=50_000_000, backoff_max_us=50_000_000)
    with shop(ledger_db) as made:
        publish(made, ("r1", "acct-1"), ("r2", "acct-1"), ("r3", "acct-2"))
        both = [relay(made, bus, pace=slow, owner=f"r{n}") for n in range(2)]
        pump(*both)
        assert bus.types.count("r1") <= 2
        assert "r3" in bus.types, "another key does not wait"
        assert "r2" not in bus.types, "the head is backing off"
        while states(made)["r2"] != "done":
            due_now(made)
            pump(*both)
        assert bus.types.index("r2") > max(n for n, t in enumerate(bus.types) if t == "r1")
        assert bus.types.count("r1") == 3
        assert bus.types.count("r2") == bus.types.count("r3") == 1


@pytest.mark.scenario("BC-23")
def test_a_message_held_by_a_relay_that_stands_still_goes_out_with_the_same_identity(
    ledger_db: LedgerDb,
):
    with shop(ledger_db) as made:
        publish(made, ("r1", "acct-1"), ("r2", "acct-1"))
        bus = Bus()

        async def both() -> None:
            paused, go = asyncio.Event(), asyncio.Event()

            class Slow(Bus):
                async def hand_on(self, message):
                    paused.set()
                    await go.wait()
                    return await bus.hand_on(message)

            still = asyncio.ensure_future(relay(made, Slow(), owner="paused").run_once())
            await paused.wait()
            other = relay(made, bus, owner="other")
            assert await other.run_once() == 0, "it is held, and nobody passes it"
            await asyncio.to_thread(due_now, made)
            while await other.run_once():
                pass
            go.set()
            await still

        asyncio.run(both())
        assert bus.types == ["r1", "r2", "r1"], "first deliveries are in order; a repeat may follow"
        assert bus.reached[0] == bus.reached[2]
        assert states(made) == {"r1": "done", "r2": "done"}


@pytest.mark.scenario("OB-8")
def test_a_message_set_aside_blocks_its_key_until_a_person_decides(ledger_db: LedgerDb):
    bus = Bus(lambda message: Undeliverable("no route") if message.type == "r1" else None)
    with shop(ledger_db) as made:
        publish(made, ("r1", "k"), ("r2", "k"), ("r3", "other"))
        pump(relay(made, bus))
        assert states(made) == {"r1": "parked", "r2": "queued", "r3": "done"}
        with made.engine.connect() as conn:
            (review,) = reviews.open_reviews(conn)
            assert (review["kind"], review["subject_kind"]) == ("relay_parked", "outbox")
        parked = next(row for row in made.outbox() if row.type == "r1")
        made.db.transact(lambda conn: outbox.skip(conn, parked.outbox_id, why="told them by phone"))
        pump(relay(made, bus))
        assert states(made) == {"r1": "cancelled", "r2": "done", "r3": "done"}
        assert bus.types.count("r1") == 1, "it never goes out under its old number"


@pytest.mark.scenario("AS-39", "AS-44")
def test_a_destination_that_skips_records_the_skip_and_goes_on(ledger_db: LedgerDb):
    bus = Bus(lambda message: NotHanded("too large") if message.type == "r1" else None)
    with shop(ledger_db) as made:
        publish(made, ("r1", "k"), ("r2", "k"))
        pump(relay(made, bus, is_skipping=True, pace=QUICK))
        assert states(made) == {"r1": "cancelled", "r2": "done"}
        assert bus.types == ["r1"] * QUICK.tries_max + ["r2"]
        row = next(row for row in made.outbox() if row.type == "r1")
        assert row.last_error == "skipped: too large"
        with made.engine.connect() as conn:
            assert [r["kind"] for r in reviews.open_reviews(conn)] == ["relay_skipped"]
        due_now(made)
        pump(relay(made, bus, is_skipping=True))
        assert bus.types.count("r1") == QUICK.tries_max


@pytest.mark.scenario("AS-37", "OB-3")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_a_message_that_commits_after_newer_ones_went_out_goes_out_too(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        bus = Bus()
        with made.ledger.begin() as tx:
            tx.publish("early", {})
            publish(made, ("late", None))
            pump(relay(made, bus))
            assert bus.types == ["late"]
        pump(relay(made, bus))
        assert bus.types == ["late", "early"]


@contextmanager
def begun(engine: Engine) -> Iterator[Connection]:
    """A transaction, however long others hold SQLite's one writer's place."""
    while True:
        conn = engine.connect()
        try:
            conn.begin()
        except OperationalError:
            conn.close()
            continue
        break
    with conn:
        yield conn


def committing_at_random(made: Shop, writers: int, rows: int, keys: int) -> dict[str, list[str]]:
    """Writers in threads of their own; returns the types by key, in the order of their commits."""
    committed: dict[str, list[str]] = defaultdict(list)
    guard = threading.Lock()
    engine = made.db.open(pool_size=writers)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        try:
            for n in range(rows):
                key, type = f"k{chance.randrange(keys)}", f"w{number}-{n}"
                with begun(engine) as conn:
                    made.ledger.join(conn).publish(type, {}, key=key)
                    if chance.random() < 0.3:
                        threading.Event().wait(chance.random() / 200)  # a slow user, holding ids
                    with guard:  # the key's own lock is held, so this is the order of commits
                        committed[key].append(type)
                    conn.commit()
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    bus = Bus(lambda message: NotHanded("flaky") if bus_chance.random() < 0.2 else None)
    bus_chance = random.Random(99)
    agents = [
        relay(made, bus, owner=f"r{n}", pace=Pace(backoff_us=0, tries_max=10**6)) for n in range(2)
    ]
    while any(thread.is_alive() for thread in threads):
        pump(*agents)
    for thread in threads:
        thread.join(30)
    pump(*agents)
    assert failures == []
    made.reached = bus.reached  # type: ignore[attr-defined]
    return committed


def check_random_commits(made: Shop, writers: int, rows: int, keys: int) -> None:
    committed = committing_at_random(made, writers, rows, keys)
    first: dict[str, list[str]] = defaultdict(list)
    for message in made.reached:  # type: ignore[attr-defined]
        assert message.order_key is not None
        if message.type not in first[message.order_key]:
            first[message.order_key].append(message.type)
    assert sum(len(types) for types in first.values()) == writers * rows, "none is lost"
    assert first == committed, "first deliveries are in the order of commits"


@pytest.mark.scenario("AS-37", "AS-38", "OG-2")
def test_nothing_is_lost_and_keys_keep_their_order_under_many_writers(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        check_random_commits(made, writers=4, rows=8, keys=4)


@pytest.mark.long
@pytest.mark.scenario("AS-37", "AS-38", "OG-2")
def test_nothing_is_lost_of_ten_thousand_messages_of_sixteen_writers(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        check_random_commits(made, writers=16, rows=625, keys=64)


# --- Destinations that are gone, slow, or silent -------------------------------------------------


@pytest.mark.scenario("OB-4")
def test_a_destination_that_is_gone_stops_its_lane_and_keeps_its_messages(ledger_db: LedgerDb):
    bus = Bus(lambda _message: Gone("410"))
    with shop(ledger_db) as made:
        publish(made, ("a", None), ("b", None))
        pump(relay(made, bus))
        assert states(made) == {"a": "queued", "b": "queued"}
        with made.engine.connect() as conn:
            assert lanes.why_stopped(conn, "relay:bus") == "410"
            assert [r["kind"] for r in reviews.open_reviews(conn)] == ["destination_gone"]
        asked = len(bus.reached)
        due_now(made)
        assert once(relay(made, bus)) == 0, "another process stops as well"
        assert len(bus.reached) == asked
        made.db.transact(lambda conn: lanes.resume(conn, "relay:bus"))
        well = Bus()
        pump(relay(made, well))
        assert sorted(well.types) == ["a", "b"]


def test_what_a_destination_asks_to_wait_is_waited_for_all_its_messages(ledger_db: LedgerDb):
    class Hand:
        """A clock that only the test moves."""

        now_ms = 1_000_000.0

        def wall_ms(self):
            return int(self.now_ms)

        def monotonic_ms(self):
            return self.now_ms

    hand = Hand()
    with shop(ledger_db) as made:
        object.__setattr__(made.books, "clock", hand)
        publish(made, ("a", None))
        bus = Bus(lambda _message: NotHanded("busy", 60.0) if len(bus.reached) == 1 else None)
        agent = relay(made, bus)
        assert once(agent) == 1
        publish(made, ("b", None))
        assert once(agent) == 0
        hand.now_ms += 61_000
        due_now(made)
        pump(agent)
        assert sorted(bus.types) == ["a", "a", "b"]


@pytest.mark.scenario("AS-43", "OB-11")
def test_messages_are_found_though_every_wake_up_is_lost(ledger_db: LedgerDb):
    with shop(ledger_db) as made:

        async def live() -> None:
            taken = asyncio.Event()

            def answer(_message: Outgoing) -> None:
                taken.set()

            life = Life(idle_max_s=0.05)
            running = asyncio.ensure_future(
                run(relay(made, Bus(answer)), life, note=lambda _name, _fields: None)
            )
            await asyncio.to_thread(publish, made, ("a", None))
            async with asyncio.timeout(20):
                await taken.wait()
            life.stop()
            await running

        asyncio.run(live())


# --- Alerts --------------------------------------------------------------------------------------


class Sinks(Bus):
    """One of several places for alerts."""


def alerting(db: LedgerDb, *sinks: Any) -> tuple[Ledger, Relay]:
    ledger = Ledger(LEDGER, db.url, digest_key=DIGEST_KEY)
    for sink in sinks:
        ledger.alerts(sink)
    ledger.prepare()
    made = relays(
        ledger.engine, ledger.books, ledger.registry, owner="r", chance=random.Random(1), pace=QUICK
    )
    (agent,) = made
    assert agent.lane == "alert"
    return ledger, agent


def raise_alert(ledger: Ledger) -> None:
    review = reviews.Review(
        kind="handler_poison",
        subject_kind="outbox",
        subject_id="1",
        severity="warning",
        owner="team-billing",
        note="look",
    )
    with ledger.engine.begin() as conn:
        reviews.open_review(conn, ledger.books, review)


@pytest.mark.scenario("AL-2")
def test_an_alert_reaches_every_place_and_one_that_is_down_repeats_for_nobody_else(
    ledger_db: LedgerDb,
):
    well, ill = Sinks(), Sinks(lambda _message: NotHanded("down") if len(ill.reached) < 3 else None)
    ledger, agent = alerting(ledger_db, well, ill)
    raise_alert(ledger)
    pump(agent)
    assert (len(well.reached), len(ill.reached)) == (1, 3)
    told = json.loads(well.reached[0].data)
    assert (told["owner"], told["kind"]) == ("team-billing", "handler_poison")
    ledger.close()


def test_an_alert_goes_to_the_log_if_nothing_else_was_declared(ledger_db: LedgerDb, caplog):
    ledger, agent = alerting(ledger_db)
    raise_alert(ledger)
    assert pump(agent) == 1
    assert [record.name for record in caplog.records] == ["landed.alerts"]
    assert "team-billing" in caplog.text
    assert LogSink.proof
    ledger.close()
