"""The shape of every agent: a bounded amount of work at a time, again and again until the stop.

An agent is anything with a ``name`` and ``run_once() -> int``. ``LaneAgent`` is one that claims
work from a lane of the schedule and does several pieces at once.
"""

from __future__ import annotations

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from landed.errors import StorageError
from landed.facts import Note

W = TypeVar("W")

IDLE_MIN_S: Final = 0.02
"""First rest of an agent that found nothing; each further one is twice as long."""
IDLE_MAX_S: Final = 1.0
"""Longest rest: how late work is found when every wake-up is lost."""
NUDGE_S: Final = 0.02
"""Wake-ups from finished work are gathered for so long, or a busy worker would only look."""
GRACE_S: Final = 10.0
"""After the stop, what is under way may finish within this time."""


class Agent(Protocol):
    """Something that works in the background."""

    @property
    def name(self) -> str: ...

    async def run_once(self) -> int:
        """Do a bounded amount of work; return how much there was. 0: nothing is due."""
        ...


class Life:
    """One worker's life, as its agents see it: wake-ups, and the stop.

    A lost wake-up costs latency and nothing else (rule OB-11).
    """

    def __init__(self, *, grace_s: float = GRACE_S, idle_max_s: float = IDLE_MAX_S) -> None:
        self.grace_s = grace_s
        self.idle_max_s = idle_max_s
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None
        self._hurried = -NUDGE_S

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Claim nothing more. What is under way gets its grace."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """There may be work: whoever rests looks again at once."""
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    @property
    def now(self) -> asyncio.Event:
        """This moment: set by the next wake-up."""
        return self._woken

    def hurry(self) -> None:
        """Something was committed elsewhere: wake at once, but not for each of many."""
        now = asyncio.get_running_loop().time()
        if now - self._hurried < NUDGE_S:
            self.nudge()
            return
        self._hurried = now
        self.wake()

    def nudge(self) -> None:
        """Something was done, and may have made work for another lane: wake, but not for each."""
        if self._nudge is None and not self.is_stopping:
            loop = asyncio.get_running_loop()
            self._nudge = loop.call_later(NUDGE_S, self._nudged)

    def _nudged(self) -> None:
        self._nudge = None
        self.wake()

    async def rest(
        self, seconds: float, *, is_wakeful: bool = True, since: asyncio.Event | None = None
    ) -> None:
        """Rest until a wake-up or the stop, or for so long; only the stop ends a sound rest.

        Args:
            seconds: the longest.
            is_wakeful: False for a sound rest.
            since: the moment (``now``) from which on a wake-up counts; None: from here on.
        """
        end = (since or self._woken) if is_wakeful else self._stopping
        if self.is_stopping:
            return
        try:
            async with asyncio.timeout(seconds):
                await end.wait()
        except TimeoutError:
            return

    async def stopped(self) -> None:
        """Wait for the stop."""
        await self._stopping.wait()


class Rest:
    """How long to rest: twice as long each time nothing was found."""

    def __init__(self, life: Life, *, is_wakeful: bool = True) -> None:
        self._life = life
        self._is_wakeful = is_wakeful
        self._idle_s = IDLE_MIN_S
        self._since: asyncio.Event | None = None

    def looks(self) -> None:
        """A look begins: what wakes while it goes on may have come too late for it."""
        self._since = self._life.now

    def found(self) -> None:
        """Work was found: the next rest is short again."""
        self._idle_s = IDLE_MIN_S

    async def take(self) -> None:
        """Rest once."""
        idle_s = min(self._idle_s, self._life.idle_max_s)
        self._idle_s = min(self._idle_s * 2, self._life.idle_max_s)
        since, self._since = self._since, None
        await self._life.rest(idle_s, is_wakeful=self._is_wakeful, since=since)


async def run(agent: Agent, life: Life, *, note: Note) -> None:
    """Run an agent until the stop. A failure of one round is noted, and the next one comes.

    An agent with a ``run`` of its own (``LaneAgent``) is run by that. At the stop, a round that is
    under way gets the grace, and is then cancelled.
    """
    if isinstance(agent, LaneAgent):
        await agent.run(life)
        return
    # What only time brings (deadlines) is not hurried by what others did.
    rest = Rest(life, is_wakeful=not getattr(agent, "is_timed", False))
    while not life.is_stopping:
        done = 0
        rest.looks()
        round_ = asyncio.ensure_future(agent.run_once())
        await until_stopped(life, {round_})
        try:
            done = await round_
        except asyncio.CancelledError:
            if not life.is_stopping:
                raise
        except Exception as e:  # noqa: BLE001  # one agent's failure must not stop the others
            note_failure(note, agent.name, e)
        if done:
            rest.found()
            life.nudge()
        else:
            await rest.take()


async def until_stopped(life: Life, tasks: set[asyncio.Future[int]]) -> None:
    """Wait for tasks; once the stop has come, for the grace only, then cancel what is left."""
    stopped: asyncio.Future[None] = asyncio.ensure_future(life.stopped())
    try:
        pending = set(tasks)
        while pending and not life.is_stopping:
            waited: set[asyncio.Future[Any]] = {*pending, stopped}
            await asyncio.wait(waited, return_when="FIRST_COMPLETED")
            pending = {task for task in pending if not task.done()}
        if pending:
            _, pending = await asyncio.wait(pending, timeout=life.grace_s)
    finally:
        stopped.cancel()
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)


def note_failure(note: Note, name: str, error: BaseException) -> None:
    """Note that a round or a piece of work failed; storage's failures are told from our own.

    An error that is not ours is named by its class and its place: its text may hold a payload (SE-2).
    """
    if isinstance(error, StorageError):
        note("agent.storage_failed", {"agent": name, "detail": str(error)[:500]})
        return
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    note("agent.failed", {"agent": name, "error": type(error).__name__, "at": place})


class LaneAgent(ABC, Generic[W]):
    """Claims work of one lane and does up to ``slots`` pieces at once.

    Each lane has its own slots, so that a slow recipient starves nobody else (rule CL-6).
    """

    def __init__(self, name: str, *, slots: int, note: Note) -> None:
        self.name = name
        self.slots = slots
        self._note = note

    @abstractmethod
    async def take(self, limit: int) -> Sequence[W]:
        """Claim and load at most ``limit`` pieces of work, oldest first."""

    @abstractmethod
    async def work(self, piece: W) -> None:
        """Do one piece. What it cannot finish, its lease gives to somebody else."""

    def size(self, piece: W) -> int:
        """How many slots a piece takes up."""
        del piece
        return 1

    def room(self, held: int) -> int:
        """How many slots are free, while so many are taken up."""
        return self.slots - held

    async def run_once(self) -> int:
        """Claim what the slots allow, do it, and return how much it was."""
        pieces = await self.take(self.room(0))
        await asyncio.gather(*(self._guarded(piece) for piece in pieces))
        return sum(map(self.size, pieces))

    async def run(self, life: Life) -> None:
        """Claim as slots become free, until the stop; then let open work finish within the grace.

        Whatever is left then is cancelled and stays open: its attempt is reaped later, and never
        rewritten to be sent again (rule AT-11).
        """
        rest = Rest(life)
        running: dict[asyncio.Future[None], int] = {}

        def _done(task: asyncio.Future[None]) -> None:
            del running[task]
            life.nudge()

        try:
            while not life.is_stopping:
                rest.looks()
                pieces = await self._taken(self.room(sum(running.values())))
                for piece in pieces:
                    task: asyncio.Future[None] = asyncio.ensure_future(self._guarded(piece))
                    running[task] = self.size(piece)
                    task.add_done_callback(_done)
                if pieces:
                    rest.found()
                if running and self.room(sum(running.values())) <= 0:
                    await self._until_a_slot_is_free(set(running), life)
                elif not pieces:
                    await rest.take()
            if running:
                await asyncio.wait(set(running), timeout=life.grace_s)
        finally:
            left = list(running)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if left:
                self._note("agent.left_open", {"agent": self.name, "count": len(left)})

    async def _taken(self, limit: int) -> Sequence[W]:
        if limit <= 0:
            return ()
        try:
            return await self.take(limit)
        except Exception as e:  # noqa: BLE001  # the next round comes
            note_failure(self._note, self.name, e)
            return ()

    async def _guarded(self, piece: W) -> None:
        try:
            await self.work(piece)
        except Exception as e:  # noqa: BLE001  # one piece's failure must not stop the others
            note_failure(self._note, self.name, e)

    @staticmethod
    async def _until_a_slot_is_free(running: set[asyncio.Future[None]], life: Life) -> None:
        stopped = asyncio.ensure_future(life.stopped())
        try:
            await asyncio.wait({*running, stopped}, return_when="FIRST_COMPLETED")
        finally:
            stopped.cancel()


async def shielded(work: Coroutine[object, object, W]) -> W:
    """Finish some work even if whoever waits for it is cancelled; the cancellation comes after."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
