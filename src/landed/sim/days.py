"""Days of a shop: the handling wing's ledger and workers among crashes and recipients that lose answers.

The other kind of world of ``landed explore``. Here it is the *database* that goes on from life to life,
so the production ledger runs on a real SQLite file and a real event loop, and the seed draws what
happens in a day: deliveries and their repetitions, work, crashes at the product's crash points, lost
requests and answers, late arrivals, rebuilt schedules. In the end what the recipients did is held
against what the ledger believes, and the ledger's own invariants are asked (effects rules I-n).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from landed.sim.ablations.deeds import POINTS, SILENCE_S, Day, draw
from landed.sim.ablations.shop import live
from landed.sim.explore import Report, Violation

_DEEDS: Final = {
    "arrive": "a request arrives after it was given up",
    "rebuild": "the schedule rebuilt from its rows",
    "cancel": "a person cancels what is open",
}
_ACCIDENTS: Final = {
    "lose": "an answer is lost",
    "drop": "a request is lost",
    "late": "a request is late",
    "slow": "an answer comes after the attempt was given up",
    "held": "a worker is paused before it sends, and another takes over",
    "busy": "a recipient does not act now",
}
_ASKED: Final = {
    "lose": "the answer to a question is lost",
    "slow": "the answer to a question takes long",
    "far": "a question takes long",
}
_STEP: Final = "the clock steps"
_SILENCE: Final = "a long silence"
_FORGETS: Final = "time in which the bank forgets its keys"
_AGAIN: Final = "an event delivered again"
_FORGED: Final = "a forged delivery"
MARKS: Final = (
    *_ACCIDENTS.values(),
    *_ASKED.values(),
    *_DEEDS.values(),
    _STEP,
    _SILENCE,
    _FORGETS,
    _AGAIN,
    _FORGED,
    *sorted({f"a crash at {point}" for point in POINTS}),
)
"""Everything that may be drawn for a day."""


def explore_days(seeds: Iterable[int]) -> Iterator[Report]:
    """Live one day a seed, in order, and report on each; ``calls`` counts its deeds."""
    for seed in seeds:
        day = draw(seed)
        _, wrong = live(day)
        violations = tuple(Violation(name, sentence) for name, sentence in wrong)
        yield Report(seed, violations, frozenset(_marks(day)), len(day.deeds), 0.0)


def tell_day(seed: int) -> tuple[list[str], list[Violation]]:
    """Live one day again; its story, a line each, and what was wrong in the end."""
    seen, wrong = live(draw(seed))
    return seen.told, [Violation(name, sentence) for name, sentence in wrong]


def _marks(day: Day) -> Iterator[str]:
    """What was drawn for a day. What befalls a request happens if somebody asks a recipient then."""
    deeds = day.deeds
    delivered = Counter((deed.producer, deed.event) for deed in deeds if deed.kind == "deliver")
    if any(count > 1 for count in delivered.values()):
        yield _AGAIN
    for deed in deeds:
        if deed.is_forged:
            yield _FORGED
        if deed.crash:
            yield f"a crash at {deed.crash}"
        if deed.kind in _DEEDS:
            yield _DEEDS[deed.kind]
        if deed.kind == "step" and deed.seconds:
            yield _STEP
        if deed.kind == "wait" and deed.seconds >= SILENCE_S:
            yield _SILENCE
        yield from (_ACCIDENTS[accident] for accident in deed.accidents if accident)
        yield from (_ASKED[accident] for accident in deed.asked if accident)
    if sum(deed.seconds for deed in deeds if deed.kind == "wait") > day.terms.retention_s:
        yield _FORGETS
