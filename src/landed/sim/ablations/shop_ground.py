"""Hunting in the shop: its days by seed, and what is left of one that is made short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from landed.sim.ablations.breaking import Ground, Told
from landed.sim.ablations.deeds import Deed, draw
from landed.sim.ablations.shop import live

_DAYS_MAX: Final = 24
"""Days spent on making one shorter."""
_LINES_MAX: Final = 20


def _look(seed: int) -> tuple[Told, ...]:
    """Live the day of a seed; what was wrong at its end."""
    _, wrong = live(draw(seed))
    return tuple(Told(*one) for one in wrong)


def _shorten(seed: int, invariant: str) -> list[str]:
    """Take deeds away as long as the check stays broken, and tell what is left."""
    day = draw(seed)
    left = _DAYS_MAX
    is_shorter = True
    while is_shorter and left > 0:
        is_shorter = False
        for fewer in _fewer(day.deeds):
            left -= 1
            shorter = day._replace(deeds=fewer)
            if any(name == invariant for name, _ in live(shorter)[1]):
                day, is_shorter = shorter, True
                break
            if left <= 0:
                break
    seen, wrong = live(day)
    lines = seen.told
    if len(lines) > _LINES_MAX:
        half = _LINES_MAX // 2
        lines = [*lines[:half], "…", *lines[-half:]]
    sentence = next((told for name, told in wrong if name == invariant), "")
    return [*lines, f"wrong: {invariant.replace('_', ' ')}", f"  {sentence}"]


def _fewer(deeds: tuple[Deed, ...]) -> Iterator[tuple[Deed, ...]]:
    """Days with one deed, one crash or one accident less, the larger ones first."""
    half = len(deeds) // 2
    if half > 1:
        yield deeds[:half]
        yield deeds[half:]
    for at in reversed(range(len(deeds))):
        if len(deeds) > 1:
            yield deeds[:at] + deeds[at + 1 :]
    for at, deed in enumerate(deeds):
        if deed.crash:
            yield (*deeds[:at], deed._replace(crash="", passes=0), *deeds[at + 1 :])
        for place, accident in enumerate(deed.accidents):
            if accident:
                calmer = (*deed.accidents[:place], "", *deed.accidents[place + 1 :])
                yield (*deeds[:at], deed._replace(accidents=calmer), *deeds[at + 1 :])


SHOP: Final = Ground("shop", _look, _shorten)
