"""Go through every state that a small world can be in, and judge each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from landed.sim.small.moving import Move, Moves
from landed.sim.small.promises import PROMISES
from landed.sim.small.state import Size, World


@dataclass(slots=True)
class Searched:
    """What a search came to."""

    size: Size
    states: int = 0
    """Different ones."""
    steps: int = 0
    """Ways from one to another."""
    ends: int = 0
    """States in which nothing can happen any more."""
    broken: str | None = None
    """The first promise that was found broken; the search stops there."""
    sentence: str = ""
    way: list[str] = field(default_factory=list)
    """What happened on the way to it, as few steps as it takes."""


def search(size: Size, *, states_max: int | None = None) -> Searched:
    """Look at every state once, nearest to the beginning first, until a promise is broken.

    ``states_max`` is for worlds that have no end because a rule in them is broken.
    """
    searched = Searched(size)
    for searched in searching(size, every=1_000):
        if states_max is not None and searched.states >= states_max:
            break
    return searched


def searching(size: Size, *, every: int = 10_000) -> Iterator[Searched]:
    """The same, showing how far it is after every so many states, and at the end."""
    searched = Searched(size)
    moves = Moves(size)
    first = moves.beginning()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    layer = [first]
    while layer:
        following = []
        for world in layer:
            searched.states += 1
            if searched.states % every == 0:
                yield searched
            is_end = True
            for move in moves.of(world):
                searched.steps += 1
                is_end = False
                if _is_broken(move, searched):
                    searched.way = [*_way(came_from, world), move.told]
                    yield searched
                    return
                if move.world not in came_from:
                    came_from[move.world] = (world, move.told)
                    following.append(move.world)
            searched.ends += is_end
        layer = following
    yield searched


def _is_broken(move: Move, searched: Searched) -> bool:
    for promise in PROMISES:
        for sentence in promise(move):
            searched.broken, searched.sentence = promise.__name__, sentence
            return True
    return False


def _way(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    way: list[str] = []
    step = came_from[world]
    while step is not None:
        before, told = step
        way.append(told)
        step = came_from[before]
    return way[::-1]
