"""Break a rule, live worlds until one of them is wrong, and tell the smallest such world."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from landed.sim.ablations.breaking import Ablation
from landed.sim.ablations.recorded import SEEDS

SEEDS_MAX: Final = 1_000
"""Worlds in which a broken rule must be noticed."""


class Caught(NamedTuple):
    """What came of one broken rule."""

    ablation: Ablation
    seed: int | None
    """The first seed at which the expected invariant was broken; None: it went uncaught."""
    worlds: int
    """Worlds lived, that one included."""
    sentence: str
    """What the checker said."""
    took_s: float


def hunt(ablation: Ablation, seeds: Iterable[int] = range(SEEDS_MAX)) -> Caught:
    """Live worlds with a rule broken, until its invariant is."""
    began = time.perf_counter()
    worlds = 0
    with ablation.broken():
        for worlds, seed in enumerate(seeds, start=1):
            for told in ablation.ground.look(seed):
                if told.invariant == ablation.caught_by:
                    took_s = time.perf_counter() - began
                    return Caught(ablation, seed, worlds, told.sentence, took_s)
    return Caught(ablation, None, worlds, "", time.perf_counter() - began)


def hunt_again(ablation: Ablation) -> Caught:
    """Try the recorded seed first: a test need not search, unless worlds have changed since."""
    return hunt(ablation, chain([SEEDS[ablation.name]], range(SEEDS_MAX)))


def story(caught: Caught) -> list[str]:
    """The smallest world in which a broken rule shows, in about a dozen lines."""
    assert caught.seed is not None, "what was not caught has no story"
    ablation = caught.ablation
    with ablation.broken():
        lines = ablation.ground.shorten(caught.seed, ablation.caught_by)
    return [
        f"rule: {ablation.rule} ({ablation.source})",
        f"broken: {ablation.patch}",
        *lines,
    ]
