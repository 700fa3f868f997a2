"""Run many worlds, one a seed, and say what went wrong in which."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from landed.ids import AggregateKey
from landed.sim.history import History
from landed.sim.invariants import INVARIANTS, OF_A_SUBJECT
from landed.sim.loop import SimLoop
from landed.sim.marks import marks_of
from landed.sim.plan import EngineName, Plan, draw
from landed.sim.subject import Subject
from landed.sim.world import SERVICE, World

_HORIZON_S = 3600.0
"""A world that lives longer in virtual time has something in it that never ends."""
_COLLECT_EVERY = 5
"""Worlds between two collections of garbage. With a hundred of them a collection finds nothing in the
processor's caches, and costs twice as much a world."""

_LIVED = count(1)
"""Worlds of this process."""


class Violation(NamedTuple):
    """One thing that is wrong."""

    invariant: str
    """Its name, or ``the world ended badly``."""
    sentence: str


@dataclass(slots=True)
class Finding:
    """One world, and what is wrong with it: nothing, one hopes."""

    plan: Plan
    history: History
    violations: list[Violation] = field(default_factory=list)
    virtual_s: float = 0.0

    @property
    def marks(self) -> frozenset[str]:
        """The interesting states it went through."""
        return marks_of(self.history)


class Report(NamedTuple):
    """What is left of a world once it is judged."""

    seed: int
    violations: tuple[Violation, ...]
    marks: frozenset[str]
    calls: int
    virtual_s: float


def run_world(plan: Plan, *, is_told: bool = True) -> Finding:
    """Live one world to its end and check everything that must hold then.

    ``is_told``: note every arrival as well, for somebody who wants to see it.
    """
    collect_if_due()
    history = History(
        service=SERVICE,
        window_s=plan.policy.window_s,
        names=_names((*plan.keys, *plan.beds)),
        subject=plan.subject,
    )
    history.requests = [request for requests in plan.callers for request in requests]
    for request in history.requests:
        request.began_at = 0.0  # a plan can be lived again
    finding = Finding(plan, history)
    loop = SimLoop(plan.seed, dials=plan.dials, note=history.noter("network"), horizon_s=_HORIZON_S)
    loop.network.tells_arrivals = is_told
    begun_at = loop.time()
    try:
        loop.run(_live(plan, history))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
        finding.violations.append(Violation("the world ended badly", _tell(error)))
    else:
        finding.violations += [
            Violation("at_the_moment", _named(told, history)) for told in history.broken
        ]
        for invariant in INVARIANTS if plan.subject is None else OF_A_SUBJECT:
            finding.violations += [
                Violation(invariant.__name__, sentence) for sentence in invariant(history)
            ]
    finally:
        finding.virtual_s = loop.time() - begun_at
        loop.close()
    return finding


def explore(
    seeds: Iterable[int],
    *,
    replicas: int | None = 2,
    engine: EngineName | None = "memory",
    subject: Subject | None = None,
) -> Iterator[Report]:
    """Run one world a seed, in order, and report on each. See ``plan.draw``."""
    with collected_between_worlds():
        for seed in seeds:
            finding = run_world(
                draw(seed, replicas=replicas, engine=engine, subject=subject), is_told=False
            )
            yield Report(
                seed,
                tuple(finding.violations),
                finding.marks,
                len(finding.history.calls),
                finding.virtual_s,
            )
            del finding


@contextmanager
def collected_between_worlds() -> Iterator[None]:
    """Within the block garbage is collected before a world begins, and never within one.

    What is there already is not looked at again and again. Within another such block: nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def collect_if_due() -> None:
    """A world is about to begin: see ``collected_between_worlds``."""
    if not next(_LIVED) % _COLLECT_EVERY and not gc.isenabled():
        gc.collect()
        gc.freeze()  # what was imported meanwhile stays


def count_marks(reports: Iterable[Report]) -> Counter[str]:
    """In how many worlds each mark was reached."""
    return Counter(mark for report in reports for mark in report.marks)


def _names(keys: Iterable[AggregateKey]) -> dict[AggregateKey, str]:
    """A, B, C and so on; A1 behind Z."""
    return {
        key: chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")
        for number, key in enumerate(keys)
    }


def _named(sentence: str, history: History) -> str:
    """By the short names of aggregates."""
    for key, name in history.names.items():
        sentence = sentence.replace(str(key), name)
    return sentence


async def _live(plan: Plan, history: History) -> None:
    await World(plan, history).live()


def _tell(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_tell(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
