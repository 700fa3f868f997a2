"""A worker: all lanes of a ledger together, until the stop.

Workers need no leader and no session: any number of them may do any lanes (rule CL-7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from landed.errors import ConfigurationError
from landed.facts import Note
from landed.records.bell import Bell
from landed.registry.horizons import check_retention
from landed.relay import relays
from landed.workers.agent import GRACE_S, Agent, Life, run
from landed.workers.desk import Desk
from landed.workers.executor import Executor
from landed.workers.flow import Flow
from landed.workers.handling import Handling
from landed.workers.keeper import Keeper
from landed.workers.reaper import Reaper
from landed.workers.reconciler import Reconciler

LANES = ("handle", "relay", "alert", "effect", "reconcile", "reaper", "keeper")
"""What ``lanes`` may name; ``effect:NAME`` and ``reconcile:NAME`` are one recipient's."""


def agents_of(
    desk: Desk, *, lanes: Iterable[str] | None = None, slots: int | None = None
) -> list[Agent]:
    """The agents of a ledger's lanes.

    Args:
        desk: the ledger's.
        lanes: which ones; None: all. A name takes every lane that begins with it.
        slots: how many pieces of one recipient's lane at once, at most; None: as its contract says.

    Raises:
        ConfigurationError: a lane that does not exist, or limits that forget too early (RT-5).
    """
    check_retention(desk.registry)
    agents: list[Agent] = [
        Handling(
            desk.engine,
            desk.books,
            desk.registry,
            owner=desk.worker,
            note=desk.note,
            chance=desk.chance,
            turns=desk.turns,
        ),
        *relays(
            desk.engine,
            desk.books,
            desk.registry,
            owner=desk.worker,
            chance=desk.chance,
            note=desk.note,
            turns=desk.turns,
        ),
    ]
    flows: list[Flow] = []
    for recipient in sorted(desk.registry.recipients):
        flow = Flow(
            recipient,
            desk.registry.recipients[recipient].contract,
            clock=desk.books.clock,
            chance=desk.chance,
            tempo=desk.tempo,
            note=desk.note,
        )
        flows.append(flow)
        agents.append(Executor(desk, recipient, flow, slots=slots))
        agents.append(Reconciler(desk, recipient, flow, slots=slots))
    agents += [Reaper(desk), Keeper(desk, flows)]
    return agents if lanes is None else chosen(agents, tuple(lanes))


def chosen(agents: Sequence[Agent], lanes: Sequence[str]) -> list[Agent]:
    """The agents whose lane was named.

    Raises:
        ConfigurationError: a lane that does not exist.
    """
    for lane in lanes:
        if not any(_is_of(agent, lane) for agent in agents):
            there_are = ", ".join(sorted(lane_of(agent) for agent in agents))
            raise ConfigurationError(f"there is no lane {lane!r}; there are: {there_are}")
    return [agent for agent in agents if any(_is_of(agent, lane) for lane in lanes)]


def lane_of(agent: Agent) -> str:
    """The lane of an agent, as users name it."""
    return "handle" if agent.name == "handling" else agent.name


def _is_of(agent: Agent, lane: str) -> bool:
    name = lane_of(agent)
    return name == lane or name.partition(":")[0] == lane


class Worker:
    """Runs agents together; one that fails comes again, and none stops the others."""

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        note: Note,
        grace_s: float = GRACE_S,
        bell: Bell | None = None,
    ) -> None:
        self.agents = list(agents)
        self._bell = Bell() if bell is None else bell
        self._note = note
        self._life = Life(grace_s=grace_s)

    def wake(self) -> None:
        """There may be work: look at once."""
        self._life.wake()

    def stop(self) -> None:
        """Claim nothing more; ``run`` returns when what is open has finished, or its grace is over."""
        self._note("worker.stopping", {"grace_s": self._life.grace_s})
        self._life.stop()

    async def run(self) -> None:
        """Work until ``stop``."""
        self._note("worker.started", {"lanes": [lane_of(agent) for agent in self.agents]})
        try:
            with self._bell.heard(self._life.hurry):
                await self._run_all()
        finally:
            await self._close()
        self._note("worker.stopped", {})

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for agent in self.agents:
                group.create_task(
                    run(agent, self._life, note=self._note), name=f"agent {agent.name}"
                )

    async def _close(self) -> None:
        """Let go of what agents hold open, such as a sink's connections."""
        for agent in self.agents:
            close = getattr(agent, "close", None)
            if close is not None:
                await close()

    async def run_until_idle(self, *, rounds_max: int = 1000) -> int:
        """Give every agent its rounds until none finds anything due; returns how much was done.

        For ``--once`` and for tests. Work that is due only later is left.
        """
        total = 0
        for _ in range(rounds_max):
            done = 0
            for agent in self.agents:
                done += await agent.run_once()
            total += done
            if done == 0 or self._life.is_stopping:
                break
        return total

    def health(self) -> dict[str, object]:
        """What an operator's probe needs to know."""
        keeper = next((agent for agent in self.agents if isinstance(agent, Keeper)), None)
        return {
            "is_stopping": self._life.is_stopping,
            "lanes": [lane_of(agent) for agent in self.agents],
            "is_healthy": keeper is None or keeper.is_healthy,
            "alert_age_s": None if keeper is None else keeper.alert_age_s,
        }
