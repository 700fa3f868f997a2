"""What a world is about, if not about the accounts of the demo: a user's own commands.

Everything else of the world stays: the server, the pools, the faults, the callers that retry, and
whatever must hold of any domain. See docs/guides/exploring.md.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from landed.commands import Command
from landed.errors import ConfigurationError
from landed.ids import AggregateKey, EventId
from landed.log import Batch
from landed.projections.port import Domain

ANY_ID: Final = EventId(UUID(int=1))
"""Stands for a caller's key where only the targets of a command are asked for."""


class Wish(NamedTuple):
    """One intent of a caller, before it has its key."""

    label: str
    """What the timeline calls it."""
    command: Callable[[EventId], Command[Any, Any]]
    """The command that carries it out under a key. Called once a try; it must make the same one."""

    @property
    def targets(self) -> tuple[AggregateKey, ...]:
        """The aggregates it changes."""
        return self.command(ANY_ID).targets


@runtime_checkable
class Subject(Protocol):
    """A domain, what callers wish of it, and what must hold of its events in the end."""

    @property
    def domain(self) -> Domain[Any]:
        """What its events mean; shared by every replica, so it keeps nothing itself."""

    def wish(self, rng: Random, /) -> Wish:
        """Draw one intent, on one of a few aggregates: many make less trouble.

        All chance must come from ``rng``, or a seed would not tell the same story twice.
        """

    def check(self, log: Mapping[AggregateKey, tuple[Batch, ...]], /) -> Iterator[str]:
        """Say what is wrong with the log at the end, a sentence each: stock below zero, and such.

        That every request landed at most once, whole, and was answered as it landed is checked
        for every subject.
        """


def load_subject(target: str) -> Subject:
    """Import a subject by its path ``package.module:name``; the current folder is looked into first.

    Raises:
        ConfigurationError: there is none; the message says what was found instead.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise ConfigurationError(f"a subject is named module:name, such as shop:stock: {target!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"cannot import {module_name}: {error}") from error
    found = getattr(module, name, None)
    if isinstance(found, type):
        found = found()
    if not isinstance(found, Subject):
        what = f"{target} is {type(found).__name__}" if found is not None else f"no {name} there"
        raise ConfigurationError(
            f"{what}: a subject has a domain, wish(rng) and check(log); see "
            "docs/guides/exploring.md"
        )
    return found
