"""Break a rule, live worlds until one of them is wrong, and tell the smallest such world."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from landed.sim.ablations import table
from landed.sim.ablations.breaking import Ablation
from landed.sim.ablations.recorded import SEEDS
from landed.sim.explore import collected_between_worlds
from landed.sim.hire import hired

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
    story: tuple[str, ...] = ()
    """The smallest such world, if somebody asked for it."""


def hunt_all(*, jobs: int, is_told: bool) -> Iterator[Caught]:
    """Break every rule of the table, one after the other, on so many processes.

    ``is_told``: make the world of each small as well, and tell it.
    """
    if jobs == 1:
        for ablation in table.ABLATIONS:
            yield _hunted(ablation, is_told)
        return
    total = len(table.ABLATIONS)
    with hired(jobs) as crew:
        # What breaks a rule is a function that does not travel, so its place in the table does.
        hunted = crew.map(_hunted_there, range(total), [is_told] * total)
        for ablation, rest in zip(table.ABLATIONS, hunted, strict=True):
            yield Caught(ablation, *rest)


def _hunted_there(at: int, is_told: bool) -> tuple[int | None, int, str, float, tuple[str, ...]]:
    caught = _hunted(table.ABLATIONS[at], is_told)
    return caught.seed, caught.worlds, caught.sentence, caught.took_s, caught.story


def _hunted(ablation: Ablation, is_told: bool) -> Caught:
    with collected_between_worlds():
        caught = hunt(ablation)
        if caught.seed is None or not is_told:
            return caught
        return caught._replace(story=tuple(story(caught)))


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
        return ablation.ground.shorten(caught.seed, ablation.caught_by)
