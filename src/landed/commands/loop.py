"""The write loop, once, for one aggregate or many. Which move follows what is in moves.py."""

from __future__ import annotations

import random
from typing import Generic, TypeVar

from landed.client.log import Log
from landed.commands.command import Command
from landed.commands.identity import ServiceIdentity
from landed.commands.outcome import Fault, Outcome, Seen, Unavailable
from landed.commands.policy import Policy
from landed.facts import Note, forget
from landed.ids import AggregateKey
from landed.projections.port import Domain, Projection

S = TypeVar("S")
R = TypeVar("R")


class SafeLoop(Generic[S]):
    """Execute commands on a log so that each lands at most once and its retry gets its answer."""

    def __init__(
        self,
        log: Log,
        *,
        identity: ServiceIdentity,
        projection: Projection[S],
        domain: Domain[S],
        policy: Policy | None = None,
        rng: random.Random | None = None,
        note: Note = forget,
    ) -> None:
        self.identity = identity
        self.policy = policy or Policy()

    async def execute(self, command: Command[S, R], /) -> Outcome[R, S]:
        """Carry a command to its end. Safe to call again with the same command."""
        raise NotImplementedError

    async def look(
        self, key: AggregateKey, *, at_least: int | None = None
    ) -> Seen[S] | Unavailable | Fault:
        """Read one aggregate's state.

        Catches up first, unless ``at_least`` is given and the projection is already there.
        """
        raise NotImplementedError
