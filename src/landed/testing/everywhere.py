"""A crash at every point that a program's own handlers and effects pass, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from inspect import isawaitable
from typing import Final, NamedTuple

from sqlalchemy import Connection, update

from landed.facts import Note, forget
from landed.ledger import Ledger
from landed.records.session import transact
from landed.records.tables import effects, schedule
from landed.testing.checks import invariants
from landed.testing.crash import Crash

_ROUNDS: Final = 6
_FIRST: Final = 7
"""What comes before a handler, the receipt, is the same for every program and tested here."""


is_time_passing: Final[ContextVar[bool]] = ContextVar("landed_time", default=False)
"""What is written then is nobody's act, and nobody dies of it."""


class Died(NamedTuple):
    """One crash that was survived: the point, and how often it had been passed before."""

    point: str
    passes: int


Open = Callable[[Note, int], Ledger]
Step = Callable[[Ledger], Awaitable[None] | None]
"""A function of the test's own, plain or async."""


async def settle(ledger: Ledger, *, rounds: int = _ROUNDS) -> None:
    """Let the ledger's workers do everything, as if delays, leases and send deadlines were over.

    Call it only where nobody else works on the ledger: an attempt that is really open would count
    as abandoned.
    """
    for _ in range(rounds):
        token = is_time_passing.set(True)
        try:
            transact(ledger.engine, _pass_time)
        finally:
            is_time_passing.reset(token)
        if await ledger.worker().run_until_idle() == 0:
            break


def _pass_time(conn: Connection) -> None:
    conn.execute(update(schedule).values(lease_until=1, ready_at=1))
    conn.execute(update(effects).where(effects.c.state == "sending").values(send_deadline=1))


async def take(step: Step, ledger: Ledger) -> None:
    """Call a function of the test's own, and wait for it if it is async."""
    awaited = step(ledger)
    if isawaitable(awaited):
        await awaited


async def crash_everywhere(open: Open, begin: Step, check: Step) -> list[Died]:
    """Run a program once whole, then once for each point it passed with a crash there.

    Each run has a database of its own, a life that ends in the crash, and a second life that must
    bring everything to its end.

    Args:
        open: declares and prepares a ledger: ``open(note, number)``. Hand ``note`` to ``Ledger``;
            the same number is the same database, and comes twice.
        begin: what sets the work off, for example ``ledger.receive``.
        check: what must hold in the end, with ``assert``; also that the recipient acted once.

    Returns:
        The crashes that were survived, in the order in which the points are passed.

    Raises:
        AssertionError: naming the first crash after which something did not hold.
    """
    passed: list[str] = []

    def _record(name: str, fields: Mapping[str, object]) -> None:
        if name == "kp" and _number(str(fields["point"])) >= _FIRST:
            passed.append(str(fields["point"]))

    await _whole_life(open(_record, 0), begin, check)
    died = [Died(point, passed[:at].count(point)) for at, point in enumerate(passed)]
    survived = []
    for number, crash in enumerate(died, start=1):
        if await _cut_short(open(_at(crash), number), begin):
            try:
                await _whole_life(open(forget, number), None, check)
            except AssertionError as broken:
                raise AssertionError(
                    f"after a crash at {crash.point}, passed {crash.passes} times before: {broken}"
                ) from broken
            survived.append(crash)
    return survived


async def _whole_life(ledger: Ledger, begin: Step | None, check: Step) -> None:
    try:
        if begin is not None:
            await take(begin, ledger)
        await settle(ledger)
        invariants(ledger)
        await take(check, ledger)
    finally:
        await ledger.aclose()


async def _cut_short(ledger: Ledger, begin: Step) -> bool:
    """Live until the crash; False if this time the point was not passed so often."""
    try:
        await take(begin, ledger)
        await settle(ledger)
    except BaseException as e:
        if not _is_crash(e):
            raise
        return True
    else:
        return False
    finally:
        await ledger.aclose()


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_crash, error.exceptions))
    return isinstance(error, Crash)


def _at(crash: Died) -> Note:
    left = crash.passes

    def _note(name: str, fields: Mapping[str, object]) -> None:
        nonlocal left
        if name == "kp" and fields["point"] == crash.point:
            left -= 1
            if left < 0:
                raise Crash(crash.point)

    return _note


def _number(point: str) -> int:
    return int(point.removeprefix("KP-"))
