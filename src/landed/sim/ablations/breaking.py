"""What an ablation is: one rule of a mission, the few lines that break it, and who catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from unittest.mock import patch


class Wing(StrEnum):
    """Which question the rule belongs to."""

    LOG = "did it land?"
    HANDLING = "did it happen?"


class Swap:
    """Puts other functions in the place of the product's, until the block is over."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @staticmethod
    def sound(owner: Any, name: str) -> Any:
        """What the product has there."""
        return getattr(owner, name)

    def __call__(self, owner: Any, name: str, new: Any) -> None:
        """Replace an attribute of a module or a class."""
        self._stack.enter_context(patch.object(owner, name, new))

    def entry(self, table: MutableMapping[Any, Any], key: Any, new: Any) -> None:
        """Replace one row of a table."""
        self._stack.enter_context(patch.dict(table, {key: new}))


Break = Callable[[Swap], None]


class Told(NamedTuple):
    """One thing that was wrong in a world."""

    invariant: str
    sentence: str


class Ground(NamedTuple):
    """Where broken rules are hunted: a kind of world that a seed makes."""

    name: str
    look: Callable[[int], tuple[Told, ...]]
    """Live the world of a seed; what was wrong in it."""
    shorten: Callable[[int, str], list[str]]
    """Tell the smallest world in which an invariant is broken, begun from a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """One rule, and how it is broken."""

    name: str
    """A word for it, unique; made of the name of the function that breaks it."""
    wing: Wing
    rule: str
    """The rule that is switched off, as a sentence."""
    source: str
    """Where the rule stands: rule ids, or a heading of the mission."""
    patch: str
    """What the broken code does instead, in one line."""
    caught_by: str
    """The invariant that must be broken by it."""
    ground: Ground
    """The worlds in which it is hunted."""
    breaks: Break

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Within the block the rule does not hold. In one thread of one process only."""
        with ExitStack() as stack:
            self.breaks(Swap(stack))
            yield


def ablation(
    wing: Wing,
    *,
    rule: str,
    source: str,
    patch: str,
    caught_by: str,
    ground: Ground,
) -> Callable[[Break], Ablation]:
    """Make an ablation of the function that breaks the rule."""

    def make(breaks: Break) -> Ablation:
        return Ablation(
            name=breaks.__name__.replace("_", "-"),
            wing=wing,
            rule=rule,
            source=source,
            patch=patch,
            caught_by=caught_by,
            ground=ground,
            breaks=breaks,
        )

    return make
