"""The three right sources of a sequence, by name; there is no fourth.

One logical event has one number, for good, whatever restarts (rule SW-113). A counter in memory
breaks that: after a crash it gives a written event a second number, and the log takes it for new.
So ``SequencedWriter`` takes a ``Sequence``, never an int, and a ``Sequence`` is only made here.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from landed.client.log import Log, for_decisions
from landed.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    SequenceOrderError,
    SequenceTakenError,
)
from landed.ids import AggregateKey, ClientId
from landed.log import ANY, Event, Write
from landed.offline.taken import owners_of

_MADE_HERE: Final = object()


class Sequence:
    """A number that a restart will find again. Made by the functions below and nowhere else."""

    __slots__ = ("number", "origin")

    def __init__(self, number: Any, origin: str, made_here: object = None) -> None:
        if made_here is not _MADE_HERE:
            raise TypeError(
                "a sequence comes from a durable place: from_stream, from_upstream or from_row"
            )
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigurationError(f"a sequence is a number from 1 up, not {number!r} ({origin})")
        self.number: int = number
        self.origin = origin

    def __repr__(self) -> str:
        return f"<Sequence {self.number} from {self.origin}>"


class Row(Protocol):
    """A row of a database, by column name: sqlite3.Row, a mapping, a SQLAlchemy mapping."""

    def __getitem__(self, column: str, /) -> Any: ...


async def from_stream(log: Log, key: AggregateKey, *, client_id: UUID, event_id: UUID) -> Sequence:
    """Derive it from the log: the number this event has there, else the next of our own.

    Only batches under our client id count: every writer numbers its own. For one writer at a time
    per client id; a service with replicas uses the safe loop, which also guards the version.

    Raises:
        LandedError: the read failed.
    """
    owners = await owners_of(for_decisions(log), key, client_id=ClientId(client_id), first=1)
    for number, owner in owners.items():
        if owner == event_id:
            return Sequence(number, "stream", _MADE_HERE)
    return Sequence(max(owners, default=0) + 1, "stream", _MADE_HERE)


def from_upstream(upstream_id: int) -> Sequence:
    """Take a durable upstream number: the outbox row's primary key, the message's offset.

    It must grow along the order of sending, per aggregate, and never be given out twice: with
    SQLite, say AUTOINCREMENT, or a deleted row's number comes back.

    Raises:
        ConfigurationError: below 1, or no number.
    """
    return Sequence(upstream_id, "upstream", _MADE_HERE)


def number_with_data(sql: sqlite3.Connection, writer: str = "log") -> int:
    """Take the next number in the transaction that saves the data; store it in the data's own row.

    The counter lives in ``landed_sequence`` in your database and only grows.

    Raises:
        ConfigurationError: no transaction is open: number and data would not be one.
    """
    if not sql.in_transaction:
        raise ConfigurationError(
            "number_with_data belongs into the transaction that saves the data: begin it first"
        )
    sql.execute(
        "CREATE TABLE IF NOT EXISTS landed_sequence "
        "(writer TEXT PRIMARY KEY, next_seq INTEGER NOT NULL)"
    )
    (number,) = sql.execute(
        "INSERT INTO landed_sequence VALUES (?, 2) "
        "ON CONFLICT (writer) DO UPDATE SET next_seq = next_seq + 1 RETURNING next_seq - 1",
        (writer,),
    ).fetchone()
    return int(number)


def from_row(row: Row, column: str = "client_seq") -> Sequence:
    """Take the number that was saved with the data (``number_with_data``), from the row itself.

    Raises:
        ConfigurationError: the column holds no number from 1 up.
    """
    return Sequence(row[column], f"row column {column}", _MADE_HERE)


class Written(NamedTuple):
    """The event is in the log, once."""

    sequence: Sequence
    version: int | None
    """None: it was there already; an earlier answer was lost."""


class SequencedWriter:
    """Write events whose numbers come from a durable source; for outbox workers and consumers.

    Sending a row again is always safe: with the same number it lands once. One writer at a time.
    """

    def __init__(self, log: Log, *, client_id: UUID) -> None:
        """``client_id`` comes from configuration and never changes."""
        if not client_id.int:
            raise ConfigurationError("the nil UUID is nobody's client id")
        self._log = for_decisions(log)
        self._client_id = ClientId(client_id)

    async def write(
        self,
        key: AggregateKey,
        type_major: int,
        value: bytes,
        *,
        sequence: Sequence,
        event_id: UUID,
        event_ms: int = 0,
        timeout_s: float | None = None,
    ) -> Written:
        """Write one event, or find that it is there already.

        Raises:
            SequenceOrderError: the number is another event's, or was passed over: rows were sent
                out of order, or by two workers. Never success.
            SequenceInFlightError, OutcomeUnknownError, NotSentError, BusyError: pause, and write the same
                row again with the same number.
        """
        if not isinstance(sequence, Sequence):
            raise TypeError(
                f"{sequence!r} is a bare number; say where it comes from: "
                "from_stream, from_upstream or from_row"
            )
        event = Event.new(
            type_major, value, client_seq=sequence.number, event_id=event_id, event_ms=event_ms
        )
        write = Write.to(key, [event], client_id=self._client_id, expected_version=ANY)
        try:
            landed = await self._log.write(write, timeout_s=timeout_s)
        except SequenceTakenError as taken:
            await self._insist_on_ours(key, sequence.number, event_id, taken)
            return Written(sequence, None)
        return Written(sequence, landed.versions[0] if landed.versions else None)

    async def _insist_on_ours(
        self, key: AggregateKey, number: int, event_id: UUID, taken: SequenceTakenError
    ) -> None:
        owners = await owners_of(
            self._log, key, client_id=self._client_id, first=number, last=number
        )
        if owners.get(number) == event_id:
            return
        is_passed = taken.highest_seq is not None and taken.highest_seq > number
        if number in owners or is_passed:
            raise SequenceOrderError(key=key, client_seq=number) from taken
        raise OutcomeUnknownError(
            "server", detail=f"sequence {number} is taken, but its event is not shown"
        ) from taken
