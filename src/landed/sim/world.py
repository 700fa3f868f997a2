"""A world: the real server, pools, loops and projections, callers that retry, and a seed.

It lives through three ages. First callers call and things go wrong. Then the faults end, and what
is still under way somewhere arrives. Last, every request is asked for once more on a calm network,
because that is the promise: the same key gets the original answer, wherever it is asked.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final
from uuid import UUID

from landed.accounts.domain import Deposit
from landed.client.embedded import EmbeddedLog
from landed.engines.sqlite.check import verify
from landed.errors import AggregateMissingError, StorageError
from landed.facts import forget
from landed.ids import AggregateKey, EventId
from landed.log import Batch, FeedRead, Read
from landed.projections import MemoryProjection
from landed.sim.disk import Disk
from landed.sim.filed import File, filed
from landed.sim.gardener import HOST as GARDENER
from landed.sim.gardener import be_gardeners
from landed.sim.history import Call, History, Look, Request, Truth
from landed.sim.lasting import LastingProjection
from landed.sim.lives import ADDRESS, HOST, ServerLives
from landed.sim.loop import on_host, sim_loop
from landed.sim.plan import Plan
from landed.sim.replica import Replica, ReplicaDownError
from landed.sim.spindle import Flaw
from landed.sim.stranger import HOST as STRANGER
from landed.sim.stranger import be_a_stranger

SERVICE: Final = UUID("5e771ce0-0000-4000-8000-000000000001")
_TOLD_LATER: Final = {"crash_server", "fail_flush", *Flaw}
"""Disturbances that are noted when they happen: at the next flush, if there is one."""
_SOON_S: Final = 1.0
"""Where dead batches are looked for so often, none is left after the aftermath."""
_AFTERMATH_S: Final = 60.0
"""Long enough for the last stalled segment to arrive and the last idle connection to be dropped."""


class World:
    """One run of one plan. ``live`` returns when it is over; the history says what happened."""

    def __init__(self, plan: Plan, history: History) -> None:
        self._plan = plan
        self._history = history
        self._keys = list(plan.keys)
        self._rng = sim_loop().stream("world")
        self._replicas: list[Replica] = []
        self._over: asyncio.Future[bool] = sim_loop().create_future()
        """The first age is over."""
        self._disk = Disk(plan.engine, plan.limits, rng=sim_loop().stream("disk"))
        self._server = ServerLives(
            self._disk, history, sim_loop().stream("server"), down_s=plan.down_s
        )

    async def live(self) -> None:
        """Live through the three ages, then read the log."""
        history, plan = self._history, self._plan
        history.now = sim_loop().time
        try:
            await self._server.start()
            shared = self._shared_views()
            self._replicas = [
                Replica(f"replica-{n + 1}", plan, history, ADDRESS, shared=shared)
                for n in range(plan.replicas)
            ]
            await self._be_rough()
            await self._be_calm()
            for replica in self._replicas:
                await replica.close()
            await self._server.close()
            history.broken += self._disk.durable.broken
            path = self._disk.path
            file = None if path is None else filed(path)
            if path is not None:
                history.broken += verify(path).findings
            history.truth = await self._read_log()
            self._compare(file)
        finally:
            self._disk.erase()

    def _shared_views(self) -> MemoryProjection[int] | None:
        if self._plan.views != "shared":
            return None
        return LastingProjection(
            self._history,
            aggregates_max=self._plan.aggregates_max,
            clock=sim_loop().clock("projection"),
        )

    def _compare(self, file: File | None) -> None:
        """Take what was committed as the truth of beds: from the file if there is one."""
        truth, durable, beds = self._history.truth, self._disk.durable, set(self._plan.beds)
        acts = durable.acts
        if file is not None:
            truth.filed = file.by_key()
            self._history.broken += durable.misses(file.acts)
            if self._plan.limits.reclaim_after_s <= _SOON_S:
                self._history.broken += [
                    f"version {act.version} of {act.key} is dead, and in the file after all that time"
                    for act in file.acts
                    if act.batch is not None and durable.is_dead(act)
                ]
            acts = [*file.acts, *(act for act in acts if durable.is_dead(act))]
        position = {act.position: act for act in acts if act.key in beds}
        truth.acts = [position[at] for at in sorted(position)]

    # --- the first age ------------------------------------------------------------------------

    async def _be_rough(self) -> None:
        async with asyncio.TaskGroup() as others:
            others.create_task(self._disturb())
            if self._plan.stranger:
                with on_host(STRANGER):
                    others.create_task(be_a_stranger(self._plan, self._history, ADDRESS))
            if self._plan.beds:
                with on_host(GARDENER):
                    others.create_task(be_gardeners(self._plan, self._history, ADDRESS))
            async with asyncio.TaskGroup() as callers:
                for number, requests in enumerate(self._plan.callers):
                    rng = sim_loop().stream(f"caller/{number}")
                    callers.create_task(self._be_a_caller(requests, rng))
            self._over.set_result(True)

    async def _be_a_caller(self, requests: tuple[Request, ...], rng: Random) -> None:
        for request in requests:
            await asyncio.sleep(self._plan.pause_s * rng.random())
            await self._pursue(request, rng)
            if rng.random() < 0.2:
                await self._look(rng)

    async def _pursue(self, request: Request, rng: Random) -> None:
        """Try one request until it is answered for good, or patience or the window ends."""
        plan = self._plan
        for _ in range(plan.tries_max):
            if not self._is_promised(request):
                return
            if rng.random() < plan.twice:
                async with asyncio.TaskGroup() as together:
                    for _ in range(plan.copies):
                        together.create_task(self._try(request, rng))
                call = None
            else:
                call = await self._try(request, rng)
            is_final = call is not None and call.outcome is not None
            if is_final and not call.outcome.is_retryable and rng.random() >= plan.replay:  # type: ignore[union-attr]
                return
            await asyncio.sleep(plan.pause_s * rng.random())

    async def _try(self, request: Request, rng: Random) -> Call | None:
        """One call; None if the caller did not hear the answer."""
        plan = self._plan
        replica = rng.choice(self._replicas)
        cancel_at = rng.randint(1, plan.cancel_at_max) if plan.cancel_at_max else 0
        patience_s = plan.patience_s * rng.random() if rng.random() < plan.cancel else None
        try:
            async with asyncio.timeout(patience_s):
                call = await replica.call(
                    request, cancel_at=cancel_at, is_promised=lambda: self._is_promised(request)
                )
        except (TimeoutError, ReplicaDownError):
            return None
        if rng.random() < plan.unheard:
            self._history.note(replica.name, "caller.unheard", call=call.number)
            return None
        return call

    def _is_promised(self, request: Request) -> bool:
        """A call begun now ends within the time that the request's key was promised.

        A key used for another request too is remembered from its first use on, and no longer.
        """
        requests = [one for requests in self._plan.callers for one in requests]
        uses = [one.began_at for one in requests if one.event_id == request.event_id]
        if not any(uses):
            return True
        policy = self._plan.policy
        promised_s = max(policy.window_s, policy.scan_horizon_s or 0.0)
        return sim_loop().time() + policy.deadline_s < min(filter(None, uses)) + promised_s

    async def _look(self, rng: Random) -> None:
        replica, key = rng.choice(self._replicas), rng.choice(self._keys)
        began_at = sim_loop().time()
        seen = await replica.look(key)
        if seen is not None:
            self._history.looks.append(
                Look(key, replica.name, began_at, sim_loop().time(), seen.state, seen.version)
            )

    async def _disturb(self) -> None:
        plan, rng = self._plan, self._rng
        if not plan.disturb_every_s:
            return
        async with asyncio.TaskGroup() as restarts:
            while not await self._is_over_within(rng.expovariate(1 / plan.disturb_every_s)):
                kind = rng.choice(plan.disturbances)
                if kind == "restart_replica":
                    restarts.create_task(rng.choice(self._replicas).restart(plan.pause_s))
                else:
                    self._disturb_once(kind, rng)

    async def _is_over_within(self, seconds: float) -> bool:
        await asyncio.wait((self._over,), timeout=seconds)
        return self._over.done()

    def _disturb_once(self, kind: str, rng: Random) -> None:
        hosts = [HOST, *(replica.name for replica in self._replicas)]
        host = rng.choice(hosts)
        if kind not in _TOLD_LATER:
            self._history.note(HOST if kind == "slow_flush" else host, f"disturb.{kind}")
        match kind:
            case "wall_step":
                step_ms = rng.choice((1_000, 60_000, 86_400_000)) * rng.choice((-1, 1))
                if host == HOST and self._plan.is_mortal:
                    # The stated limit of the window: it is counted in server time, so a server that
                    # starts again with its clock put forward makes every key look older by that.
                    step_ms = -abs(step_ms)
                sim_loop().clock(host).step_wall(step_ms)
            case "reset_host":
                sim_loop().network.reset_host(host)
            case "fail_flush":
                self._spoil_gate(StorageError("the seed says so"))
            case "slow_flush":
                self._slow_gate(rng.choice((0.0, self._plan.policy.attempt_timeout_s)))
            case "crash_server":
                self._server.crash()
            case "pause_host":
                span_s = self._plan.pauses_s * rng.random()
                sim_loop().pause(host)
                sim_loop().call_later(span_s, self._resume, host)
            case _:
                self._server.spoil(Flaw(kind))

    def _resume(self, host: str) -> None:
        sim_loop().resume(host)
        self._history.note(host, "host.resumed")

    def _spoil_gate(self, error: StorageError) -> None:
        if self._server.gate is not None:
            self._server.gate.fails_next = error

    def _slow_gate(self, span_s: float) -> None:
        if self._server.gate is not None:
            self._server.gate.slow_s = span_s

    # --- the second and the third -------------------------------------------------------------

    async def _be_calm(self) -> None:
        sim_loop().calm()
        self._server.spare()
        await self._server.be_up()
        self._history.note("world", "world.calm")
        for replica in self._replicas:
            await replica.settle()
        await self._ask_once_more()
        await asyncio.sleep(_AFTERMATH_S)
        if self._plan.policy.scan_horizon_s is not None:
            # Most windows are over now; the log still knows.
            await self._ask_once_more(is_last=True)
        await self._rng.choice(self._replicas).call(self._newest_request(), is_last=True)
        for replica in self._replicas:
            for key in self._keys:
                began_at = sim_loop().time()
                seen = await replica.look(key)
                assert seen is not None, "a look failed on a calm network"
                self._history.looks.append(
                    Look(key, replica.name, began_at, sim_loop().time(), seen.state, seen.version)
                )

    def _newest_request(self) -> Request:
        """One that nobody has made yet: whatever happened, the log goes on."""
        number = len(self._history.requests) + 1
        order: Any = Deposit(self._rng.choice(self._plan.accounts), 1)
        if self._plan.subject is not None:
            # One that was wished before: a new one might speak of an aggregate nobody knows here.
            order = self._rng.choice(self._history.requests).order
        request = Request(number, EventId(UUID(int=self._rng.getrandbits(127) | 1)), order)
        self._history.requests.append(request)
        return request

    async def _ask_once_more(self, *, is_last: bool = False) -> None:
        """Ask for every request that is still promised its answer, on any replica."""
        for requests in self._plan.callers:
            for request in requests:
                if request.began_at and self._is_promised(request):
                    await self._rng.choice(self._replicas).call(request, is_last=is_last)

    async def _read_log(self) -> Truth:
        """What is on the disk, read by somebody who knows nothing else."""
        engine = await self._disk.open(clock=sim_loop().clock("auditor"), note=forget)
        try:
            return await self._read(EmbeddedLog(engine))
        finally:
            await engine.close()

    async def _read(self, log: EmbeddedLog) -> Truth:
        truth = Truth()
        for key in self._keys:
            truth.batches[key] = await _every_batch(log, key)
        after = 0
        while True:
            page = await log.feed(FeedRead(after))
            truth.feed += page.entries
            if page.is_at_end:
                return truth
            after = page.next_after


async def _every_batch(log: EmbeddedLog, key: AggregateKey) -> tuple[Batch, ...]:
    try:
        return tuple([batch async for batch in log.read_all(Read(key))])
    except AggregateMissingError:
        return ()
