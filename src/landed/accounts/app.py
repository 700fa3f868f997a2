"""The HTTP face of the account service: routes in, commands out. Contract: docs/reference/http.md."""

# No postponed annotations here: FastAPI must see the local alias of the key dependency.
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import msgspec
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from landed.accounts import page, reading
from landed.accounts.changes import Changes
from landed.accounts.decide import AccountAnswer, answer_of, command_of
from landed.accounts.domain import Accounts, Order, account_key
from landed.accounts.history import history_of
from landed.accounts.settings import Settings
from landed.clock import Clock
from landed.commands import Done, Fault, Seen, Unavailable
from landed.errors import AggregateMissingError, LandedError
from landed.facts import Note, forget
from landed.fastapi import (
    OpenLog,
    ProblemError,
    RequestKey,
    SafeWrites,
    caller_header,
    problem_documents,
    refuse,
)
from landed.fastapi.answers import problem_of

if TYPE_CHECKING:
    from landed.projections.postgres import PostgresProjection

COMMENT_EVERY_S: Final = 15.0
"""A live stream is never silent for longer, so that nobody on the way takes it for dead."""
READY_TIMEOUT_S: Final = 2.0
"""Readiness is asked often and must answer soon."""
NOUN: Final = "account"
PROJECTION: Final = "accounts"
"""Its name in a database."""


class AccountService:
    """One replica: an app, and a way to end its live streams before the server stops.

    Args:
        log: a URL for ``landed.connect``, or a function that opens a log.
        settings: of this replica.
        clock: of a projection in memory; the machine's unless given.
        note: takes facts.
    """

    def __init__(
        self,
        log: str | OpenLog,
        settings: Settings,
        *,
        clock: Clock | None = None,
        note: Note = forget,
    ) -> None:
        header = settings.caller_header
        self._shared = None if settings.projection is None else _shared_states(settings, note)
        self._settings = settings
        self._note = note
        self._caller_of = None if header is None else caller_header(header)
        self._safe: SafeWrites[int] = SafeWrites(
            log,
            identity=settings.identity,
            domain=Accounts(),
            policy=settings.policy,
            projection=self._shared,
            replica=settings.replica,
            caller_of=self._caller_of,
            is_key_required=settings.is_key_required,
            noun=NOUN,
            clock=clock,
            note=note,
        )
        self._changes: Changes | None = None
        self.app = self._make_app()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the log and follow its feed for the time of the block.

        Raises:
            LandedError: the log or the projection cannot be opened, or replicas disagree.
        """
        shared = nullcontext() if self._shared is None else self._shared.running()
        async with shared, self._safe.running():
            self._changes = Changes(self._safe.log, names=self._settings.names, note=self._note)
            following = asyncio.create_task(self._changes.follow())
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    @property
    def stopping_s(self) -> int:
        """How long requests under way may take to end, whole seconds."""
        return ceil(self._settings.policy.deadline_s) + 1

    def end_streams(self) -> None:
        """End every live stream; a server that stops waits for its connections."""
        if self._changes is not None:
            self._changes.close()

    def _make_app(self) -> FastAPI:
        app = FastAPI(
            title="Landed accounts",
            lifespan=lambda _app: self.running(),
            redirect_slashes=False,
            openapi_url=None,  # the contract is written down, and stricter than a schema can say
        )
        self._safe.install(app)
        problem_documents(app, self._safe)
        Key = Annotated[RequestKey, Depends(self._safe.key)]  # noqa: N806  # a type
        known = [Depends(self._known_caller)]

        @app.post("/api/accounts/{account}/deposit", dependencies=known)
        async def deposit(request: Request, account: str, key: Key) -> Response:
            return await self._carry_out(await reading.deposit(request, account), key)

        @app.post("/api/accounts/{account}/withdraw", dependencies=known)
        async def withdraw(request: Request, account: str, key: Key) -> Response:
            return await self._carry_out(await reading.withdrawal(request, account), key)

        @app.post("/api/transfers", dependencies=known)
        async def transfer(request: Request, key: Key) -> Response:
            order = await reading.transfer(request)
            return await self._safe.answer(command_of(order, key.event_id), key, body=_both)

        for path, route in (
            ("/api/accounts", self._list),
            ("/api/accounts/{account}/balance", self._balance),
            ("/api/accounts/{account}/history", self._history),
            ("/api/watch/stream", self._stream),
            ("/api/info", self._info),
        ):
            app.add_api_route(path, route, methods=["GET"], dependencies=known)
        app.add_api_route("/healthz", self._healthz, methods=["GET", "HEAD"])
        app.add_api_route("/readyz", self._readyz, methods=["GET", "HEAD"])
        page.install(app)
        return app

    async def _known_caller(self, request: Request) -> None:
        """Refuse whom the proxy did not name, also for what only reads."""
        if self._caller_of is not None:
            self._caller_of(request)

    async def _carry_out(self, order: Order, key: RequestKey) -> Response:
        return await self._safe.answer(command_of(order, key.event_id), key)

    async def _look(self, account: UUID, *, at_least: int | None = None) -> Seen[int]:
        seen = await self._safe.loop.look(account_key(account), at_least=at_least)
        if isinstance(seen, Unavailable | Fault):
            told = problem_of(seen, noun=NOUN)
            assert told is not None
            raise ProblemError(told)
        return seen

    async def _list(self) -> Response:
        assert self._changes is not None
        try:
            accounts = await self._changes.accounts()
        except LandedError as e:
            raise refuse("SERVICE_UNAVAILABLE", str(e)) from None
        return _json({"accounts": [{"id": id_, "name": name} for id_, name in accounts]})

    async def _balance(self, request: Request, account: str) -> Response:
        wanted = reading.number(request, "minVersion", low=0, high=reading.VERSION_MAX)
        id_ = reading.account_id(account)
        # Version 0 asks for nothing, so it is no reason to skip the catch-up.
        seen = await self._look(id_, at_least=wanted or None)
        if wanted is not None and seen.version < wanted:
            raise refuse(
                "VERSION_NOT_REACHED",
                f"the account is at version {seen.version}",
                members={"aggregateVersion": seen.version},
            )
        return _json(answer_of(account_key(id_), seen.state, seen.version))

    async def _history(self, request: Request, account: str) -> Response:
        first = reading.number(request, "fromVersion", low=0, high=reading.VERSION_MAX)
        limit = reading.number(request, "limit", low=1, high=reading.HISTORY_LIMIT_MAX)
        id_ = reading.account_id(account)
        seen = await self._look(id_)
        try:
            history = await history_of(
                self._safe.log,
                id_,
                seen,
                from_version=first or 1,
                limit=limit or reading.HISTORY_LIMIT,
            )
        except AggregateMissingError:
            # Deleted since we looked: look again, and say what a closed account is answered with.
            await self._look(id_)
            raise refuse("SERVICE_UNAVAILABLE", "the account changed while it was read") from None
        except LandedError as e:
            raise refuse("SERVICE_UNAVAILABLE", str(e)) from None
        return _json(history)

    async def _info(self) -> Response:
        return _json(self._settings.info())

    async def _healthz(self) -> Response:
        return _json({"status": "alive"})

    async def _readyz(self) -> Response:
        try:
            await self._safe.log.info(timeout_s=READY_TIMEOUT_S)
            if self._shared is not None:
                await self._shared.ping()
        except LandedError as e:
            raise refuse("SERVICE_UNAVAILABLE", str(e)) from None
        return _json({"status": "ready"})

    async def _stream(self) -> Response:
        assert self._changes is not None
        if self._changes.is_full:
            raise refuse("SERVICE_UNAVAILABLE", "too many live streams")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        lines = _lines(self._changes)
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)


def _shared_states(settings: Settings, note: Note) -> "PostgresProjection[int]":
    """The projection that all replicas share."""
    from landed.projections.postgres import PostgresProjection  # noqa: PLC0415  # optional: an extra

    assert settings.projection is not None
    return PostgresProjection(
        settings.projection,
        name=PROJECTION,
        client_id=settings.identity.client_id,
        state_type=int,
        config=settings.shared,
        is_config_accepted=settings.is_config_accepted,
        note=note,
    )


async def _lines(changes: Changes) -> AsyncIterator[bytes]:
    """What one live stream says: a resync, then changes, and a comment when it was silent."""
    if changes.is_full:
        return  # others came in the same moment; whoever is sent away so soon comes again
    with changes.listening() as listener:
        while not listener.is_closed:
            try:
                async with asyncio.timeout(COMMENT_EVERY_S):
                    must_resync, told = await listener.take()
            except TimeoutError:
                yield b": nothing new\n\n"
                continue
            if must_resync:
                yield b"event: resync\ndata: {}\n\n"
            for change in told:
                data = msgspec.json.encode(
                    {
                        "accountId": change.account,
                        "operation": change.operation,
                        "aggregateVersion": change.version,
                    }
                )
                yield b"event: change\ndata: " + data + b"\n\n"


def _both(done: Done[AccountAnswer]) -> dict[str, AccountAnswer]:
    """A transfer's body: always both legs (SW-90)."""
    source, target = done.results
    return {"from": source, "to": target}


def _json(document: object) -> Response:
    return Response(
        msgspec.json.encode(document),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
