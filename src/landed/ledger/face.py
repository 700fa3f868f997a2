"""``Ledger``: what a program declares about its events and effects, and how it joins them.

Nothing is opened before ``start`` (or the first transaction); nothing can be declared after it.
What works in the background is imported when it is asked for.
"""

# ruff: noqa: PLC0415  # a program that only joins transactions needs no server and no workers

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload
from uuid import UUID

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.orm import Session

from landed.clock import Clock, SystemClock
from landed.deliveries.producer import Producer
from landed.effects.state import TERMINAL
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.ledger.begun import Begun
from landed.ledger.declaring import Declarations
from landed.ledger.joining import AsyncTx, joined
from landed.ledger.keys import digest_key as find_key
from landed.records import contracts, effects, stored_time
from landed.records.bell import Bell
from landed.records.explain import Story, explain
from landed.records.meta import prepare
from landed.records.session import Books, close_engine, open_engine, transact
from landed.registry import (
    EffectRef,
    EffectType,
    Tx,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

    from landed.intake import IntakeApp
    from landed.intake.receive import Answer, Intake
    from landed.workers.agent import Agent
    from landed.workers.worker import Worker

R = TypeVar("R")

Given = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers as web frameworks have them: a mapping, or every line by itself."""

_WAIT_S = 0.05
CLOCK_BEHIND_US: Final = 5_000_000
"""What several processes on one host may differ by, and more: beyond it the clock was put back."""
_BEHIND: Final = (
    "the host's clock is %.0f s behind the newest record: the ledger goes on from there, so its times "
    "are ahead of the clock"
)


class Ledger(Declarations):
    """One ledger: its name is part of every key that recipients see.

    Args:
        name: for ever; another name would do every effect again.
        database: a URL (``sqlite:///app.db``, ``postgresql://…``), or an engine. A synchronous
            PostgreSQL engine is used as it is; of any other only the URL is taken, and the ledger
            opens connections of its own, set up as durable writers.
        digest_key: the secret that identities are digested with, at least 16 bytes. None: from
            ``LANDED_DIGEST_KEY``, ``LANDED_DIGEST_KEY_FILE``, or a file beside a SQLite database.
        clock: for tests.
        note: takes the facts that logs and metrics are made from.
        is_relaxed: start even on a database that may lose acknowledged commits.
    """

    def __init__(
        self,
        name: str,
        database: str | Path | Engine | AsyncEngine,
        *,
        digest_key: bytes | None = None,
        clock: Clock | None = None,
        note: Note = forget,
        is_relaxed: bool = False,
    ) -> None:
        if not name or len(name) > 200:
            raise ConfigurationError("a ledger's name has 1 to 200 characters")
        super().__init__()
        self.name = name
        self.note = note
        self._database = database
        self._digest_key = digest_key
        self._clock = SystemClock() if clock is None else clock
        self._is_relaxed = is_relaxed
        self._is_started = False
        self._bell = Bell()

    # --- Start ----------------------------------------------------------------------------------

    def use_database(self, database: str | Path) -> None:
        """Take another database than the one declared, before the start (``--database``)."""
        if self._is_started or "engine" in self.__dict__:
            raise ConfigurationError("the ledger has started; its database cannot be changed now")
        self._database = database

    @cached_property
    def engine(self) -> Engine:
        """The ledger's own connections. On SQLite every transaction of it begins as a writer."""
        database = self._database
        if isinstance(database, Engine) and database.dialect.name == "postgresql":
            return database
        return open_engine(self._url)

    @cached_property
    def books(self) -> Books:
        """The ledger's name, digest key and clock, as the records take them."""
        key, told = find_key(self._digest_key, make_url(self._url))
        if told is not None:
            self.note("ledger.key_made", {"message": told})
        return Books(self.name, key, self._clock)

    @cached_property
    def chance(self) -> random.Random:
        """Where jitter comes from."""
        return random.Random()  # noqa: S311  # delays, no secrets

    async def start(self, *, is_migrating: bool = True) -> Ledger:
        """Check everything, make the database ready, and refuse later declarations.

        Args:
            is_migrating: apply missing migrations; False where ``landed migrate`` runs apart.

        Raises:
            ConfigurationError: something declared cannot work, or the database belongs to another
                ledger, another digest key, or would lose acknowledged commits.
            StorageError: the database failed.
        """
        await asyncio.to_thread(self.prepare, is_migrating=is_migrating)
        return self

    def prepare(self, *, is_migrating: bool = True) -> None:
        """``start`` for a program without an event loop."""
        if self._is_started:
            return
        if not self.registry.is_frozen:
            self.registry.freeze()
        try:
            prepare(self.engine, self.books, is_migrating=is_migrating, is_relaxed=self._is_relaxed)
            transact(self.engine, self._register)
            behind_us = transact(self.engine, lambda conn: stored_time.resume(conn, self.books))
        except BaseException:
            self.close()
            raise
        for warning in self.registry.warnings:
            self.note("ledger.warned", {"message": warning})
        if behind_us > CLOCK_BEHIND_US:
            seconds = behind_us / 1_000_000
            self.note("ledger.clock_behind", {"seconds": seconds, "message": _BEHIND % seconds})
        self._is_started = True

    def close(self) -> None:
        """Let go of the connections that the ledger opened; of one in use, when that is over."""
        if "engine" in self.__dict__ and self.engine is not self._database:
            close_engine(self.engine)

    # --- Transactions ---------------------------------------------------------------------------

    @overload
    def join(self, target: Connection | Session) -> Tx: ...
    @overload
    def join(self, target: AsyncConnection | AsyncSession) -> Coroutine[Any, Any, AsyncTx]: ...
    def join(
        self, target: Connection | Session | AsyncConnection | AsyncSession
    ) -> Tx | Coroutine[Any, Any, AsyncTx]:
        """Write effects and publications into a transaction that you began and will commit.

        ``tx = ledger.join(conn)``; for an ``AsyncConnection`` or ``AsyncSession``
        ``tx = await ledger.join(conn)``. Nothing is committed, rolled back or nested here. Workers
        find what you committed at their next look, within a second; what the ledger commits itself
        wakes those of this process.

        Raises:
            NotInTransactionError: no transaction was begun, or it is in autocommit.
        """
        if isinstance(target, Connection | Session):
            conn, session = joined(target)
            return self._tx(conn, session)
        return self._join_async(target)

    def begin(self) -> Begun:
        """A transaction of the ledger's own: ``with ledger.begin() as tx`` or ``async with``."""
        return Begun(lambda: self.engine, self._tx, ring=self._bell.ring)

    def transact(self, work: Callable[[Tx], R]) -> R:
        """Run a function in a transaction of the ledger's own; again if the database asks for it.

        Raises:
            StorageError: the database failed.
            RetryTransactionError: it asked too often.
        """
        result = transact(self.engine, lambda conn: work(self._tx(conn)))
        self._bell.ring()
        return result

    # --- Questions ------------------------------------------------------------------------------

    async def effect(self, effect_type: EffectType[Any], key: str) -> effects.EffectView | None:
        """The one effect for a key, as it stands; None if it was never requested."""
        return await asyncio.to_thread(
            transact,
            self.engine,
            lambda conn: effects.view_by_key(conn, self.books, effect_type.recipient, key),
            is_durable=False,
        )

    async def wait(
        self,
        effect: EffectRef | UUID | EffectType[Any],
        key: str | None = None,
        *,
        timeout_s: float = 5.0,
    ) -> effects.EffectView:
        """Wait until an effect is settled. A convenience: the durable way is ``@effect.settled``.

        Args:
            effect: the effect, or its type; then also its key. It need not be requested yet.
            key: the effect's key, with a type.
            timeout_s: on the monotonic clock.

        Raises:
            TimeoutError: it is not settled yet; it goes on all the same.
        """

        def _look(conn: Connection) -> effects.EffectView | None:
            if isinstance(effect, EffectType):
                return effects.view_by_key(conn, self.books, effect.recipient, key or "")
            return effects.view(conn, effect if isinstance(effect, UUID) else effect.effect_id)

        async with asyncio.timeout(timeout_s):
            while True:
                view = await asyncio.to_thread(transact, self.engine, _look, is_durable=False)
                if view is not None and view.state in TERMINAL:
                    return view
                await asyncio.sleep(_WAIT_S)

    async def explain(self, id: EffectRef | UUID) -> Story | None:
        """The story of a receipt or an effect: what happened, in order, and how we know."""
        wanted = id.effect_id if isinstance(id, EffectRef) else id
        return await asyncio.to_thread(
            transact,
            self.engine,
            lambda conn: explain(conn, self.books, wanted),
            is_durable=False,
        )

    # --- What works for it ----------------------------------------------------------------------

    @cached_property
    def intake(self) -> Intake:
        """The boundary of this ledger in this process; one endpoint for each producer."""
        from landed.intake.receive import Intake

        return Intake(self.engine, self.books, self.registry, note=self.note, ring=self._bell.ring)

    def asgi(self, *, endpoints: Mapping[str, Sequence[str]] | None = None) -> IntakeApp:
        """The boundary as an ASGI application: ``app.mount("/webhooks", ledger.asgi())``.

        Args:
            endpoints: by path name, the producers that may deliver there; None: one for each.
        """
        from landed.intake import Intake, IntakeApp

        return IntakeApp(
            Intake(
                self.engine,
                self.books,
                self.registry,
                endpoints=endpoints,
                note=self.note,
                ring=self._bell.ring,
            )
        )

    async def receive(self, producer: Producer, *, headers: Given, body: bytes) -> Answer:
        """Take one delivery that some route of your own got, and say what to answer.

        Args:
            producer: who may have sent it; its signature decides.
            headers: as the route has them.
            body: the raw bytes.
        """
        return await self.intake.receive(producer.namespace, _lines(headers), body)

    def receive_within(self, tx: Tx, producer: Producer, *, headers: Given, body: bytes) -> Answer:
        """Take one delivery in a transaction of your own, together with your own change (RC-14).

        What it returns is provisional: answer the sender only after your commit.
        """
        from landed.intake.within import receive_within

        return receive_within(
            tx.conn,
            self.books,
            self.registry,
            producer.namespace,
            _lines(headers),
            body,
            note=self.note,
        )

    def worker(
        self,
        *,
        lanes: Iterable[str] | None = None,
        concurrency: int | None = None,
        others: Iterable[Agent] = (),
    ) -> Worker:
        """A worker of this ledger in this process, to be run and stopped; after the start.

        Args:
            lanes: which ones; None: all.
            concurrency: attempts at one recipient at once, at most.
            others: agents to run along, such as a ``landed.bridge.LogFollower``.
        """
        from landed.workers.desk import Desk
        from landed.workers.worker import Worker, agents_of

        desk = Desk(
            engine=self.engine,
            books=self.books,
            registry=self.registry,
            worker=f"{socket.gethostname()}/{os.getpid()}",
            note=self.note,
            chance=self.chance,
        )
        agents = [*agents_of(desk, lanes=lanes, slots=concurrency), *others]
        return Worker(agents, note=self.note, bell=self._bell)

    async def work(
        self, *, lanes: Iterable[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Work until cancelled. ``landed work module:ledger`` does so in a process of its own."""
        await self.worker(lanes=lanes, concurrency=concurrency).run()

    async def aclose(self) -> None:
        """Answer what the boundary took, and let go of everything."""
        if "intake" in self.__dict__:
            await self.intake.close()
        self.close()

    # --- Inside ---------------------------------------------------------------------------------

    @cached_property
    def _url(self) -> str:
        database = self._database
        if isinstance(database, str):
            return database
        if isinstance(database, Path):
            return f"sqlite:///{database}"
        url = database.url
        plain = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}.get(url.get_backend_name())
        if plain is None:
            raise ConfigurationError(
                f"records live in sqlite or postgresql, not {url.get_backend_name()}"
            )
        return url.set(drivername=plain).render_as_string(hide_password=False)

    def _tx(self, conn: Connection, session: Session | None = None) -> Tx:
        cause = effects.Cause(kind="local", id=str(self.books.new_id()))
        return Tx(conn, self.books, self.registry, cause=cause, session=session)

    async def _join_async(self, target: AsyncConnection | AsyncSession) -> AsyncTx:
        # run_sync gives the synchronous Connection or Session behind it, on a greenlet.
        tx = await target.run_sync(self.join)

        async def _run(work: Callable[[Tx], Any]) -> Any:
            return await target.run_sync(lambda _: work(tx))

        return AsyncTx(_run, target)

    def _register(self, conn: Connection) -> None:
        for recipient in self.registry.recipients.values():
            contracts.register(conn, self.books, recipient.name, recipient.contract)
        try:
            self.registry.contracts.update(contracts.load_all(conn))
        except ValueError as e:
            raise ConfigurationError(
                f"a contract on record was written by a newer version of landed: {e}"
            ) from None


def _lines(headers: Given) -> dict[str, list[str]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines: dict[str, list[str]] = {}
    for name, value in pairs:
        lines.setdefault(name.lower(), []).append(value)
    return lines
