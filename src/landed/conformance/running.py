"""The list of obligations, run on scratch logs of the engines there are."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from landed.clock import SystemClock
from landed.conformance.registry import Obligation
from landed.conformance.trial import Levered, Opener, Trial
from landed.limits import Limits, with_settings

if TYPE_CHECKING:
    from landed.postgres.dsn import Dsn

TIME_S: Final = 30.0
"""For one obligation; most take milliseconds."""

Room = Callable[[], AbstractContextManager[Opener]]
"""Makes room for one log, which is gone when the block ends."""


class Result(NamedTuple):
    """What came of one obligation on one engine."""

    obligation: Obligation
    engine: str
    failure: str
    """Where and how it failed; empty if it is held."""


def run_all(obligations: Sequence[Obligation], rooms: dict[str, Room]) -> Iterator[Result]:
    """Hold every engine to every obligation, each on a log of its own."""
    for obligation in obligations:
        for engine, room in rooms.items():
            with room() as opener:
                yield Result(obligation, engine, asyncio.run(_held(obligation, opener)))


async def _held(obligation: Obligation, opener: Opener) -> str:
    limits = with_settings(Limits(), [f"{name}={n}" for name, n in obligation.settings.items()])
    trial = Trial(opener, limits)
    try:
        await trial.start()
        try:
            async with asyncio.timeout(TIME_S):
                await obligation.check(trial)
        finally:
            trial.release()
            await trial.close()
    except Exception as error:  # noqa: BLE001  # whatever it is, this one is not held
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{error!r}" if str(error) else f"{type(error).__name__}: {frame.line}"
        return f"{Path(frame.filename).name}:{frame.lineno}: {what}"
    return ""


@contextmanager
def in_memory() -> Iterator[Opener]:
    """A log in memory that outlives its lane, as a file would."""
    from landed.engines.lane import Lane  # noqa: PLC0415
    from landed.engines.memory import MemoryStore  # noqa: PLC0415

    store: MemoryStore | None = None
    log_id = uuid4()

    async def open_again(limits: Limits) -> Levered:
        nonlocal store
        store = store or MemoryStore(limits, log_id=log_id)
        store.check_settings(limits)
        lane = Lane(store, limits=limits, clock=SystemClock())
        await lane.open()
        return lane

    yield open_again


@contextmanager
def on_sqlite() -> Iterator[Opener]:
    """A log in a file of a folder that is removed."""
    from landed.engines.sqlite import open_sqlite  # noqa: PLC0415

    with TemporaryDirectory(prefix="landed-conform-") as folder:

        async def open_again(limits: Limits) -> Levered:
            return await open_sqlite(Path(folder) / "log.db", limits=limits, clock=SystemClock())

        yield open_again


def on_postgres(dsn: Dsn) -> Room:
    """A log in a schema of its own in this database, which is dropped."""

    @contextmanager
    def room() -> Iterator[Opener]:
        from landed.engines.postgres import open_postgres  # noqa: PLC0415
        from landed.postgres.checks import open_connection  # noqa: PLC0415

        schema = f"landed_conform_{uuid4().hex}"
        own = dsn.with_settings({"search_path": schema})

        async def open_again(limits: Limits) -> Levered:
            return await open_postgres(own, limits=limits, clock=SystemClock())

        with open_connection(dsn) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
            try:
                yield open_again
            finally:
                with suppress(Exception):  # what failed before says more
                    connection.execute(f"DROP SCHEMA {schema} CASCADE")

    return room
