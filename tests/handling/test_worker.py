"""All lanes together: one agent's failure stops nobody, a stop is orderly, and the schedule is disposable."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from landed.deliveries.producer import Producer
from landed.deliveries.verify import StandardWebhooks
from landed.effects.horizon import DAY_S, HouseSpans, Limits
from landed.effects.order import OrderPolicy
from landed.effects.state import State
from landed.errors import ConfigurationError, StorageError
from landed.facts import forget
from landed.records import invariants, rebuild, schedule
from landed.records.bell import Bell
from landed.records.retention import Policy
from landed.records.tables import effects as effect_rows
from landed.records.tables import schedule as schedule_rows
from landed.registry import Ordering, Registry
from landed.workers import agent as workers_agent
from landed.workers.agent import LaneAgent, Life, Rest, note_failure, run, shielded
from landed.workers.desk import Desk, Tempo
from landed.workers.flow import Flow
from landed.workers.keeper import Keeper
from landed.workers.worker import Worker, agents_of, chosen, lane_of
from tests.handling import lives, works
from tests.handling.far_side import far_side
from tests.lines import next_line


class Counting:
    """An agent that finds work a number of times; a None among them is a failure."""

    name = "counting"

    def __init__(self, *rounds: int | None) -> None:
        self.rounds = deque(rounds)
        self.ran = 0

    async def run_once(self) -> int:
        self.ran += 1
        found = self.rounds.popleft() if self.rounds else 0
        if found is None:
            raise StorageError("the database is away")
        return found


async def until(condition, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_failing_agent_comes_again_and_stops_nobody():
    facts = []
    failing, other = Counting(None, None, 1), Counting(1, 1)
    worker = Worker([failing, other], note=lambda name, fields: facts.append((name, fields)))
    running = asyncio.ensure_future(worker.run())
    await until(lambda: failing.ran > 3 and other.ran > 2)
    worker.stop()
    await running
    assert [name for name, _ in facts if name == "agent.storage_failed"] == [
        "agent.storage_failed"
    ] * 2
    assert facts[-1][0] == "worker.stopped"


async def test_a_wake_up_ends_a_rest_at_once_and_a_lost_one_costs_latency_only():
    agent = Counting()
    life = Life(idle_max_s=60.0)
    rest = Rest(life)
    for _ in range(20):
        rest._idle_s = 60.0  # it has rested ever longer
    resting = asyncio.ensure_future(rest.take())
    await asyncio.sleep(0)
    life.wake()
    async with asyncio.timeout(5):
        await resting
    running = asyncio.ensure_future(run(agent, Life(idle_max_s=0.02), note=forget))
    await until(lambda: agent.ran > 3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("of_a_lane", [False, True])
async def test_a_wake_up_within_a_look_that_came_too_late_for_it_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, of_a_lane: bool
):
    monkeypatch.setattr(workers_agent, "IDLE_MIN_S", 3600.0)
    life = Life(idle_max_s=3600.0)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 1:
            life.wake()

    class Looking(Counting):
        async def run_once(self) -> int:
            look()
            return 0

    class OfALane(LaneAgent[int]):
        async def take(self, limit: int) -> list[int]:
            look()
            return []

        async def work(self, piece: int) -> None: ...

    agent = OfALane("of a lane", slots=1, note=forget) if of_a_lane else Looking()
    running = asyncio.ensure_future(run(agent, life, note=forget))
    await until(lambda: len(looks) == 2)
    life.stop()
    await running
    assert len(looks) == 2


async def test_rings_wake_at_once_and_many_of_them_only_now_and_then():
    bell, life, woken = Bell(), Life(), []
    wake = life.wake
    life.wake = lambda: (woken.append(1), wake())
    with bell.heard(life.hurry):
        bell.ring()
        await until(lambda: len(woken) == 1)
        for _ in range(100):
            bell.ring()
        await until(lambda: len(woken) == 2)
        await asyncio.to_thread(bell.ring)
        await until(lambda: len(woken) == 3)
    bell.ring()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(woken) == 3, "nobody hears it any more"


async def test_a_bell_rings_past_a_loop_that_was_closed():
    bell, heard = Bell(), asyncio.Event()

    async def forgotten() -> None:
        bell.heard(never.append).__enter__()

    never: list[Any] = []
    await asyncio.to_thread(asyncio.run, forgotten())
    with bell.heard(heard.set):
        bell.ring()
        async with asyncio.timeout(10):
            await heard.wait()


async def test_finished_work_wakes_the_other_lanes_and_not_what_only_time_brings():
    class Timed(Counting):
        is_timed = True

    busy, other, timed = Counting(0, 1), Counting(), Timed()
    life = Life(idle_max_s=60.0)
    # Their rests are long by now.
    rests = [Rest(life), Rest(life, is_wakeful=False)]
    for rest in rests:
        rest._idle_s = 60.0
    resting = [asyncio.ensure_future(rest.take()) for rest in rests]
    running = [asyncio.ensure_future(run(a, life, note=forget)) for a in (busy, other, timed)]
    await until(resting[0].done)
    assert not resting[1].done()
    life.stop()
    await asyncio.gather(*running, *resting)


async def test_a_round_that_does_not_end_within_the_grace_is_cancelled():
    class Hanging:
        name = "hanging"

        async def run_once(self) -> int:
            await asyncio.Event().wait()
            return 1

    worker = Worker([Hanging()], note=forget, grace_s=0.01)
    running = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0)
    worker.stop()
    async with asyncio.timeout(5):
        await running


async def test_a_lane_claims_no_more_than_its_free_slots():
    class Lane(LaneAgent[int]):
        def __init__(self) -> None:
            super().__init__("lane", slots=3, note=forget)
            self.asked: list[int] = []
            self.open = 0
            self.most = 0
            self.let_go = asyncio.Semaphore(0)

        async def take(self, limit: int) -> list[int]:
            self.asked.append(limit)
            return list(range(limit))

        async def work(self, _piece: int) -> None:
            self.open += 1
            self.most = max(self.most, self.open)
            await self.let_go.acquire()
            self.open -= 1

    lane = Lane()
    life = Life(grace_s=5)
    running = asyncio.ensure_future(lane.run(life))
    await until(lambda: lane.open == 3)
    lane.let_go.release()
    await until(lambda: len(lane.asked) == 2 and lane.open == 3)
    assert lane.asked == [3, 1]
    life.stop()
    for _ in range(3):
        lane.let_go.release()
    await running
    assert (lane.open, lane.most) == (0, 3)


async def test_shielded_work_is_finished_before_its_cancellation_is_passed_on():
    started, let_go, finished = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        started.set()
        await let_go.wait()
        finished.append(True)

    task = asyncio.ensure_future(shielded(work()))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finished == [True]


def test_a_failure_is_noted_by_its_class_and_place_and_never_by_its_text():
    facts = []
    with pytest.raises(ValueError, match="4111") as raised:
        int("4111 1111 1111 1111")
    note_failure(lambda name, fields: facts.append((name, fields)), "handling", raised.value)
    assert "4111" not in str(facts)
    assert facts[0][1]["error"] == "ValueError"


async def test_lanes_are_chosen_by_name_or_by_kind(ledger_db):
    async with works.acme(ledger_db) as acme:
        agents = agents_of(acme.desk)
        assert [lane_of(agent) for agent in agents] == [
            "handle",
            "alert",
            "effect:acme",
            "reconcile:acme",
            "reaper",
            "keeper",
        ]
        assert [lane_of(a) for a in chosen(agents, ["effect", "keeper"])] == [
            "effect:acme",
            "keeper",
        ]
        assert [lane_of(a) for a in chosen(agents, ["reconcile:acme"])] == ["reconcile:acme"]
        with pytest.raises(ConfigurationError, match="there is no lane 'efect'"):
            chosen(agents, ["efect"])


async def test_one_recipients_agents_share_its_flow(ledger_db):
    """A breaker that the executor opens must also stop the reconciler's resends."""
    async with works.acme(ledger_db) as acme:
        agents = agents_of(acme.desk)
        flows = {id(agent._flow) for agent in agents if hasattr(agent, "_flow")}
        assert len(flows) == 1


async def test_all_lanes_together_settle_what_was_asked(ledger_db):
    faults = ["lose", "drop", "status:429", "", "half", "status:409"] * 3
    with far_side(faults=deque(faults)) as far:
        contract = replace(lives.REPLAYS, lookup=None)
        async with works.acme(ledger_db, far, contract=contract) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(20))
            worker = Worker(agents_of(acme.desk), note=acme.desk.note)
            assert worker.health()["is_healthy"]
            running = asyncio.ensure_future(worker.run())
            await until(lambda: _settled(ledger_db) == len(ids), within_s=60)
            worker.stop()
            await running
            assert {acme.see(effect_id).state for effect_id in ids} == {State.CONFIRMED}
            assert set(far.acted.values()) == {1}
            assert far.effects == 20
            with ledger_db.engine.connect() as conn:
                assert invariants.check(conn, ledger_db.books) == []


@pytest.mark.scenario("AS-76")
async def test_a_schedule_lost_under_load_costs_no_effect(ledger_db):
    with far_side(faults=deque(["lose", "drop"] * 10)) as far:
        contract = replace(lives.REPLAYS, lookup=None)
        async with works.acme(ledger_db, far, contract=contract) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(30))
            worker = Worker([acme.executor, acme.reconciler, acme.reaper], note=acme.desk.note)
            running = asyncio.ensure_future(worker.run())
            await until(lambda: far.effects >= 5)
            await acme.desk.transact(lambda conn: conn.execute(schedule_rows.delete()))
            await acme.desk.transact(lambda conn: rebuild.rebuild_schedule(conn, acme.desk.books))
            await until(lambda: _settled(ledger_db) == len(ids), within_s=60)
            worker.stop()
            await running
            assert set(far.acted.values()) == {1}
            assert far.effects == 30


async def test_work_is_done_until_nothing_is_due(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            acme.ask_many(f"k{n}" for n in range(3))
            worker = Worker([acme.executor, acme.reconciler], note=forget)
            assert await worker.run_until_idle() == 3
            assert far.effects == 3


@pytest.mark.scenario("BC-22")
def test_a_claim_that_was_taken_over_is_neither_renewed_nor_finished(ledger_db):
    books = ledger_db.books
    work = schedule.Work("effect:acme", "effect", books.new_id())
    ledger_db.transact(lambda conn: schedule.put(conn, books, [work]))

    def claim(owner, lease_us):
        (found,) = ledger_db.transact(
            lambda conn: schedule.claim(
                conn, books, lane=work.lane, owner=owner, limit=1, lease_us=lease_us
            )
        )
        return found

    a = claim("a", -1)  # its lease is over
    b = claim("b", 60_000_000)
    assert b.token > a.token, "tokens only grow"
    assert not ledger_db.transact(lambda conn: schedule.renew(conn, books, [a]))
    assert ledger_db.transact(lambda conn: schedule.finish(conn, [a])) == 0
    assert not ledger_db.transact(lambda conn: schedule.rearm(conn, books, a, delay_us=0))
    assert ledger_db.transact(lambda conn: schedule.renew(conn, books, [b]))
    assert ledger_db.transact(lambda conn: schedule.finish(conn, [b])) == 1


def test_the_latest_can_only_win_behind_a_fence():
    """OR-7."""
    latest = Ordering(domain="invoice", policy=OrderPolicy.LATEST_WINS)
    with pytest.raises(ConfigurationError, match="no fence"):
        Registry().add_recipient("acme", lives.SEALED).effect("collect", dict, ordered=latest)
    Registry().add_recipient("acme", lives.FENCED).effect("collect", dict, ordered=latest)
    Registry().add_recipient("acme", lives.SEALED).effect("collect", dict, ordered="invoice")


# --- Flow -------------------------------------------------------------------------------------


def flow_of(clock, *, rate_per_s=None, tempo=None, note=forget):
    return Flow(
        "acme",
        replace(lives.REPLAYS, rate_per_s=rate_per_s),
        clock=clock,
        chance=random.Random(1),
        tempo=tempo or Tempo(breaker_after=3, breaker_s=10.0, breaker_max_s=40.0),
        note=note,
    )


def test_a_breaker_opens_after_failures_in_a_row_lets_one_probe_by_and_closes_on_an_answer():
    from landed.effects.answer import Ambiguous, NotExecuted, NotSent, Refused

    clock = works.Turned()
    flow = flow_of(clock)
    for answer in (NotSent(), Ambiguous(), Refused(), NotSent(), Ambiguous(), NotExecuted()):
        assert flow.take()
        flow.answered(answer)
    assert not flow.is_open, "an answer in between shows that it lives"
    for _ in range(3):
        assert flow.take()
        flow.answered(NotSent())
    assert flow.is_open
    assert flow.room(8) == 0
    clock.turn(11)
    assert flow.room(8) == 1
    assert flow.take()
    assert not flow.take(), "one probe at a time"
    flow.answered(NotSent())
    clock.turn(9)
    assert flow.room(8) == 0, "the pause grows"
    clock.turn(12)
    assert flow.take()
    flow.answered(Refused())
    assert flow.room(8) == 8


def test_sends_and_resends_together_take_no_more_places_than_the_contract_has():
    from landed.effects.answer import Refused

    flow = flow_of(works.Turned())
    assert [flow.take() for _ in range(9)] == [True] * 8 + [False]
    flow.answered(Refused())
    assert flow.room(8) == 1


def test_a_rate_is_a_bucket_that_is_given_back_what_was_not_used():
    clock = works.Turned()
    flow = flow_of(clock, rate_per_s=2.0)
    assert [flow.take() for _ in range(3)] == [True, True, False]
    flow.give_back()
    assert flow.take()
    clock.turn(0.5)
    assert flow.room(8) == 1
    clock.turn(60)
    assert flow.room(8) == 2, "a pause saves nothing up"


def test_questions_come_ever_more_slowly_up_to_a_cap(ledger_db):
    desk = Desk(
        engine=ledger_db.engine,
        books=ledger_db.books,
        registry=None,
        worker="w",
        chance=random.Random(3),
        tempo=Tempo(question_us=1_000, question_max_us=100_000),
    )
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    for questions, low, high in ((0, 500, 1_000), (3, 4_000, 8_000), (40, 50_000, 100_000)):
        delays = {desk.question_us(effect._replace(questions=questions)) for _ in range(50)}
        assert low <= min(delays) <= max(delays) <= high
        assert len(delays) > 10, "jitter"


# --- What must be remembered ------------------------------------------------------------------


def forgetful(limits: Limits, contract=lives.REPLAYS, **producer: float) -> Registry:
    made = Registry(limits=limits)
    made.add_producer(
        Producer(namespace="shop", authentication=StandardWebhooks(keys=()), types={}, **producer)
    )
    made.add_recipient("acme", contract)
    return made


@pytest.mark.scenario("AS-90")
@pytest.mark.parametrize(
    ("registry", "numbers"),
    [
        (
            forgetful(Limits(receipts_s=2 * DAY_S), retry_s=3 * DAY_S),
            ["shop retries for 3.00 days, longer than the 2.00 days", "needs 44.05 days"],
        ),
        (
            forgetful(Limits(), replace(lives.REPLAYS, series_max_s=2 * DAY_S), retry_s=DAY_S),
            ["acme forgets a key after 1.00 days, but attempts go on for 2.00 days"],
        ),
        (
            forgetful(Limits(effects_s=40 * DAY_S), retry_s=DAY_S),
            ["effects at acme would be forgotten after 40.00 days", "'backfilled' needs 44.05"],
        ),
        (
            forgetful(Limits(receipts_s=90 * DAY_S), retry_s=None),
            ["receipts of shop may not be forgotten after 90.00 days: nobody knows producer retry"],
        ),
        (
            forgetful(Limits(payloads_s=DAY_S), retry_s=DAY_S),
            ["payloads would go after 1.00 days, but a person may need them for 14.00 days"],
        ),
    ],
)
def test_a_worker_does_not_start_under_limits_that_forget_too_early(ledger_db, registry, numbers):
    desk = Desk(engine=ledger_db.engine, books=ledger_db.books, registry=registry, worker="w")
    with pytest.raises(ConfigurationError, match="would forget too early") as raised:
        agents_of(desk)
    assert all(number in str(raised.value) for number in numbers), raised.value


@pytest.mark.scenario("RT-1")
def test_the_keeper_scrubs_at_the_horizons_of_what_is_declared(ledger_db):
    def policy(registry: Registry) -> Policy:
        desk = Desk(engine=ledger_db.engine, books=ledger_db.books, registry=registry, worker="w")
        (keeper,) = [agent for agent in agents_of(desk) if isinstance(agent, Keeper)]
        return keeper._policy

    day_us = 86_400_000_000
    horizon_us = 44 * day_us + int(HouseSpans().margin_s * 1_000_000)
    found = policy(forgetful(Limits(), retry_s=DAY_S))
    assert found == Policy(
        payload_us=14 * day_us, receipts_us={"shop": horizon_us}, effects_us={"acme": horizon_us}
    )
    unknown = policy(forgetful(Limits(), retry_s=None))
    assert (unknown.receipts_us, unknown.effects_us) == ({"shop": None}, {"acme": None})
    longer = policy(forgetful(Limits(receipts_s=50 * DAY_S, payloads_s=20 * DAY_S), retry_s=DAY_S))
    assert (longer.receipts_us, longer.payload_us) == ({"shop": 50 * day_us}, 20 * day_us)


# --- The command ------------------------------------------------------------------------------

APP = """
import os
from landed.ledger import Answers, Call, Contract, Ledger

ledger = Ledger("tests", os.environ["TEST_DATABASE"], digest_key=b"the tests' own digest key")
acme = ledger.recipient(
    "acme",
    Contract(answers=Answers(success=("200",), is_success_durable=True), ambiguity_reason="test"),
)
collect = acme.effect("collect", dict)


@collect.send
async def send(call: Call):
    return call.answer("200", result=b"ok")
"""


def landed(*arguments: str, folder: Path, url: str, app: str = APP) -> subprocess.Popen[str]:
    import os

    (folder / "shop_app.py").write_text(app)
    return subprocess.Popen(
        [sys.executable, "-m", "landed", *arguments],
        cwd=folder,
        env={**os.environ, "TEST_DATABASE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_landed_work_works_until_sigterm_and_leaves_with_0(ledger_db, tmp_path):
    from landed.records import effects

    worker = landed("work", "shop_app:ledger", folder=tmp_path, url=ledger_db.url)
    try:
        assert next_line(worker) == "landed work: working for tests\n"
        intent = lives.intent("k1", contract=_contract_of_app())
        effect_id = ledger_db.transact(
            lambda conn: effects.request(conn, ledger_db.books, intent).effect_id
        )

        async def confirmed() -> None:
            await until(lambda: _state(ledger_db, effect_id) is State.CONFIRMED)

        asyncio.run(confirmed())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        assert "worker.stopped" in worker.stderr.read()
    finally:
        worker.kill()
        worker.communicate(timeout=30)


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_landed_work_once_does_what_is_due_and_says_so(ledger_db, tmp_path):
    from landed.records import effects

    intent = lives.intent("k1", contract=_contract_of_app())
    ledger_db.transact(lambda conn: effects.request(conn, ledger_db.books, intent))
    worker = landed(
        "work",
        "shop_app:ledger",
        "--once",
        "--json",
        "--lanes",
        "effect",
        folder=tmp_path,
        url=ledger_db.url,
    )
    out, _ = worker.communicate(timeout=60)
    assert (worker.returncode, out) == (0, '{"done": 1}\n')


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing", "module:name"),
        ("no_such_module:ledger", "there is no module no_such_module"),
        ("json:ledger", "json has no ledger"),
        ("json:JSONDecoder", "not a Ledger"),
    ],
)
def test_a_ledger_that_is_not_there_is_said_in_one_line(target, says, capsys):
    from landed.cli.app import run as run_command

    assert run_command(["work", target]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def _contract_of_app():
    from landed.ledger import Answers, Contract

    return Contract(
        answers=Answers(success=("200",), is_success_durable=True), ambiguity_reason="test"
    )


def _settled(db) -> int:
    with db.engine.connect() as conn:
        query = select(func.count()).where(effect_rows.c.settled_at.is_not(None))
        return conn.execute(query).scalar_one()


def _state(db, effect_id) -> State:
    with db.engine.connect() as conn:
        return lives.seen(conn, effect_id).state


@pytest.mark.scenario("AS-90")
def test_landed_work_says_in_one_line_that_it_would_forget_too_early(ledger_db, tmp_path):
    app = APP + (
        "\nfrom landed.ledger import Limits, SigningKey, StandardWebhooks\n"
        "keys = (SigningKey(id='k', secret=b'a secret of the shop'),)\n"
        "ledger.producer('shop', authentication=StandardWebhooks(keys=keys), types={}, retry_s=3e5)\n"
        "ledger.retention(limits=Limits(receipts_s=86400.0))\n"
    )
    worker = landed("work", "shop_app:ledger", folder=tmp_path, url=ledger_db.url, app=app)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "shop retries for 3.47 days, longer than the 1.00 days" in err
