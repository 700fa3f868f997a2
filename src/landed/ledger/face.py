"""``Ledger``: what a program declares about its events and effects, and how it joins them.

Nothing is opened before ``start`` (or the first transaction); nothing can be declared after it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.orm import Session

from landed.clock import Clock, SystemClock
from landed.deliveries.event import IdentityRule
from landed.deliveries.producer import PayloadPolicy, Producer, When
from landed.deliveries.verify import Authentication
from landed.effects.contract import Contract
from landed.effects.state import TERMINAL
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.ledger.begun import Begun
from landed.ledger.joining import AsyncTx, joined
from landed.ledger.keys import digest_key as find_key
from landed.ledger.types import Declared, event_types
from landed.records import contracts, effects
from landed.records.meta import prepare
from landed.records.session import Books, open_engine, transact
from landed.registry import (
    Destination,
    EffectRef,
    EffectType,
    Handler,
    Recipient,
    Registry,
    Tx,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

    from landed.intake import IntakeApp

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R")

_WAIT_S = 0.05


class Ledger:
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
        self.name = name
        self.note = note
        self.registry = Registry()
        self._database = database
        self._digest_key = digest_key
        self._clock = SystemClock() if clock is None else clock
        self._is_relaxed = is_relaxed
        self._is_started = False

    # --- What is declared ---------------------------------------------------------------------

    def producer(
        self,
        namespace: str,
        *,
        authentication: Authentication,
        types: Mapping[str, Declared],
        ignore: Iterable[str] = (),
        owner: str = "installation",
        identity: IdentityRule = IdentityRule.CLOUDEVENTS,
        payload: PayloadPolicy = PayloadPolicy.KEEP,
        **more: Any,
    ) -> Producer:
        """Declare who may send events, and how it proves itself.

        Args:
            namespace: the producer's name; its events are received under it.
            authentication: ``StandardWebhooks`` or ``HmacScheme``.
            types: by event type: a payload class (dataclass, TypedDict, attrs, msgspec, pydantic),
                a check of your own, an ``EventType``, or None for JSON as it is.
            ignore: types that are receipted and never handled.
            owner: who is asked about its quarantine.
            identity: which id tells its events apart.
            payload: what is kept of its payloads.
            more: any other field of ``Producer``.
        """
        producer = Producer(
            namespace=namespace,
            authentication=authentication,
            types=event_types(types),
            ignore=frozenset(ignore),
            owner=owner,
            identity=identity,
            payload=payload,
            **more,
        )
        self.registry.add_producer(producer)
        return producer

    def on(
        self,
        producer: Producer,
        event_type: str,
        *,
        name: str | None = None,
        when: When | None = None,
        why: str = "its business condition does not hold",
        serial: Callable[[Any], str] | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler ``(tx, event)`` for one event type of a producer.

        Args:
            producer: what ``producer`` returned.
            event_type: one of its types.
            name: stable text under which its work is stored; the function's name by default.
                Renaming a handler that has work waiting strands that work (rule HN-4).
            when: the type's business condition over the data; if false the event is ``ignored``.
            why: what ``explain`` says of an event whose condition does not hold.
            serial: over the data: handled one at a time per key, in receipt order (OG-3).
        """
        if event_type not in producer.types:
            raise ConfigurationError(f"{producer.namespace} declares no type {event_type}")
        if when is not None:
            self.registry.add_condition(producer.namespace, event_type, when, why)

        def _declare(function: F) -> F:
            if asyncio.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"handler {function.__name__} is async; a handler is a plain function, run in a "
                    "thread inside its transaction, and does no other I/O"
                )
            self.registry.add_handler(
                Handler(
                    name=name or function.__name__,
                    function=function,
                    namespace=producer.namespace,
                    event_type=event_type,
                    serial=serial,
                )
            )
            return function

        return _declare

    def recipient(self, name: str, contract: Contract) -> Recipient:
        """Declare a system that effects act on, with what it promises."""
        return self.registry.add_recipient(name, contract)

    def destination(
        self,
        name: str,
        sink: object,
        *,
        blocks_on_failure: bool = True,
        body_bytes_max: int | None = None,
    ) -> Destination:
        """Declare where publications go.

        Args:
            name: as in ``tx.publish(..., to=name)``.
            sink: of ``landed.relay``.
            blocks_on_failure: a message that cannot be handed on holds up its order key until a
                person decides; False: it is skipped, and the skip is recorded (rule OB-8).
            body_bytes_max: the largest body it takes, if that is known.
        """
        declared = Destination(
            name=name,
            sink=sink,
            blocks_on_failure=blocks_on_failure,
            body_bytes_max=body_bytes_max,
        )
        self.registry.add_destination(declared)
        return declared

    def alerts(self, sink: object) -> None:
        """Declare one more place where alerts go; without any they go to the log."""
        self.registry.add_alert_sink(sink)

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
        except BaseException:
            self.close()
            raise
        for warning in self.registry.warnings:
            self.note("ledger.warned", {"message": warning})
        self._is_started = True

    def asgi(self, *, endpoints: Mapping[str, Sequence[str]] | None = None) -> IntakeApp:
        """The boundary as an ASGI application: ``app.mount("/webhooks", ledger.asgi())``.

        Args:
            endpoints: by path name, the producers that may deliver there; None: one for each.
        """
        from landed.intake import Intake, IntakeApp  # noqa: PLC0415  # loaded when asked for

        return IntakeApp(
            Intake(self.engine, self.books, self.registry, endpoints=endpoints, note=self.note)
        )

    def close(self) -> None:
        """Let go of the connections that the ledger opened."""
        if "engine" in self.__dict__ and self.engine is not self._database:
            self.engine.dispose()

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
        ``tx = await ledger.join(conn)``. Nothing is committed, rolled back or nested here.

        Raises:
            NotInTransactionError: no transaction was begun, or it is in autocommit.
        """
        if isinstance(target, Connection | Session):
            conn, session = joined(target)
            return self._tx(conn, session)
        return self._join_async(target)

    def begin(self) -> Begun:
        """A transaction of the ledger's own: ``with ledger.begin() as tx`` or ``async with``."""
        return Begun(lambda: self.engine, self._tx)

    def transact(self, work: Callable[[Tx], R]) -> R:
        """Run a function in a transaction of the ledger's own; again if the database asks for it.

        Raises:
            StorageError: the database failed.
            RetryTransactionError: it asked too often.
        """
        return transact(self.engine, lambda conn: work(self._tx(conn)))

    # --- Questions ------------------------------------------------------------------------------

    async def effect(self, effect_type: EffectType[Any], key: str) -> effects.EffectView | None:
        """The one effect for a key, as it stands; None if it was never requested."""
        return await asyncio.to_thread(
            transact,
            self.engine,
            lambda conn: effects.view_by_key(conn, self.books, effect_type.recipient, key),
            is_durable=False,
        )

    async def wait(self, ref: EffectRef | UUID, *, timeout_s: float = 5.0) -> effects.EffectView:
        """Wait until an effect is settled. A convenience: the durable way is ``@effect.settled``.

        Raises:
            TimeoutError: it is not settled yet; it goes on all the same.
        """
        effect_id = ref.effect_id if isinstance(ref, EffectRef) else ref
        async with asyncio.timeout(timeout_s):
            while True:
                view = await asyncio.to_thread(
                    transact,
                    self.engine,
                    lambda conn: effects.view(conn, effect_id),
                    is_durable=False,
                )
                if view is not None and view.state in TERMINAL:
                    return view
                await asyncio.sleep(_WAIT_S)

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
