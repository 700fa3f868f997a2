"""The other world: a shop's deliveries, a ledger with its workers, and recipients that misbehave.

The ledger is the product's own, on a SQLite file that outlives its crashes. The recipients are
objects here, so that what they did is known whatever the ledger believes. What happens is a list of
deeds drawn from a seed, each with its own accidents, so that any of them can be taken away.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import delete, insert

from landed.deliveries.event import IdentityRule, Rejected
from landed.deliveries.producer import Producer
from landed.deliveries.verify import SigningKey, StandardWebhooks
from landed.effects.answer import AttemptAnswer, LookupAnswer
from landed.effects.contract import Ambiguity, Answers, Contract, Fence, Key, Lookup, SameKey
from landed.effects.headers import parse_fence
from landed.effects.order import Order, OrderPolicy
from landed.facts import Note, forget
from landed.ledger import Ledger, Ordering
from landed.records import rebuild
from landed.records.session import transact
from landed.records.tables import schedule
from landed.registry.calls import Ask, Call
from landed.relay.port import Handed, NotHanded, Outgoing, Taken
from landed.sim.ablations.deeds import (
    INVOICE,
    PRODUCERS,
    STRANGE,
    TERMS,
    Acted,
    Deed,
    Seen,
    bills,
    own,
)
from landed.sim.ablations.shop_checks import wrong
from landed.testing.clock import Clock
from landed.testing.crash import Crash, crash_at
from landed.workers.reaper import Reaper

_BEGAN_MS: Final = 1_800_000_000_000
_DIGEST_KEY: Final = b"the shop's own digest key"
_SECRET: Final = b"a secret of the shop's own"
_LEDGER: Final = "shop"
_ROUNDS: Final = 4
_ROUND_S: Final = 2_000.0
"""Time that passes between two rounds at the end: longer than any delay between two tries."""
_LONG_S: Final = 60.0
"""Longer than an attempt may take, with its grace."""


@functools.cache
def _template() -> Path:
    """A prepared, empty database: a copy of it is where each world begins."""
    folder = Path(tempfile.mkdtemp(prefix="landed-shop-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "ledger.db"
    ledger = Ledger(_LEDGER, path, digest_key=_DIGEST_KEY, clock=Clock(_BEGAN_MS))
    ledger.prepare()
    transact(ledger.engine, own.create_all)
    ledger.close()
    return path


class Shop:
    """One world. ``live`` does the deeds, then lets everything come to its end."""

    def __init__(self, folder: Path) -> None:
        self.seen = Seen()
        self.path = folder / "ledger.db"
        shutil.copy(_template(), self.path)
        self.clock = Clock(_BEGAN_MS)
        self._late: list[tuple[str, Call]] = []
        self._accidents: list[str] = []
        self._remembered: dict[str, bytes] = {}
        self._fences: dict[str, int] = {}
        self.ledger = self._open(forget)

    async def live(self, deeds: tuple[Deed, ...]) -> None:
        """Do everything, one after the other; crashes end a deed and begin another life."""
        for deed in deeds:
            await self._do_or_die(deed)
        self._tell("nothing goes wrong any more")
        for left in range(_ROUNDS, 0, -1):
            self.clock.turn(_ROUND_S)
            await self._work()
            if left == _ROUNDS:
                self._arrive()  # after the questions of one round: "not found" was true, then

    async def close(self) -> None:
        """Let go of the database."""
        await self.ledger.aclose()

    # --- deeds

    async def _do_or_die(self, deed: Deed) -> None:
        if deed.crash:
            await self._open_again(crash_at(deed.crash, passes=deed.passes, kill=False))
        self._accidents = list(deed.accidents)
        answered = set(self.seen.answered)
        try:
            await self._do(deed)
        except BaseException as error:
            if not _is_crash(error):
                raise
            self.seen.answered = answered  # who was told died with it
            self._tell(f"the process dies at {deed.crash}")
        self._accidents.clear()
        if deed.crash:
            await self._open_again(forget)

    async def _do(self, deed: Deed) -> None:
        match deed.kind:
            case "deliver":
                await self._deliver(deed)
            case "work":
                await self._work()
            case "wait":
                self._tell("time passes")
                self.clock.turn(_LONG_S)
            case "arrive":
                self._arrive()
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
        await self.ledger.worker(concurrency=1).run_until_idle(rounds_max=50)

    def _arrive(self) -> None:
        """What was given up arrives after all."""
        late, self._late = self._late, []
        for recipient, call in late:
            self._tell(f"a late request arrives at the {recipient}")
            self._act(recipient, call)

    # --- the recipients

    async def _send(self, recipient: str, call: Call) -> AttemptAnswer:
        accident = self._accidents.pop(0) if self._accidents else ""
        identity = (recipient, _identity(call.body))
        self.seen.keys.setdefault(identity, set()).add(str(call.idempotency_key))
        doing = f"{recipient} is asked for {identity[1]}, attempt {call.attempt_no}"
        if accident:
            doing += f"; {_TOLD[accident]}"
        self._tell(doing)
        match accident:
            case "busy":
                return call.answer("503")
            case "drop":
                raise ConnectionResetError(accident)
            case "late":
                self._late.append((recipient, call))
                raise TimeoutError
            case "slow":
                self.clock.turn(_LONG_S)
                await Reaper(self._desk()).run_once()
            case _:
                pass
        code, result = self._act(recipient, call)
        if accident == "lose":
            raise ConnectionResetError(accident)
        if code == "200":
            self.seen.answered.add(identity)
        return call.answer(code, result=result)

    def _act(self, recipient: str, call: Call) -> tuple[str, bytes]:
        """Act as the recipient's contract says: once a key, and never an older version."""
        has_keys = recipient == "bank"
        key = str(call.idempotency_key)
        if has_keys and key in self._remembered:
            return "200", self._remembered[key]
        what = _identity(call.body)
        version = 0
        if "Landed-Fence" in call.headers:
            fence = parse_fence(call.headers["Landed-Fence"])
            version = fence.version
            if version < self._fences.get(fence.key, 0):
                self._tell(f"  the {recipient} refuses version {version}: it has a newer one")
                return "412", b""
            self._fences[fence.key] = version
        elif call.version is not None:
            version = call.version
        self._tell(f"  the {recipient} acts: {what}")
        self.seen.acted.append(Acted(recipient, what, version, key))
        result = f"{what} done".encode()
        self._remembered[key] = result
        return "200", result

    async def _look(self, recipient: str, ask: Ask) -> LookupAnswer:
        key = str(ask.idempotency_key)
        if any(one.recipient == recipient and one.key == key for one in self.seen.acted):
            return ask.present(self._remembered[key])
        return ask.absent()

    # --- the ledger

    async def _open_again(self, note: Note) -> None:
        await self.ledger.aclose()
        self.ledger = self._open(note)

    def _open(self, note: Note) -> Ledger:
        ledger = Ledger(_LEDGER, self.path, digest_key=_DIGEST_KEY, clock=self.clock, note=note)
        self._producers: dict[str, Producer] = {
            name: ledger.producer(
                name,
                authentication=StandardWebhooks(keys=(SigningKey(id="k", secret=_SECRET),)),
                types={INVOICE: None, TERMS: None},
                owner="the shop",
                identity=IdentityRule.CLOUDEVENTS,
            )
            for name in PRODUCERS
        }
        bank = ledger.recipient("bank", _BANK)
        collect = bank.effect("collect", dict[str, Any])
        latest = Ordering(domain="terms", policy=OrderPolicy.LATEST_WINS)
        agree = bank.effect("terms", dict[str, Any], ordered=latest)
        write = ledger.recipient("post", _POST).effect("letter", dict[str, Any])
        page = ledger.recipient("pager", _PAGER).effect("page", dict[str, Any])
        for effect_type in (collect, agree, write, page):
            recipient = effect_type.recipient
            effect_type.send(functools.partial(self._send, recipient))
            if effect_type.contract.lookup is not None:
                effect_type.lookup(functools.partial(self._look, recipient))
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
            tx.request(agree, f"terms/1/{version}", event.data, order=order)

        for name, producer in self._producers.items():
            ledger.on(producer, INVOICE, name=f"bill {name}")(
                functools.partial(bill, producer=name)
            )
            ledger.on(producer, TERMS, name=f"change {name}")(
                functools.partial(change, producer=name)
            )
        ledger.prepare()
        ledger.chance.seed(0)
        return ledger

    def _desk(self) -> Any:
        from landed.workers.desk import Desk  # noqa: PLC0415

        return Desk(
            engine=self.ledger.engine,
            books=self.ledger.books,
            registry=self.ledger.registry,
            worker="another",
            chance=self.ledger.chance,
        )

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
            "ce-source": "/invoices",
            "ce-type": deed.type,
        }

    def _tell(self, line: str) -> None:
        self.seen.told.append(line)

    def take(self, message: Outgoing) -> Handed:
        """The bus takes a message, or not."""
        accident = self._accidents.pop(0) if self._accidents else ""
        if accident in ("drop", "busy", "late"):
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


_ANSWERS: Final = Answers(success=("200",), is_success_durable=True, not_executed=("503",))
_BANK: Final = Contract(
    source="the bank of this world",
    key=Key(same_key=SameKey.REPLAYS, retention_s=30 * 86_400.0),
    answers=_ANSWERS,
    lookup=Lookup(),
    fence=Fence(is_key_consulted_first=True),
    timeout_s=5.0,
)
"""Knows keys, can be asked, and refuses older versions."""
_POST: Final = Contract(
    source="the post of this world", answers=_ANSWERS, lookup=Lookup(), timeout_s=5.0
)
"""Writes a letter for each request, and can be asked; "not found" is never final."""
_PAGER: Final = Contract(
    source="the pager of this world",
    answers=_ANSWERS,
    ambiguity=Ambiguity.HUMAN,
    ambiguity_reason="nobody but the person paged can tell",
    timeout_s=5.0,
)
"""Pages for each request, and cannot be asked."""

_TOLD: Final = {
    "busy": "it does not act now, and says so",
    "drop": "the request is lost",
    "late": "no answer in time, and the request is still on its way",
    "slow": "it takes so long that the attempt is given up",
    "lose": "the answer is lost",
}


def _identity(body: bytes) -> str:
    document = json.loads(body)
    return f"terms {document['version']}" if "version" in document else f"invoice {document['id']}"


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_crash, error.exceptions))
    return isinstance(error, Crash)


def live(deeds: tuple[Deed, ...]) -> tuple[Seen, list[tuple[str, str]]]:
    """Live one world; what was seen, and what is wrong in the end."""
    folder = Path(tempfile.mkdtemp(prefix="landed-shop-", dir=_memory()))

    async def _whole() -> tuple[Seen, list[tuple[str, str]]]:
        shop = Shop(folder)
        try:
            await shop.live(deeds)
            return shop.seen, wrong(shop.seen, shop.ledger)
        finally:
            await shop.close()

    try:
        return asyncio.run(_whole())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """A folder in memory, where there is one: what is tried here is order, not durability."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
