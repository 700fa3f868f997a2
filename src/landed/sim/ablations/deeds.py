"""A day of the shop before it begins, and what is to be seen of it afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from sqlalchemy import Column, Integer, MetaData, Table, Text

from landed.effects.state import Finality

INVOICE: Final = "invoice.finalized"
TERMS: Final = "terms.changed"
STRANGE: Final = "invoice.teleported"
PRODUCERS: Final = ("shop", "branch")

own: Final = MetaData()
bills: Final = Table(
    "bills",
    own,
    Column("id", Integer, primary_key=True),
    Column("producer", Text),
    Column("event", Text),
)


class Terms(NamedTuple):
    """What the recipients of a world promise, and how far its clock may be out. Times are seconds."""

    retention_s: float = 7_200.0
    """For how long the bank remembers a key, from its first sight of it; then it forgets it."""
    is_bank_asked: bool = True
    """Whether the bank answers look-ups."""
    lag_s: float = 0.0
    """How far the look-ups of bank and post are behind what was done there."""
    absence: Finality = Finality.NONE
    """What makes the post's "not found" final."""
    bound_s: float = 40.0
    """For QUIESCENCE: how long after the last possible send nothing arrives at the post any more."""
    late_s: float = 100.0
    """How late a late request is, where nothing bounds it."""
    error_s: float = 0.0
    """How far the ledger's clock may be out at any moment, either way."""
    focus: str = ""
    """The one recipient whose requests something befalls; empty: all of them."""


class Deed(NamedTuple):
    """One thing that somebody does, and what befalls it."""

    kind: str
    """``deliver``, ``work``, ``wait``, ``arrive``, ``rebuild``, ``step`` or ``cancel``."""
    producer: str = PRODUCERS[0]
    event: str = ""
    type: str = INVOICE
    body: str = ""
    is_forged: bool = False
    accidents: tuple[str, ...] = ()
    """What befalls the requests to recipients made meanwhile, in their order."""
    asked: tuple[str, ...] = ()
    """What befalls the questions to recipients asked meanwhile, in their order."""
    seconds: float = 60.0
    """How long one waits, or how far the clock is out from now on."""
    crash: str = ""
    """The crash point at which the process dies."""
    passes: int = 0
    """How often it passes there unharmed."""


class Day(NamedTuple):
    """What is agreed, and what happens then."""

    terms: Terms
    deeds: tuple[Deed, ...]


class Acted(NamedTuple):
    """One effect that a recipient had."""

    recipient: str
    what: str
    """The business identity, from the body."""
    version: int
    key: str
    """Under which idempotency key."""
    attempt_no: int
    """Which attempt's request it was."""
    at_s: float
    """When, seconds since the world began."""


@dataclass(slots=True)
class Seen:
    """What happened in a day of the shop: the only thing that checks look at, besides the ledger."""

    told: list[str] = field(default_factory=list)
    """The story, a line each."""
    sent: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=dict)
    """Types and bodies acknowledged, by producer and event."""
    strange: set[tuple[str, str]] = field(default_factory=set)
    """Events of a type that nobody knows, acknowledged."""
    held: set[tuple[str, str]] = field(default_factory=set)
    """Events acknowledged."""
    forged_kept: int = 0
    """Deliveries with a wrong signature that were acknowledged."""
    acted: list[Acted] = field(default_factory=list)
    answered: set[tuple[str, str]] = field(default_factory=set)
    """Effects whose sender was told of their success, and lived to say so."""
    keys: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Idempotency keys seen, by recipient and business identity."""
    arrived: set[str] = field(default_factory=set)
    """Publications that the bus took, by their data."""
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """What was found wrong while the day went on: the check's name, and a sentence."""


def draw(seed: int) -> Day:
    """Draw what is agreed in a world, and what happens in its day.

    Some days are wide: many events, and something may befall every request. The others are deep: one
    recipient has all the bad luck, with few events, so that what needs several accidents in a row at
    the right moments comes about.
    """
    rng = Random(f"{seed}/shop")  # noqa: S311  # repeatable on purpose
    terms = _drawn_terms(rng)
    return Day(terms, tuple(_deep_day(rng, terms) if terms.focus else _wide_day(rng, terms)))


def _wide_day(rng: Random, terms: Terms) -> list[Deed]:
    deeds: list[Deed] = []
    known: list[Deed] = []
    for number in range(rng.randint(4, 9)):
        deed = _drawn_deed(rng, terms, known, number)
        deeds.append(deed)
        if rng.random() < 0.7:
            deeds.append(_drawn_work(rng, _ACCIDENTS, 5))
            if rng.random() < 0.6:
                deeds.append(_drawn_wait(rng, terms))
    return deeds


def _deep_day(rng: Random, terms: Terms) -> list[Deed]:
    deeds: list[Deed] = []
    is_ordered = terms.focus == "office" or (terms.focus == "bank" and rng.random() < 0.3)
    for number in range(rng.randint(3, 6)):
        if number == 0 or (is_ordered and rng.random() < 0.6):
            deeds.append(_drawn_terms_event(rng) if is_ordered else _drawn_invoice(rng, "e0"))
        elif rng.random() < 0.1:
            deeds.append(Deed("step", seconds=terms.error_s * rng.choice((-1, 1))))
        luck = _LATE if terms.focus == "post" and number == 0 else _BAD_LUCK
        deeds.append(_drawn_work(rng, luck, 2))
        deeds.append(_drawn_wait(rng, terms))
    return deeds


_ACCIDENTS: Final = ("", "", "lose", "lose", "drop", "late", "slow", "held", "busy")
"""Befalling one request: nothing; its answer is lost; it is; it arrives after it was given up; it
takes so long that it is given up, and is answered all the same; its sender is paused before it leaves,
while another worker takes over; the recipient does not act now."""
_BAD_LUCK: Final = ("lose", "lose", "lose", "drop", "late", "late", "held", "slow", "busy", "")
"""The same on a deep day."""
_LATE: Final = ("late", "late", "late", "drop")
"""The same of a first request that no look-up finds at once."""
_ASKED: Final = ("", "", "lose", "slow", "slow", "far")
"""Befalling one question: nothing; its answer is lost; the answer takes long; the question does."""
POINTS: Final = (
    *("KP-7", "KP-8", "KP-10", "KP-13", "KP-14", "KP-15", "KP-16", "KP-18", "KP-18"),
    *("KP-19", "KP-20", "KP-23", "KP-24", "KP-25"),
)
"""Where a worker may die; the boundary's crashes are shown with real processes elsewhere."""
SILENCE_S: Final = 8 * 3_600.0
"""A silence in which everything settled is old enough to be scrubbed."""


def _drawn_terms(rng: Random) -> Terms:
    return Terms(
        retention_s=rng.choice((2_400.0, 7_200.0)),
        is_bank_asked=rng.random() < 0.4,
        lag_s=rng.choice((0.0, 20.0)),
        absence=rng.choice(
            (Finality.NONE, *(Finality.QUIESCENCE,) * 3, Finality.EXPIRY, Finality.EXPIRY)
        ),
        bound_s=rng.choice((10.0, 40.0)),
        late_s=rng.choice((2.0, 40.0, 1_000.0, 5_000.0)),
        error_s=rng.choice((0.0, 0.0, 15.0)),
        focus=rng.choice(("", "", "", "", "bank", "bank", "post", "post", "post", "office")),
    )


def _drawn_deed(rng: Random, terms: Terms, known: list[Deed], number: int) -> Deed:
    kind = rng.random()
    if kind < 0.5 or not known:
        deed = _drawn_delivery(rng, number)
        known.append(deed)
        return deed
    if kind < 0.7:
        deed = rng.choice(known)
        if rng.random() < 0.4 and deed.type == INVOICE:
            return deed._replace(body=_invoice(rng))
        if rng.random() < 0.3:
            return deed._replace(producer=rng.choice(PRODUCERS))
        return deed
    if kind < 0.78:
        return Deed("rebuild")
    if kind < 0.84:
        return Deed("cancel", accidents=rng.choice(((), ("lose",))))
    if kind < 0.9:
        return Deed("step", seconds=terms.error_s * rng.choice((-1, 1)))
    return Deed("arrive")


def _drawn_work(rng: Random, accidents: tuple[str, ...], befallen: int) -> Deed:
    work = Deed(
        "work",
        accidents=tuple(rng.choice(accidents) for _ in range(befallen)),
        asked=tuple(rng.choice(_ASKED) for _ in range(4)),
    )
    if rng.random() < 0.7:
        return work
    return work._replace(crash=rng.choice(POINTS), passes=rng.randint(0, 1))


def _drawn_wait(rng: Random, terms: Terms) -> Deed:
    part = 0.6 * terms.retention_s
    waits = {
        "bank": (15.0, 60.0, part, part, part),
        "post": (5.0, 10.0, 15.0, 20.0, 30.0, 45.0),
        "office": (5.0, 60.0),
    }.get(terms.focus, (5.0, 15.0, 30.0, 60.0, 60.0, part, SILENCE_S))
    return Deed("wait", seconds=rng.choice(waits))


def _drawn_delivery(rng: Random, number: int) -> Deed:
    producer, event = rng.choice(PRODUCERS), f"e{number % 3}"
    kind = rng.random()
    if kind < 0.35:
        return _drawn_terms_event(rng)._replace(producer=producer)
    type = STRANGE if kind < 0.45 else INVOICE
    return Deed("deliver", producer, event, type, _invoice(rng), is_forged=rng.random() < 0.1)


def _drawn_terms_event(rng: Random) -> Deed:
    version = rng.randint(1, 3)
    body = json.dumps({"id": "1", "version": version})
    return Deed("deliver", event=f"t{version}", type=TERMS, body=body)


def _drawn_invoice(rng: Random, event: str) -> Deed:
    return Deed("deliver", event=event, type=INVOICE, body=_invoice(rng))


def _invoice(rng: Random) -> str:
    return json.dumps({"id": str(rng.randint(1, 2)), "cents": rng.choice((100, 100, 250))})
