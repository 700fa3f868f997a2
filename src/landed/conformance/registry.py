"""The list of obligations: each is a function, registered with the scenarios it shows."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from landed.conformance.trial import Trial

Check = Callable[["Trial"], Awaitable[None]]

_CHAPTERS: Final = (
    "appending",
    "guarding",
    "sequencing",
    "remembering",
    "joining",
    "reading",
    "filtering",
    "trimming",
    "deleting",
    "failing",
    "feeding",
    "reported",
)


class Lever(Enum):
    """What a harness must be able to do to the engine for an obligation to be shown."""

    HOLD = "hold a flush back"
    FAIL = "make a flush fail"
    RESTART = "close it and open it again"
    RECLAIM = "reclaim dead data on demand"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One sentence an engine must satisfy, and the function that shows it."""

    name: str
    scenarios: tuple[str, ...]
    """Acceptance scenarios, cases or rules, by their ids."""
    levers: frozenset[Lever]
    settings: dict[str, int]
    """Limits it needs set; every obligation gets a log of its own."""
    check: Check
    """Raises AssertionError where the engine fails."""

    @property
    def sentence(self) -> str:
        """The name as a person reads it."""
        return self.name.replace("_", " ")

    @property
    def chapter(self) -> str:
        """The module it stands in."""
        return self.check.__module__.rpartition(".")[2]


_obligations: dict[str, Obligation] = {}


def obligation(
    *scenarios: str, levers: tuple[Lever, ...] = (), **settings: int
) -> Callable[[Check], Check]:
    """Register a function as an obligation."""

    def register(check: Check) -> Check:
        name = check.__name__
        assert name not in _obligations, f"two obligations are called {name}"
        _obligations[name] = Obligation(name, scenarios, frozenset(levers), settings, check)
        return check

    return register


def all_obligations() -> tuple[Obligation, ...]:
    """Every obligation, in the order of the chapters."""
    for chapter in _CHAPTERS:
        importlib.import_module(f"landed.conformance.{chapter}")
    return tuple(_obligations.values())
