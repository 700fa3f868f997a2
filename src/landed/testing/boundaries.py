"""A crash at every boundary of a program's own code: before and after each commit, and at each await.

What is in the database changes at commits, and what is outside changes while the program's own code
runs or waits. So a program that survives a crash at each of these survives one anywhere.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

import landed
from landed.facts import forget
from landed.ledger import Ledger
from landed.records.invariants import check as broken_invariants
from landed.testing.crash import Crash
from landed.testing.everywhere import Open, Step, is_time_passing, settle, take

_WRITES: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+\"?(\w+)", re.IGNORECASE)
_NOT_THE_USERS: Final = tuple(
    str(Path(folder).resolve())
    for folder in (
        Path(landed.__file__).parent,
        Path(sqlalchemy.__file__).parent.parent,
        Path(threading.__file__).parent,
    )
)
_ENDS_WITHIN_S: Final = 10.0
"""How long what is left of a life may take to notice that it is over."""

_life: contextvars.ContextVar[_Life | None] = contextvars.ContextVar("landed_life", default=None)
_lives: Final[dict[int, _Life]] = {}
"""By the dialect of a ledger's engine: what commits there, on whatever thread, is of this life."""
_handler: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "landed_handler", default=None
)


class Boundary(NamedTuple):
    """One place where a program can die. ``number`` counts from 1, in the order of passing."""

    number: int
    what: str
    """``before the commit of bills, effects``, for example, or ``awaiting in send``."""
    where: str
    """The line of the program's own code; empty where none of it was running."""

    def __str__(self) -> str:
        return f"{self.what}, {self.where}" if self.where else self.what


class BoundaryError(AssertionError):
    """The first crash that a program does not survive: where, what broke, and what was seen."""

    def __init__(self, boundary: Boundary | None, of: int, invariant: str, seen: str) -> None:
        what = "without any crash" if boundary is None else str(boundary)
        count = "" if boundary is None else f" (boundary {boundary.number} of {of})"
        super().__init__(
            f"a crash breaks this program\n  boundary:  {what}{count}\n"
            f"  invariant: {invariant}\n  seen:      {seen}"
            if boundary is not None
            else f"this program is broken {what}\n  invariant: {invariant}\n  seen:      {seen}"
        )
        self.boundary = boundary
        self.invariant = invariant
        self.seen = seen


def _keep_quiet_about_crashes() -> None:
    """A task of a life that ended dies of the crash, and nobody is left to ask it: that is no error.

    It stays so for this loop: tasks are collected when they please, also after the last life.
    """
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Crash):
            return
        if usual is None:
            loop.default_exception_handler(context)
        else:
            usual(loop, context)

    loop.set_exception_handler(tell)


async def crash_at_every_boundary(open: Open, begin: Step, check: Step) -> list[Boundary]:
    """Run a program once whole, then once for each boundary it passed with a crash there.

    Boundaries are: before and after each commit that changed anything, whoever committed it; and
    each await that suspends a sender, a look-up, a seal, a sink, or ``begin``. Each run has a
    database of its own, a life that ends in the crash, and a second life that must bring everything
    to its end. After every run the invariants of the ledger must hold, no handler may have opened a
    connection, and ``check`` must pass.

    Args:
        open: declares and prepares a ledger: ``open(note, number)``; the same number is the same
            database, and comes twice.
        begin: what sets the work off, for example ``ledger.receive``. It is repeated after a crash
            that it did not return before, as whoever was not answered repeats.
        check: what must hold in the end, with ``assert``; above all what the recipient did.

    Returns:
        The boundaries at which a crash was survived, in order.

    Raises:
        BoundaryError: the first after which something did not hold.
    """
    _keep_quiet_about_crashes()
    with _watched():
        whole = _Life(dies_at=None)
        ledger = open(forget, 0)
        await _run(ledger, whole, begin)
        passed = whole.passed
        await _examine(ledger, whole, None, len(passed), check)
        survived = []
        for boundary in passed:
            life = _Life(dies_at=boundary.number)
            first = open(forget, boundary.number)
            await _run(first, life, begin)
            if not life.is_dead:  # this time it was not passed
                await first.aclose()
                continue
            second = open(forget, boundary.number)
            again = _Life(dies_at=None)
            await _run(second, again, None if life.has_begun else begin)
            await _examine(second, again, boundary, len(passed), check)
            survived.append(boundary)
        return survived


# --- A life -------------------------------------------------------------------------------------


class _Life:
    """One run of the program, until its end or its crash. Once dead, nothing of it lasts."""

    def __init__(self, *, dies_at: int | None) -> None:
        self.passed: list[Boundary] = []
        self.sent_within: list[str] = []
        self.has_begun = False
        self.is_dead = False
        self.died = asyncio.Event()
        self._dies_at = dies_at
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._written: dict[int, set[str]] = {}
        self._changes: dict[int, tuple[object, int | None]] = {}

    def passes(self, what: str, where: str) -> None:
        """Pass a boundary, or die there.

        Raises:
            Crash: here, or because it is dead already.
        """
        with self._lock:
            if self.is_dead:
                raise Crash(what)
            self.passed.append(Boundary(len(self.passed) + 1, what, where))
            if len(self.passed) != self._dies_at:
                return
            self.is_dead = True
        self._loop.call_soon_threadsafe(self.died.set)
        raise Crash(what)

    def wrote(self, connection: object, table: str) -> None:
        self._written.setdefault(id(connection), set()).add(table)

    def written(self, connection: object) -> list[str]:
        """What the transaction that ends here wrote to; it is forgotten."""
        tables = self._written.pop(id(connection), set())
        return sorted(table.removeprefix("landed_") for table in tables)

    def has_changed(self, connection: Any) -> bool:
        """Whether a transaction changed a row; who looks for work and finds none does not."""
        if hasattr(connection, "pgconn"):  # psycopg
            asked = connection.execute("SELECT pg_current_xact_id_if_assigned()")
            return asked.fetchone()[0] is not None
        changes = getattr(connection, "total_changes", None)  # sqlite3
        seen = (connection, changes)
        has_changed = changes is None or self._changes.get(id(connection)) != seen
        self._changes[id(connection)] = seen
        return has_changed


async def _run(ledger: Ledger, life: _Life, begin: Step | None) -> None:
    """Live until everything is done, or until the crash; then let nothing of it go on."""

    async def _program() -> None:
        if begin is not None:
            await _stepping(partial(take, begin), "begin")(ledger)
            life.has_begun = True
        await settle(ledger)

    _instrument(ledger)
    _lives.clear()
    _lives[id(ledger.engine.dialect)] = life
    others = asyncio.all_tasks()
    token = _life.set(life)
    try:
        program = asyncio.ensure_future(_program())
    finally:
        _life.reset(token)
    died = asyncio.ensure_future(life.died.wait())
    await asyncio.wait({program, died}, return_when="FIRST_COMPLETED")
    if life.is_dead:
        left = asyncio.all_tasks() - others | {program, died}
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_ENDS_WITHIN_S)
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # the crash, in whatever it met
        with suppress(Crash, asyncio.CancelledError):
            await ledger.aclose()
        return
    died.cancel()
    try:
        await program
    except BaseException:
        await ledger.aclose()
        raise


async def _examine(
    ledger: Ledger, life: _Life, boundary: Boundary | None, of: int, check: Step
) -> None:
    """Ask whether everything holds after a run, and close the ledger."""
    try:
        if life.sent_within:
            raise BoundaryError(
                boundary, of, "a handler sends nothing (HN-1)", "; ".join(life.sent_within)
            )
        with ledger.engine.connect() as conn:
            broken = broken_invariants(conn, ledger.books)
        if broken:
            first = broken[0]
            more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
            seen = f"{first.detail} ({first.subject}){more}"
            raise BoundaryError(boundary, of, first.rule, seen)
        try:
            await take(check, ledger)
        except BoundaryError:
            raise
        except AssertionError as failed:
            seen = str(failed).partition("\n")[0] or "an assertion without a message failed"
            raise BoundaryError(boundary, of, "your check", seen) from failed
        except Exception as error:
            error.add_note(f"after a crash at: {boundary}" if boundary else "without any crash")
            raise
    finally:
        await ledger.aclose()


# --- Where it can die ---------------------------------------------------------------------------


def _instrument(ledger: Ledger) -> None:
    """Have a ledger's own code pass boundaries at its awaits, and its handlers watched for sends."""
    registry = ledger.registry
    for effect_type in registry.effect_types.values():
        for name in ("sender", "looker", "sealer"):
            function = getattr(effect_type, name)
            if function is not None:
                setattr(effect_type, name, _stepping(function, function.__name__))
        for name, function in effect_type.settled_handlers.items():
            effect_type.settled_handlers[name] = _as_handler(function, name)
    for name, handler in registry.handlers.items():
        function = _as_handler(handler.function, name)
        registry.handlers[name] = replace(handler, function=function)
    for name, destination in registry.destinations.items():
        registry.destinations[name] = replace(destination, sink=_Sink(destination.sink))


class _Sink:
    """A sink whose hand-on passes boundaries."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.hand_on = _stepping(sink.hand_on, "hand_on")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


def _as_handler(function: Callable[..., object], name: str) -> Callable[..., object]:
    @wraps(function)
    def _call(*arguments: Any) -> object:
        token = _handler.set(name)
        try:
            return function(*arguments)
        finally:
            _handler.reset(token)

    return _call


def _stepping(function: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Any]:
    """Have an async function pass a boundary whenever it is suspended."""

    @wraps(function)
    async def _call(*arguments: Any) -> Any:
        life = _life.get()
        awaited = function(*arguments)
        return await (awaited if life is None else _Steps(awaited, life, name))

    return _call


class _Steps:
    """Runs an awaitable step by step, as the event loop does, and can die between two of them.

    A death unwinds what was under way, so that nothing stays open. Nothing lasts of what it does then.
    """

    def __init__(self, awaited: Awaitable[Any], life: _Life, name: str) -> None:
        self._awaited, self._life, self._name = awaited, life, name

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaited.__await__()
        send: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            try:
                waits_for = send(value)
            except StopIteration as end:
                return end.value
            try:
                if not self._life.is_dead:
                    self._life.passes(f"awaiting in {self._name}", self._line())
                value, send = (yield waits_for), steps.send
            except BaseException as thrown:  # noqa: BLE001  # the program's own to handle
                value, send = thrown, steps.throw

    def _line(self) -> str:
        frame = self._awaited.cr_frame if isinstance(self._awaited, CoroutineType) else None
        return "" if frame is None else _place(frame)


@contextmanager
def _watched() -> Iterator[None]:
    """See every commit, every table written, and every connection opened within the block."""
    commit: Callable[..., None] = DefaultDialect.do_commit
    connect = socket.socket.connect

    def _commit(self: DefaultDialect, dbapi_connection: Any) -> None:
        life = _life_on(self)
        raw = getattr(dbapi_connection, "dbapi_connection", dbapi_connection)
        tables = [] if life is None else life.written(raw)
        if life is None or not tables or not life.has_changed(raw):
            commit(self, dbapi_connection)
            return
        what, where = f"the commit of {', '.join(tables)}", _users_line()
        life.passes(f"before {what}", where)
        commit(self, dbapi_connection)
        life.passes(f"after {what}", where)

    def _wrote(conn: Any, _cursor: object, statement: str, *_rest: object) -> None:
        life = _life_on(conn.dialect)
        found = None if life is None else _WRITES.match(statement)
        if life is not None and found is not None:
            life.wrote(conn.connection.dbapi_connection, found.group(1))

    def _connect(self: socket.socket, address: Any) -> None:
        life, handler = _life.get(), _handler.get()
        is_network = self.family in (socket.AF_INET, socket.AF_INET6)
        if life is not None and life.is_dead:
            raise Crash("connecting")
        if life is not None and handler is not None and is_network:
            told = f"handler {handler} opened a connection to {address} within its transaction"
            life.sent_within.append(told)
            raise PermissionError(told)
        connect(self, address)

    def _rolled_back(conn: Any) -> None:
        life = _life_on(conn.dialect)
        if life is not None:
            life.written(conn.connection.dbapi_connection)

    event.listen(Engine, "after_cursor_execute", _wrote)
    event.listen(Engine, "rollback", _rolled_back)
    try:
        with (
            patch.object(DefaultDialect, "do_commit", _commit),
            patch.object(socket.socket, "connect", _connect),
        ):
            yield
    finally:
        event.remove(Engine, "after_cursor_execute", _wrote)
        event.remove(Engine, "rollback", _rolled_back)
        _lives.clear()


def _life_on(dialect: object) -> _Life | None:
    """Whose a commit is: of the life that runs here, or of the one whose database it is."""
    return None if is_time_passing.get() else _life.get() or _lives.get(id(dialect))


def _users_line() -> str:
    """Where in the program's own code we are; empty if only ours is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            return "" if frame.f_code.co_filename.startswith("<") else _place(frame)
        frame = frame.f_back
    return ""


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
