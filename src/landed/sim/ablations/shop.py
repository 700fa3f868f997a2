"""The other world: a shop's deliveries, a ledger with its workers, and recipients that misbehave.

The ledger is the product's own, on a SQLite file that outlives its crashes, and on the simulated
event loop, whose time passes while requests and questions are under way. The recipients are objects
here (``shop_far``), so that what they did is known whatever the ledger believes. What happens is a
list of deeds drawn from a seed, each with its own accidents, so that any of them can be taken away.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import hashlib
import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import Engine, delete, event, insert, select

from landed.deliveries.event import IdentityRule, Rejected
from landed.deliveries.producer import Producer
from landed.deliveries.verify import SigningKey, StandardWebhooks
from landed.effects.contract import Contract
from landed.effects.order import Order, OrderPolicy
from landed.effects.state import TERMINAL
from landed.errors import ActionRefusedError
from landed.facts import Note, forget
from landed.ledger import Ledger, Ordering
from landed.records import effect_actions, ingest, rebuild
from landed.records.actions import Action, Done
from landed.records.session import Books, open_engine, transact
from landed.records.settle import Delays
from landed.records.tables import effects, schedule
from landed.relay.port import Handed, NotHanded, Outgoing, Taken
from landed.sim.ablations.deeds import (
    INVOICE,
    PRODUCERS,
    STRANGE,
    TERMS,
    Day,
    Deed,
    Seen,
    bills,
    own,
)
from landed.sim.ablations.shop_checks import DIGEST_KEY, SOURCE, wrong
from landed.sim.ablations.shop_far import (
    HELD_S,
    OFFICE,
    PAGER,
    FarSide,
    bank_contract,
    next_of,
    post_contract,
)
from landed.sim.ablations.shop_hours import Hours, StillClock
from landed.sim.ablations.shop_watch import HOUSE, PRODUCER_RETRY_S, PRODUCER_TRANSIT_S, Watch
from landed.sim.explore import collect_if_due
from landed.sim.loop import SimLoop
from landed.testing.crash import Crash, crash_at
from landed.workers import handling
from landed.workers.desk import Desk
from landed.workers.worker import Worker, agents_of

R = TypeVar("R")

_SECRET: Final = b"a secret of the shop's own"
_LEDGER: Final = "shop"
_ROUNDS: Final = 4
_ROUND_S: Final = 2_000.0
"""Time that passes between two rounds at the end: longer than any delay between two tries."""


@functools.cache
def _template() -> Path:
    """A prepared, empty database: a copy of it is where each world begins."""
    folder = Path(tempfile.mkdtemp(prefix="landed-shop-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "ledger.db"
    ledger = Ledger(_LEDGER, path, digest_key=DIGEST_KEY, clock=StillClock())
    ledger.prepare()
    transact(ledger.engine, own.create_all)
    ledger.close()
    return path


class _Place:
    """Where the one engine of this process opens its database: another file in each world.

    An engine of its own for each life would compile every statement again: half of a day's time.
    """

    def __init__(self) -> None:
        self.path = _template()
        self.engine: Engine = open_engine(f"sqlite:///{self.path}")
        event.listen(self.engine, "do_connect", self._connect)

    def _connect(self, _dialect: Any, _record: Any, args: list[Any], _options: Any) -> None:
        args[0] = str(self.path)


@functools.cache
def _place() -> _Place:
    return _Place()


class Shop:
    """One world. ``live`` does the deeds, then lets everything come to its end."""

    def __init__(self, folder: Path, day: Day) -> None:
        self.seen = Seen()
        self._day = day
        self.hours = Hours()
        path = folder / "ledger.db"
        shutil.copy(_template(), path)
        _place().path = path
        self.far = FarSide(day.terms, self.hours, self.seen, self._take_over)
        self._watch = Watch(self.seen)
        self._others: list[asyncio.Task[int]] = []
        self._is_taken_over = False
        self._crash: Note = forget
        self.ledger = self._open()

    async def live(self) -> None:
        """Do everything, one after the other; crashes end a deed and begin another life."""
        for deed in self._day.deeds:
            await self._do_or_die(deed)
            await self._look()
        self._tell("nothing goes wrong any more")
        self.hours.step(0.0)
        for left in range(_ROUNDS, 0, -1):
            self._turn(_ROUND_S)
            await self._work()
            await self._look()
            if left == _ROUNDS:
                self.far.arrive()  # after the questions of one round: "not found" was true, then

    async def close(self) -> None:
        """Let go of the database."""
        await self.ledger.aclose()

    # --- deeds

    async def _do_or_die(self, deed: Deed) -> None:
        if deed.crash:
            self._crash = crash_at(deed.crash, passes=deed.passes, kill=False)
        is_dead = False
        self.far.accidents = list(deed.accidents)
        self.far.asked = list(deed.asked)
        answered = set(self.seen.answered)
        try:
            await self._do(deed)
        except BaseException as error:
            if not _is_crash(error):
                raise
            self.seen.answered = answered  # who was told died with it
            self._tell(f"the process dies at {deed.crash}")
            is_dead = True
        self._crash = forget
        await asyncio.gather(*self._others)
        self._others.clear()
        self.far.accidents.clear()
        self.far.asked.clear()
        if is_dead:
            await self.ledger.aclose()
            self.ledger = self._open()

    async def _do(self, deed: Deed) -> None:
        match deed.kind:
            case "deliver":
                await self._deliver(deed)
            case "work":
                await self._work()
            case "wait":
                self._tell(f"{deed.seconds:g} s pass")
                self._turn(deed.seconds)
            case "step":
                self._tell(f"the ledger's clock is {deed.seconds:+g} s out")
                self.hours.step(deed.seconds)
            case "arrive":
                self.far.arrive()
            case "cancel":
                self._cancel(is_answer_lost="lose" in deed.accidents)
            case "rebuild":
                self._tell("the schedule is lost, and made anew")
                transact(self.ledger.engine, lambda conn: conn.execute(delete(schedule)))
                books = self.ledger.books
                transact(self.ledger.engine, lambda conn: rebuild.rebuild_schedule(conn, books))
            case _:
                raise AssertionError(deed.kind)

    async def _deliver(self, deed: Deed) -> None:
        name = (deed.producer, deed.event)
        what = "forged " if deed.is_forged else ""
        self._tell(f"{deed.producer} delivers {what}{deed.type} {deed.event}: {deed.body}")
        answer = await self.ledger.receive(
            self._producers[deed.producer], headers=self._headers(deed), body=deed.body.encode()
        )
        if isinstance(answer, Rejected):
            self._tell(f"  refused: {answer.reason}")
            return
        self._tell("  acknowledged")
        if deed.is_forged:
            self.seen.forged_kept += 1
            return
        self.seen.held.add(name)
        self.seen.sent.setdefault(name, set()).add((deed.type, deed.body))
        if deed.type == STRANGE:
            self.seen.strange.add(name)

    async def _work(self) -> None:
        await self.worker.run_until_idle(rounds_max=50)

    async def _take_over(self) -> None:
        """The worker is paused in the midst of a call: its leases end, and another one works."""
        self._turn(HELD_S)
        if self._is_taken_over:
            return
        self._is_taken_over = True
        other = asyncio.create_task(self.other.run_until_idle(rounds_max=10))
        self._others.append(other)
        try:
            await asyncio.shield(other)  # the paused one's time may be over before
            await self._look()
        finally:
            self._is_taken_over = False

    def _turn(self, seconds: float) -> None:
        self.far.turn(seconds)
        transact(
            self.ledger.engine,
            # The boundary was open all the time; nobody beats through a silence here (RT-7).
            lambda conn: ingest.beat(conn, self.ledger.books, apart_max_us=1 << 60),
        )

    def _cancel(self, *, is_answer_lost: bool) -> None:
        """A person cancels what is open at the office, and again if no answer came (KP-29)."""
        rows = transact(
            self.ledger.engine,
            lambda conn: conn.execute(
                select(effects.c.effect_id, effects.c.effect_key)
                .where(
                    effects.c.recipient == "office",
                    effects.c.state.not_in([state.value for state in TERMINAL]),
                )
                .order_by(effects.c.effect_id)
            ).all(),
        )
        for row in rows:
            action = Action(
                action_id=self.ledger.books.new_id(), actor="a person", reason="not wanted"
            )
            done = self._cancelled(action, row.effect_id)
            if is_answer_lost and done is not None:
                again = self._cancelled(action, row.effect_id)
                if again is None or not again.is_repeat or again.after != done.after:
                    self.seen.wrong.append(("an_act_is_done_once", f"{row.effect_key}: {again}"))

    def _cancelled(self, action: Action, effect_id: UUID) -> Done | None:
        books = self.ledger.books
        case = effect_actions.Case(effect_id, OFFICE, Delays())
        try:
            done = transact(
                self.ledger.engine,
                lambda conn: effect_actions.cancel(conn, books, action, case),
            )
        except ActionRefusedError as refused:
            self._tell(f"a person may not cancel: {refused}")
            return None
        self._tell(f"a person cancels {effect_id.int & 0xFFFF}")
        return done

    async def _look(self) -> None:
        transact(
            self.ledger.engine,
            lambda conn: self._watch.look(conn, now_us=self.ledger.books.now_us()),
        )

    # --- the ledger

    def _open(self) -> Ledger:
        ledger = Ledger(
            _LEDGER,
            _place().path,
            digest_key=DIGEST_KEY,
            clock=self.hours,
            note=self._note,
        )
        ledger.__dict__["engine"] = _place().engine
        self._producers: dict[str, Producer] = {
            name: ledger.producer(
                name,
                authentication=StandardWebhooks(keys=(SigningKey(id="k", secret=_SECRET),)),
                types={INVOICE: None, TERMS: None},
                owner="the shop",
                identity=IdentityRule.CLOUDEVENTS,
                retry_s=PRODUCER_RETRY_S,
                transit_s=PRODUCER_TRANSIT_S,
            )
            for name in PRODUCERS
        }
        self._declare(ledger)
        ledger.retention(house=HOUSE)
        ledger.prepare()
        ledger.chance.seed(0)
        self.worker = ledger.worker(concurrency=1)
        self.other = Worker(
            agents_of(
                Desk(
                    engine=ledger.engine,
                    books=ledger.books,
                    registry=ledger.registry,
                    worker="another",
                    chance=ledger.chance,
                ),
                lanes=("handle", "effect", "reconcile", "reaper"),
                slots=1,
            ),
            note=forget,
        )
        return ledger

    def _declare(self, ledger: Ledger) -> None:
        """Recipients, what may be asked of them, and who asks for it."""
        bank = ledger.recipient("bank", bank_contract(self._day.terms))
        collect = bank.effect("collect", dict[str, Any])
        latest = Ordering(domain="terms", policy=OrderPolicy.LATEST_WINS)
        agree = bank.effect("terms", dict[str, Any], ordered=latest)
        post, pager, office = (
            ledger.recipient(name, contract) for name, contract in self._others_contracts()
        )
        write = post.effect("letter", dict[str, Any])
        page = pager.effect("page", dict[str, Any])
        enter = office.effect("entry", dict[str, Any], ordered="register")
        for effect_type in (collect, agree, write, page, enter):
            recipient = effect_type.recipient
            effect_type.send(functools.partial(self.far.send, recipient))
            if effect_type.contract.lookup is not None:
                effect_type.lookup(functools.partial(self.far.look, recipient))
            if effect_type.contract.seal is not None:
                effect_type.seal(self.far.seal)
        ledger.destination("bus", _Bus(self))
        ledger.alerts(_Bell())

        def bill(tx: Any, event: Any, *, producer: str) -> None:
            tx.conn.execute(insert(bills).values(producer=producer, event=event.id))
            invoice = event.data
            for effect_type in (collect, write, page):
                tx.request(effect_type, f"invoice/{invoice['id']}/{effect_type.name}", invoice)
            tx.publish("billed", {"event": f"{producer}/{event.id}"}, to="bus", key="bills")

        def change(tx: Any, event: Any, *, producer: str) -> None:
            tx.conn.execute(insert(bills).values(producer=producer, event=event.id))
            version = event.data["version"]
            order = Order(event.data["id"], version=version)
            for effect_type in (agree, enter):
                tx.request(
                    effect_type, f"terms/1/{version}/{effect_type.name}", event.data, order=order
                )

        for name, producer in self._producers.items():
            ledger.on(producer, INVOICE, name=f"bill {name}")(
                functools.partial(bill, producer=name)
            )
            ledger.on(producer, TERMS, name=f"change {name}")(
                functools.partial(change, producer=name)
            )

    def _others_contracts(self) -> tuple[tuple[str, Contract], ...]:
        return (("post", post_contract(self._day.terms)), ("pager", PAGER), ("office", OFFICE))

    def _headers(self, deed: Deed) -> Mapping[str, str]:
        at_s = str(self.ledger.books.now_us() // 1_000_000)
        id = f"delivery of {deed.event}"
        secret = b"somebody else's" if deed.is_forged else _SECRET
        signed = f"{id}.{at_s}.{deed.body}".encode()
        token = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
        return {
            "content-type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": at_s,
            "webhook-signature": f"v1,{token}",
            "ce-specversion": "1.0",
            "ce-id": deed.event,
            "ce-source": SOURCE,
            "ce-type": deed.type,
        }

    def _note(self, name: str, fields: Mapping[str, object]) -> None:
        """What the ledger notes; the process dies here, where a deed says so."""
        self._crash(name, fields)

    def _tell(self, line: str) -> None:
        self.seen.told.append(line)

    def take(self, message: Outgoing) -> Handed:
        """The bus takes a message, or not."""
        accident = "" if self._day.terms.focus else next_of(self.far.accidents)
        if accident in ("drop", "busy", "late", "held"):
            self._tell("the bus does not answer")
            return NotHanded(accident)
        self.seen.arrived.add(json.loads(message.data)["event"])
        return NotHanded(accident) if accident == "lose" else Taken({"bus": True})


class _Bell:
    """Where alerts go. Implements ``Sink``."""

    proof = "somebody heard it"
    dedup_window_s = None

    async def hand_on(self, _message: Outgoing) -> Handed:
        return Taken({"heard": True})

    async def close(self) -> None:
        """Nothing is open."""


class _Bus:
    """Where publications go. Implements ``Sink``."""

    proof = "the bus has it"
    dedup_window_s = None

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    async def hand_on(self, message: Outgoing) -> Handed:
        return self._shop.take(message)

    async def close(self) -> None:
        """Nothing is open."""


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_crash, error.exceptions))
    return isinstance(error, Crash)


def live(day: Day) -> tuple[Seen, list[tuple[str, str]]]:
    """Live one world; what was seen, and what is wrong in the end."""
    collect_if_due()
    folder = Path(tempfile.mkdtemp(prefix="landed-shop-", dir=_memory()))

    async def _whole() -> tuple[Seen, list[tuple[str, str]]]:
        shop = Shop(folder, day)
        try:
            await shop.live()
            return shop.seen, [*shop.seen.wrong, *wrong(shop.seen, shop.ledger)]
        finally:
            await shop.close()

    try:
        with (
            patch.object(handling, "on_thread", _on_thread),
            patch.object(Books, "new_id", _counted()),
        ):
            return _run(_whole())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(main: Coroutine[Any, Any, R]) -> R:
    """Run a world on a simulated loop. What a dead process left open is dropped with it."""
    loop = SimLoop(0)
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


async def _on_thread(work: Callable[[], R], *, name: str) -> R:
    """A handler's thread, as the simulated loop has threads."""
    del name
    return await asyncio.get_running_loop().run_in_executor(None, work)


def _counted() -> Callable[[Books], UUID]:
    """Ids that rise as the product's do, without chance: a seed tells the same day every time."""
    numbers = count(1)

    def new_id(books: Books) -> UUID:
        stamp = books.now_us() // 1000 & ((1 << 48) - 1)
        return UUID(int=stamp << 80 | 7 << 76 | 2 << 62 | next(numbers))

    return new_id


def _memory() -> str | None:
    """A folder in memory, where there is one: what is tried here is order, not durability."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
