"""``SafeWrites``: the safe loop inside your own FastAPI app.

safe = SafeWrites("sqlite:///shop.sqlite", identity=..., domain=Stock())
app = FastAPI(lifespan=safe.lifespan)
safe.install(app)

@app.post("/items/{item}/buy")
async def buy(item: UUID, key: Annotated[RequestKey, Depends(safe.key)]) -> Response:
    return await safe.answer(Command.on(...), key)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid4

import msgspec
from fastapi import FastAPI, Request, Response

from landed.client.log import Log
from landed.clock import Clock
from landed.commands import Command, Done, How, Outcome, Policy, SafeLoop, ServiceIdentity
from landed.connect import connect
from landed.facts import Note, forget
from landed.fastapi.answers import problem_of
from landed.fastapi.edge import KEY_HEADER, Edge, Replica, add_headers, notes_of
from landed.fastapi.key import BadKeyError, RequestKey, read_key
from landed.fastapi.problems import Problem, ProblemError, refuse, respond
from landed.projections.memory import MemoryProjection
from landed.projections.port import Domain, Projection

S = TypeVar("S")
R = TypeVar("R")

OpenLog = Callable[[], Awaitable[Log]]
"""Opens the log when the app starts, inside its event loop."""

CallerOf = Callable[[Request], str]
"""Names the authenticated caller of a request; raises ``ProblemError`` if there is none."""

STOPPING_S: Final = 1.0
"""Beyond a loop's own deadline, for an executing command to end before the log is closed."""


class SafeWrites(Generic[S]):
    """Commands in, HTTP answers out, each landing at most once however often it is sent.

    Args:
        log: a URL for ``landed.connect``, or a function that opens a log.
        identity: of the service: the same on every replica and after every restart.
        domain: what your events mean.
        policy: attempts, deadline and window; the same on every replica.
        projection: folded states; in this process's memory unless given.
        replica: this process's name, told with every answer.
        caller_of: names the authenticated caller, so that callers never share a key. Without it
            everybody who reaches this app is one caller.
        is_key_required: answer 400 to a change without an ``Idempotency-Key``.
        noun: what your aggregates are called towards callers.
        mint: makes request ids, and keys for requests that bring none.
        clock: of the projection in memory; the machine's unless given.
        note: takes facts.

    Raises:
        ConfigurationError: a policy that cannot keep its window (SW-14).
    """

    def __init__(
        self,
        log: str | OpenLog,
        *,
        identity: ServiceIdentity,
        domain: Domain[S],
        policy: Policy | None = None,
        projection: Projection[S] | None = None,
        replica: str = "app",
        caller_of: CallerOf | None = None,
        is_key_required: bool = False,
        noun: str = "aggregate",
        mint: Callable[[], UUID] = uuid4,
        clock: Clock | None = None,
        note: Note = forget,
    ) -> None:
        self.identity = identity
        self.policy = policy or Policy()
        self.replica = Replica(replica, self.policy.window_s)
        self._open_log: OpenLog = (lambda: connect(log, note=note)) if isinstance(log, str) else log
        self._domain = domain
        self._projection: Projection[S] = (
            MemoryProjection[S](clock=clock) if projection is None else projection
        )
        self._caller_of = caller_of
        self._is_key_required = is_key_required
        self._noun = noun
        self._mint = mint
        self._note = note
        self._log: Log | None = None
        self._loop: SafeLoop[S] | None = None
        self._executing: set[asyncio.Task[Any]] = set()

    @property
    def log(self) -> Log:
        """The log, while the app runs."""
        assert self._log is not None, "the app is not running: enter safe.running() first"
        return self._log

    @property
    def loop(self) -> SafeLoop[S]:
        """The loop, while the app runs: ``safe.loop.look(key)`` reads a state."""
        assert self._loop is not None, "the app is not running: enter safe.running() first"
        return self._loop

    def install(self, app: FastAPI) -> None:
        """Give an app the headers and problem documents. Its other routes keep their behaviour."""
        app.add_middleware(Edge, replica=self.replica, mint=self._mint)
        app.add_exception_handler(ProblemError, self._on_problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the log for the time of the block; at its end finish what is executing, then close.

        For an app with a lifespan of its own; ``lifespan`` is this and nothing else.
        """
        self._log = log = await self._open_log()
        self._loop = SafeLoop(
            log,
            identity=self.identity,
            projection=self._projection,
            domain=self._domain,
            policy=self.policy,
            note=self._note,
        )
        try:
            yield
        finally:
            if self._executing:
                await asyncio.wait(self._executing, timeout=self.policy.deadline_s + STOPPING_S)
            await log.close()
            self._log = self._loop = None

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Pass as ``FastAPI(lifespan=safe.lifespan)``."""
        async with self.running():
            yield

    async def key(self, request: Request) -> RequestKey:
        """Read the request's key. A dependency: ``Annotated[RequestKey, Depends(safe.key)]``.

        A malformed key is answered with 400 and never replaced by a minted one (SW-118).
        """
        scope = "" if self._caller_of is None else self._caller_of(request)
        try:
            key = read_key(
                request.headers.getlist(KEY_HEADER),
                self.identity,
                scope=scope,
                mint=self._mint,
                is_required=self._is_key_required,
            )
        except BadKeyError as e:
            raise refuse("BAD_IDEMPOTENCY_KEY", str(e)) from None
        notes_of(request.scope).key = key
        return key

    async def execute(self, command: Command[S, R]) -> Outcome[R, S]:
        """Execute a command to its end, even if the caller that asked for it goes away (SW-38)."""
        task = asyncio.create_task(self.loop.execute(command))
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)
        return await asyncio.shield(task)

    async def answer(
        self,
        command: Command[S, R],
        key: RequestKey,
        *,
        body: Callable[[Done[R]], object] | None = None,
    ) -> Response:
        """Execute a command and answer its request.

        Args:
            command: its ``event_id`` must be the key's.
            key: from the ``key`` dependency.
            body: makes the 200 body of what was done; by default the result of the first target.

        Raises:
            ProblemError: every outcome but ``Done``, by the table in problems.py.
        """
        assert command.event_id == key.event_id, "a command is executed under its request's key"
        outcome = await self.execute(command)
        if not isinstance(outcome, Done):
            told = problem_of(outcome, noun=self._noun)
            assert told is not None
            raise ProblemError(told)
        document = outcome.result if body is None else body(outcome)
        headers = {
            "Idempotency-Result": outcome.how.value,
            "Idempotency-Replayed": "false" if outcome.how is How.FRESH else "true",
        }
        data = msgspec.json.encode(document)
        return Response(data, media_type="application/json", headers=headers)

    def respond(self, request: Request, problem: Problem) -> Response:
        """Write a problem document for a request. For exception handlers of your own."""
        response = respond(problem, request_id=notes_of(request.scope).request_id)
        add_headers(response.headers, request.scope, self.replica)
        return response

    async def _on_problem(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return self.respond(request, error.problem)


def caller_header(name: str) -> CallerOf:
    """Take the caller's name from a header that your authenticating proxy sets, and only it.

    A request without it, or with several, is refused: it must not share keys with anybody.
    """

    def caller_of(request: Request) -> str:
        lines = request.headers.getlist(name)
        if len(lines) != 1 or not lines[0].strip():
            raise refuse("BAD_REQUEST", f"exactly one {name} header must name the caller")
        return lines[0].strip()

    return caller_of
