"""A day of the shop before it begins, and what is to be seen of it afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from sqlalchemy import Column, Integer, MetaData, Table, Text

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


class Deed(NamedTuple):
    """One thing that somebody does, and what befalls it."""

    kind: str
    """``deliver``, ``work``, ``wait``, ``arrive`` or ``rebuild``."""
    producer: str = PRODUCERS[0]
    event: str = ""
    type: str = INVOICE
    body: str = ""
    is_forged: bool = False
    accidents: tuple[str, ...] = ()
    """What befalls the requests to recipients made meanwhile, in their order."""
    crash: str = ""
    """The crash point at which the process dies."""
    passes: int = 0
    """How often it passes there unharmed."""


class Acted(NamedTuple):
    """One effect that a recipient had."""

    recipient: str
    what: str
    """The business identity, from the body."""
    version: int
    key: str
    """Under which idempotency key."""


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


def draw(seed: int) -> tuple[Deed, ...]:
    """Draw what happens in a day."""
    rng = Random(f"{seed}/shop")  # noqa: S311  # repeatable on purpose
    deeds: list[Deed] = []
    known: list[Deed] = []
    for number in range(rng.randint(4, 9)):
        kind = rng.random()
        if kind < 0.5 or not known:
            deed = _drawn_delivery(rng, number)
            known.append(deed)
        elif kind < 0.7:
            deed = rng.choice(known)
            if rng.random() < 0.4 and deed.type == INVOICE:
                deed = deed._replace(body=_invoice(rng))
            elif rng.random() < 0.3:
                deed = deed._replace(producer=rng.choice(PRODUCERS))
        elif kind < 0.8:
            deed = Deed("rebuild")
        else:
            deed = Deed("arrive")
        deeds.append(deed)
        if rng.random() < 0.7:
            accidents = tuple(rng.choice(_ACCIDENTS) for _ in range(4))
            work = Deed("work", accidents=accidents)
            deeds.append(_with_crash(rng, work))
            if rng.random() < 0.5:
                deeds.append(Deed("wait"))
    return tuple(deeds)


_ACCIDENTS: Final = ("", "", "lose", "drop", "late", "slow", "busy")
"""Befalling one request: nothing; its answer is lost; it is; it arrives after it was given up; it
takes so long that it is given up, and is answered all the same; the recipient does not act now."""
POINTS: Final = ("KP-7", "KP-8", "KP-10", "KP-13", "KP-14", "KP-15", "KP-16", "KP-18", "KP-18")
"""Where a worker may die; the boundary's crashes are shown with real processes elsewhere."""


def _drawn_delivery(rng: Random, number: int) -> Deed:
    producer, event = rng.choice(PRODUCERS), f"e{number % 3}"
    kind = rng.random()
    if kind < 0.35:
        version = rng.randint(1, 3)
        body = json.dumps({"id": "1", "version": version})
        return Deed("deliver", producer, f"t{version}", TERMS, body)
    type = STRANGE if kind < 0.45 else INVOICE
    return Deed("deliver", producer, event, type, _invoice(rng), is_forged=rng.random() < 0.1)


def _invoice(rng: Random) -> str:
    return json.dumps({"id": str(rng.randint(1, 2)), "cents": rng.choice((100, 100, 250))})


def _with_crash(rng: Random, deed: Deed) -> Deed:
    if rng.random() < 0.7:
        return deed
    return deed._replace(crash=rng.choice(POINTS), passes=rng.randint(0, 1))
