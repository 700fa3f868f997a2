"""One replica of the fleet: a pool, a projection and a loop of its own, on a host of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from landed.accounts.decide import AccountAnswer
from landed.accounts.domain import Accounts
from landed.client.log import Log
from landed.client.options import PoolOptions
from landed.client.pool import Pool
from landed.commands import Command, Outcome, SafeLoop, Seen, ServiceIdentity
from landed.ids import AggregateKey
from landed.projections.port import Projection
from landed.sim.behind import Behind
from landed.sim.history import Call, History, Request
from landed.sim.lasting import LastingProjection
from landed.sim.loop import on_host, sim_loop
from landed.sim.plan import Plan
from landed.sim.slow import SlowProjection
from landed.sim.stepped import Stepped
from landed.sim.watched import CALL, WatchedLog


class ReplicaDownError(Exception):
    """The replica is being restarted: the call never began."""


class Replica:
    """A process that serves callers; it can be killed and started again, and then knows nothing."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        history: History,
        address: str,
        *,
        shared: Projection[int] | None = None,
    ) -> None:
        """``shared``: the projection of all replicas, if they have one."""
        self.name = name
        self._shared = shared
        self._plan = plan
        self._history = history
        self._address = address
        self._tasks: dict[asyncio.Task[Outcome[AccountAnswer, int] | None], None] = {}
        self._is_down = False
        self._lives = 0
        self._start()

    def _start(self) -> None:
        self._lives += 1
        plan, note = self._plan, self._history.noter(self.name)
        rng = sim_loop().stream(f"{self.name}/{self._lives}")
        with on_host(self.name):
            options = PoolOptions(
                addresses=(self._address,),
                pipeline_depth=plan.pipeline_depth,
                max_connections=plan.connections_max,
                busy_retries=plan.busy_retries,
            )
            self._pool: Log = Pool(options, jitter=rng, note=note)
        self._behind = Behind(plan, rng)
        self._loop = SafeLoop(
            WatchedLog(self._pool, self._history, self.name, behind=self._behind),
            identity=ServiceIdentity.from_config(self._history.service),
            projection=self._projection(rng),
            domain=Accounts() if plan.subject is None else plan.subject.domain,
            policy=plan.policy,
            rng=rng,
            note=note,
        )

    def _projection(self, rng: Random) -> Projection[int]:
        plan = self._plan
        inner = self._shared or LastingProjection(
            self._history, aggregates_max=plan.aggregates_max, clock=sim_loop().clock(self.name)
        )
        return inner if plan.views == "own" else SlowProjection(inner, rng, way_s=plan.view_way_s)

    async def call(
        self,
        request: Request,
        *,
        is_last: bool = False,
        cancel_at: int = 0,
        is_promised: Callable[[], bool] = lambda: True,
    ) -> Call:
        """Execute a request; the record says what came of it.

        Args:
            request: what to execute.
            is_last: made when nothing goes wrong any more.
            cancel_at: cancel it where it waits for the so many-th time; 0: let it end.
            is_promised: asked when the host takes it up, which may have stood still meanwhile. A
                request that lay until its key was forgotten is another one: it is cut off.

        Raises:
            ReplicaDownError: it is being restarted.
            CancelledError: the caller is gone.
        """
        if self._is_down:
            raise ReplicaDownError
        history = self._history
        call = history.begin(request, self.name, is_last=is_last)
        history.note(
            self.name, "call.began", call=call.number, request=request.number, order=request.order
        )
        with on_host(self.name):
            token = CALL.set(call)
            command = request.command()
            execution = Stepped(self._taken_up(command, is_promised), cancel_at)
            task = asyncio.create_task(execution)
            CALL.reset(token)
        self._tasks[task] = None
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._tasks.pop(task, None)
            call.ended_at = history.now()
            call.outcome = None if task.cancelled() else task.result()
            history.note(self.name, "call.ended", call=call.number, outcome=call.outcome)
        return call

    async def _taken_up(
        self, command: Command[Any, Any], is_promised: Callable[[], bool]
    ) -> Outcome[AccountAnswer, int] | None:
        if not is_promised():
            return None
        call = CALL.get()
        assert call is not None
        call.deadline_at = self._history.now() + self._plan.policy.deadline_s
        return await self._loop.execute(command)

    async def look(self, key: AggregateKey) -> Seen[int] | None:
        """Read one account; None if that failed."""
        if self._is_down:
            return None
        with on_host(self.name):
            seen = await self._loop.look(key)
        return seen if isinstance(seen, Seen) else None

    async def restart(self, down_s: float) -> None:
        """Kill it and start it again: everything under way is cut off, everything known is gone."""
        if self._is_down:
            return
        self._is_down = True
        self._history.note(self.name, "replica.killed")
        await self._stop()
        await asyncio.sleep(down_s)
        self._start()
        self._is_down = False
        self._history.note(self.name, "replica.started")

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._behind.end()
        sim_loop().network.reset_host(self.name)
        await self._pool.close()

    async def settle(self) -> None:
        """Return once everything is delivered that was sent behind its back."""
        await self._behind.settle()

    async def close(self) -> None:
        """End it in good order."""
        await self._pool.close()
