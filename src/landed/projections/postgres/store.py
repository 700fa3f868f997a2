"""``PostgresProjection``: the port over the statements. It can be lost at any time: the log has it all.

Its commits are not flushed before they are answered (``synchronous_commit=off``): a crash loses the
newest ones, cursors and answers together, and they are folded again. A lost *acknowledgement* is
harmless for the same reason: every step may be taken twice (rule SW-71).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, Final, Generic, LiteralString, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8

from landed.errors import ConfigurationError, StorageError, StorageForeignError
from landed.facts import Note, forget
from landed.ids import AggregateKey, ClientId, EventId
from landed.postgres import checks
from landed.postgres.connections import SIZE, Connections
from landed.postgres.dsn import parse_dsn
from landed.postgres.faults import Phase, storage_error
from landed.postgres.migrate import migrate
from landed.projections.port import Advance, Answered, Domain, View
from landed.projections.postgres import statements

S = TypeVar("S")

TIMEOUT_S: Final = 5.0
"""For one step, waiting for a connection included; a caller has more than one attempt."""
SETTINGS: Final = {
    "statement_timeout": "4000",
    "lock_timeout": "2000",
    "synchronous_commit": "off",
}
"""Of our sessions. The server gives up before we do (milliseconds), so that it does not work for nobody;
a commit waits for no disk and no standby, because what is lost is folded again."""
OPEN_TIMEOUT_S: Final = 90.0
"""Longer than one waits for another replica's migration."""
KEEP_EVERY_S: Final = 10.0
"""Between two rounds of housekeeping."""
SWEEP_ROWS: Final = 1_000
"""Rows of one delete, so that no lock is held long."""
SWEEPS_MAX: Final = 50
"""Deletes of one round: 5,000 expired answers a second keep up with any fleet on one database."""

Row = tuple[Any, ...]


class PostgresProjection(Generic[S]):
    """Folded states that all replicas of a service share. Implements ``Projection``.

    Use it inside ``async with projection.running():``.

    Args:
        url: ``postgresql://user@host[,host2]/database``; see ``landed.postgres.dsn``.
        name: of this projection in the database: one for each domain. A domain that folds otherwise
            than before takes another name, or is rebuilt.
        client_id: of the service; what was folded under another one is not used.
        state_type: of the states, for msgspec: anything it can encode and decode without loss.
        config: what every replica must agree on. The first one writes it down.
        is_config_accepted: write this ``config`` down although another one stands there.
        size: connections of this process at most.
        timeout_s: for each step.
        note: takes facts.

    Raises:
        ConfigurationError: the URL cannot be read, or the extra is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        client_id: ClientId,
        state_type: type[S],
        config: Mapping[str, object] | None = None,
        is_config_accepted: bool = False,
        size: int = SIZE,
        timeout_s: float = TIMEOUT_S,
        note: Note = forget,
        connections: Connections | None = None,
    ) -> None:
        self._connections = connections or connect(url, size=size)
        self._name = name
        self._client_id = client_id
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(state_type).decode
        self._state_type = state_type
        self._config = dict(config or {})
        self._is_config_accepted = is_config_accepted
        self._timeout_s = timeout_s
        self._note = note
        self._log: tuple[UUID, int] | None = None
        self._fold: int | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Prepare the tables, check the configuration, and keep house, for the time of the block.

        Raises:
            ConfigurationError: the server is no use, or replicas disagree; the message names both.
            StorageError: the database cannot be reached, or a newer version wrote it.
        """
        keeping = None
        try:
            await self._open()
            keeping = asyncio.create_task(self._keep_house())
            yield
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            self._connections.close()

    async def _open(self) -> None:
        try:
            await self._connections.run(
                self._prepare, timeout_s=OPEN_TIMEOUT_S, phase=Phase.COMMITTING
            )
        except StorageError as e:
            if "startup parameter" in str(e):
                raise ConfigurationError(
                    f"a pooler stands before the database and takes no settings: add ?prepare=off "
                    f"to the URL ({e})"
                ) from e
            raise

    async def load(
        self, keys: Sequence[AggregateKey], event_id: EventId | None, domain: Domain[S], /
    ) -> tuple[View[S], ...]:
        """See ``Projection.load``. Before ``meet`` nothing is known to be of this log."""
        if self._fold is None:
            return tuple([View(key, domain.initial(key), 0, 0, 0, 0, None) for key in keys])
        rows = await self._ask(
            statements.LOAD,
            {**_keys(keys), "event_id": event_id, "fold": self._fold},
            phase=Phase.WORKING,
        )
        return tuple([self._view(key, row, domain) for key, row in zip(keys, rows, strict=True)])

    async def advance(self, step: Advance[S], /) -> bool:
        """See ``Projection.advance``."""
        ((is_taken, _),) = await self._ask(statements.ADVANCE, self._steps([step]))
        return bool(is_taken)

    async def record(self, steps: Sequence[Advance[S]], /) -> None:
        """See ``Projection.record``."""
        await self._ask(statements.RECORD, self._steps(steps))

    async def raise_floor(self, key: AggregateKey, client_seq: int, /) -> None:
        """See ``Projection.raise_floor``. Kept for an aggregate that was never folded as well."""
        await self._ask(
            statements.RAISE_FLOOR,
            {
                "fold": self._known_fold(),
                "org": key.org,
                "type": key.type,
                "id": key.id,
                "client_seq": Decimal(client_seq),
            },
        )

    async def meet(self, *, log_id: UUID, restore_epoch: int) -> None:
        """See ``Projection.meet``. Another log has another fold; the old one is swept away later."""
        if self._log != (log_id, restore_epoch):
            self._log, self._fold = (log_id, restore_epoch), None
        await self._find_fold()

    async def ping(self) -> None:
        """Ask the database anything.

        Raises:
            StorageError: it does not answer.
        """
        await self._ask("SELECT 1", {}, phase=Phase.WORKING)

    async def sweep(self) -> int:
        """Delete expired answers, in bounded pieces; returns how many there were.

        The request path never does this (rule SW-72), and nothing depends on it being done.

        Raises:
            StorageError: the database failed; the next round goes on.
        """
        swept = 0
        for _ in range(SWEEPS_MAX):
            count = await self._connections.run(
                lambda c: c.execute(statements.SWEEP, {"limit": SWEEP_ROWS}).rowcount,
                timeout_s=self._timeout_s,
                phase=Phase.COMMITTING,
                is_repeatable=True,
            )
            swept += count
            if count < SWEEP_ROWS:
                break
        return swept

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            try:
                # Says that this fold is in use, and learns whether it was begun anew.
                await self._find_fold()
                await self.sweep()
                await self._connections.run(
                    lambda c: c.execute(statements.SWEEP_FOLDS, {"limit": SWEEP_ROWS}),
                    timeout_s=self._timeout_s,
                    phase=Phase.COMMITTING,
                )
            except StorageError as e:
                self._note("projection.not_swept", {"error": str(e)})

    async def _find_fold(self) -> None:
        """Ask for the fold of the log that was met last; another may be met while this is asked."""
        log = self._log
        if log is None:
            return
        ((fold,),) = await self._ask(statements.MEET, self._place(*log))
        if self._log == log:
            self._fold = fold

    async def _ask(
        self,
        statement: LiteralString,
        values: Mapping[str, object],
        *,
        phase: Phase = Phase.COMMITTING,
    ) -> list[Row]:
        """Run one statement in a transaction of its own."""

        def work(connection: psycopg.Connection[Any]) -> list[Row]:
            cursor = connection.execute(statement, values)
            return [] if cursor.description is None else cursor.fetchall()

        return await self._connections.run(
            work, timeout_s=self._timeout_s, phase=phase, is_repeatable=True
        )

    def _known_fold(self) -> int:
        if self._fold is None:
            raise StorageError("it is not known yet which log this is: meet it first")
        return self._fold

    def _place(self, log_id: UUID, restore_epoch: int) -> dict[str, object]:
        return {
            "projection": self._name,
            "client_id": self._client_id,
            "log_id": log_id,
            "restore_epoch": Int8(restore_epoch),
        }

    def _view(self, key: AggregateKey, row: Row, domain: Domain[S]) -> View[S]:
        version, client_seq, floor, newest_ms, state, at, is_exact, fingerprint, answer = row
        answered = None
        if at is not None:
            answered = Answered(self._state(answer), at, fingerprint, is_exact)
        return View(
            key,
            self._state(state) if version else domain.initial(key),
            version or 0,
            int(client_seq or 0),
            int(floor or 0),
            int(newest_ms or 0),
            answered,
        )

    def _state(self, data: bytes) -> S:
        try:
            return self._decode(data)
        except msgspec.DecodeError as e:
            raise StorageForeignError(
                f"projection {self._name!r} holds states of another shape than "
                f"{self._state_type}: give it another name, or run landed projection rebuild ({e})"
            ) from None

    def _steps(self, steps: Sequence[Advance[S]]) -> dict[str, object]:
        """Everything of some steps, as arrays."""
        entries = [(step.key, entry) for step in steps for entry in step.entries]
        return {
            **_keys([step.key for step in steps]),
            "fold": self._known_fold(),
            "bases": [Int8(step.base) for step in steps],
            "versions": [Int8(step.version) for step in steps],
            "client_seqs": [Decimal(step.client_seq) for step in steps],
            "newest": [Decimal(step.newest_ms) for step in steps],
            "states": [self._encode(step.state) for step in steps],
            "e_ids": [entry.event_id for _, entry in entries],
            "e_orgs": [key.org for key, _ in entries],
            "e_types": [key.type for key, _ in entries],
            "e_keys": [key.id for key, _ in entries],
            "e_versions": [Int8(entry.answered.version) for _, entry in entries],
            "e_exact": [entry.answered.is_exact for _, entry in entries],
            "e_prints": [entry.answered.fingerprint for _, entry in entries],
            "e_states": [self._encode(entry.answered.state) for _, entry in entries],
            "e_lives": [float(entry.life_ms) for _, entry in entries],
        }

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Before anything else, on a thread: tables, and what replicas must agree on (SW-94)."""
        checks.check(checks.look(connection))
        migrate(connection, statements.PART, statements.STEPS)
        connection.execute(
            "INSERT INTO landed_projections (name, config) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (self._name, Jsonb(self._config)),
        )
        if self._is_config_accepted:
            connection.execute(
                "UPDATE landed_projections SET config = %s WHERE name = %s",
                (Jsonb(self._config), self._name),
            )
        row = connection.execute(
            "SELECT config FROM landed_projections WHERE name = %s", (self._name,)
        ).fetchone()
        if row is not None and row[0] != self._config:
            raise ConfigurationError(
                f"the replicas of {self._name!r} disagree: {_differences(row[0], self._config)}; "
                "set all alike, or stop all and start with --accept-config"
            )


def connect(url: str, *, size: int = SIZE) -> Connections:
    """Connections as this projection needs them.

    With ``?prepare=off``, for a pooler in transaction mode, nothing is kept in a session: no prepared
    statement and no setting. Then our own time limits bound what the server's would have bound.
    """
    dsn = parse_dsn(url, own=("prepare",))
    if dsn.options.get("prepare", "on") not in {"on", "off"}:
        raise ConfigurationError("prepare is on or off")
    if dsn.options.get("prepare") == "off":
        return Connections(dsn, size=size, prepare=_prepare_nothing)
    return Connections(dsn.with_settings(SETTINGS), size=size)


def rebuild(url: str, name: str) -> int:
    """Let every fold of a projection begin anew; returns how many there were.

    Replicas that are at work go on with the old fold and take up the new one within seconds; both
    are right, and answers within their window are found again by folding.

    Raises:
        ConfigurationError: the URL cannot be read, or no projection has this name.
        StorageError: the database failed.
    """
    with checks.open_connection(parse_dsn(url, own=("prepare",))) as connection:
        try:
            begun = connection.execute(statements.REBUILD, {"projection": name}).rowcount
            known = connection.execute("SELECT name FROM landed_projections ORDER BY 1").fetchall()
        except psycopg.errors.UndefinedTable:
            raise ConfigurationError("there is no projection in this database") from None
        except psycopg.Error as e:
            raise storage_error(e, Phase.COMMITTING) from e
    if (name,) not in known:
        names = ", ".join(row[0] for row in known) or "none"
        raise ConfigurationError(f"no projection is called {name!r}; there are: {names}")
    return begun


def _prepare_nothing(connection: psycopg.Connection[Any]) -> None:
    connection.prepare_threshold = None


def _keys(keys: Iterable[AggregateKey]) -> dict[str, object]:
    parts = list(keys)
    return {
        "orgs": [key.org for key in parts],
        "types": [key.type for key in parts],
        "ids": [key.id for key in parts],
    }


def _differences(found: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    names = sorted(found.keys() | wanted.keys())
    return ", ".join(
        f"{name} is {wanted.get(name)!r} here and {found.get(name)!r} there"
        for name in names
        if found.get(name) != wanted.get(name)
    )
