"""What the agents of effects share: the database, what is declared, and how fast things go."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, select

from landed.effects.contract import Contract
from landed.facts import Note, forget
from landed.records import contracts, settle
from landed.records.effects import EffectView
from landed.records.session import Books, jittered_us
from landed.records.turns import Turns
from landed.registry import EffectType, Registry

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """How fast the agents of effects go. Times in the unit of their name."""

    retry_us: int = 1_000_000
    """Longest delay before the second attempt; the next ones are twice as long each (AT-12)."""
    retry_max_us: int = 600_000_000
    question_us: int = 1_000_000
    """Delay before the first question about a doubt; the next ones are twice as long each."""
    question_max_us: int = 900_000_000
    lease_s: float = 30.0
    """Of a claim, on top of what one attempt may take."""
    breaker_after: int = 5
    """Failures in a row before a recipient is left alone for a while."""
    breaker_s: float = 1.0
    breaker_max_s: float = 30.0
    scrub_every_s: float = 3600.0
    gauge_every_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything that an agent of effects is handed."""

    engine: Engine
    books: Books
    registry: Registry
    worker: str
    """Written to attempts and leases; shown, never compared with anything."""
    note: Note = forget
    chance: random.Random = field(default_factory=random.Random)
    tempo: Tempo = field(default_factory=Tempo)
    turns: Turns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns", Turns(self.engine))

    async def transact(self, work: Callable[[Connection], T], *, is_durable: bool = True) -> T:
        """Run one transaction on a thread, and commit it."""
        return await self.turns.transact(work, is_durable=is_durable)

    def now_us(self, conn: Connection) -> int:
        """The database's time: the only one that due times and deadlines are compared with."""
        return int(conn.execute(select(self.books.at(conn))).scalar_one())

    def crash_point(self, point: str) -> None:
        """Note that a crash point is passed (effects rules, section 8)."""
        self.note("kp", {"point": point})

    def contract(self, conn: Connection, effect: EffectView) -> Contract | None:
        """The contract an effect is bound to; None if a newer version of the program wrote it."""
        known = self.registry.contracts.get(effect.contract_digest)
        if known is None:
            try:
                known = contracts.load(conn, effect.contract_digest)
            except ValueError:
                return None
            if known is not None:
                self.registry.contracts[effect.contract_digest] = known
        return known

    def effect_type(self, effect: EffectView) -> EffectType[Any] | None:
        """What is declared for an effect; None if this program does not know its type."""
        return self.registry.effect_types.get((effect.recipient, effect.effect_type))

    def delays(self, effect: EffectView) -> settle.Delays:
        """When to come again after what happens now; ever later, with jitter, up to a cap."""
        effect_type = self.effect_type(effect)
        tempo = self.tempo
        return settle.Delays(
            retry_us=jittered_us(
                tempo.retry_us, max(0, effect.attempt_no - 1), tempo.retry_max_us, self.chance
            ),
            question_us=self.question_us(effect),
            settled_handlers=()
            if effect_type is None
            else tuple(sorted(effect_type.settled_handlers)),
        )

    def question_us(self, effect: EffectView) -> int:
        """The delay before the next question: at least half of the full step, so that it grows."""
        tempo = self.tempo
        step: int = min(tempo.question_max_us, tempo.question_us << min(effect.questions, 32))
        return step // 2 + self.chance.randint(0, step - step // 2)
