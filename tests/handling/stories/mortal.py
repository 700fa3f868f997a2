"""The billing service in a process of its own, killed at one crash point as a machine would be."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from landed.records.session import Books, open_engine
from landed.testing import FaultyRecipient, crash_at
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.crash_child import _import_path, _processes
from tests.handling.stories.billing import billing

# Children are forked from one server; let it have everything imported that they need.
_processes.set_forkserver_preload(["tests.handling.crash_child", "tests.handling.stories.mortal"])


def killed(
    point: str,
    db: LedgerDb,
    bank: FaultyRecipient,
    bus: Path,
    *,
    invoices: int = 1,
    passes: int = 0,
) -> bool:
    """Receive invoices and work, until SIGKILL at the point; says whether one was acknowledged.

    ``passes``: how often the point is passed unharmed first.
    """
    crash_point = (point, passes)
    reader, writer = _processes.Pipe(duplex=False)
    process = _processes.Process(
        target=_main, args=(crash_point, db.dialect, db.url, bank.port, str(bus), invoices, writer)
    )
    with _import_path():
        process.start()
    writer.close()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join(30)
    assert process.exitcode == -9, f"{point} was never passed"
    try:
        return reader.poll(30) and reader.recv() == 202
    except EOFError:
        return False
    finally:
        reader.close()


def _main(
    crash: tuple[str, int], dialect: str, url: str, port: int, bus: str, n: int, told: Connection
) -> None:
    db = LedgerDb(dialect, url, Books(LEDGER, DIGEST_KEY), open_engine(url))
    asyncio.run(_live(crash, db, port, Path(bus), n, told))


async def _live(
    crash: tuple[str, int], db: LedgerDb, port: int, bus: Path, invoices: int, told: Connection
) -> None:
    point, passes = crash
    bank = FaultyRecipient()
    bank.port = port  # it lives in the other process
    async with billing(db, bank, bus, note=crash_at(point, passes=passes)) as service:
        for number in range(invoices):
            answer = await service.invoice(f"e{number + 1}", id=f"{481 + number}")
            told.send(answer.status_code)
        await service.work()


@contextmanager
def asleep(
    point: str, db: LedgerDb, bank: FaultyRecipient, bus: Path, *, terms: int | None = None
) -> Iterator[None]:
    """A process that sleeps (SIGSTOP) at a point while the block runs, then wakes and works on.

    It receives an invoice, or with ``terms`` that version of the terms. Its end is waited for.
    """
    process = _processes.Process(
        target=_sleeper, args=(point, db.dialect, db.url, bank.port, str(bus), terms)
    )
    with _import_path():
        process.start()
    try:
        seen = psutil.Process(process.pid)
        end = time.monotonic() + 60
        while seen.status() != psutil.STATUS_STOPPED:
            assert process.is_alive(), f"{point} was never passed"
            assert time.monotonic() < end, f"{point} was never passed"
            time.sleep(0.01)
        yield
        seen.send_signal(signal.SIGCONT)
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join(30)


def _sleeper(point: str, dialect: str, url: str, port: int, bus: str, terms: int | None) -> None:
    has_slept = False

    def note(name: str, fields: Mapping[str, object]) -> None:
        nonlocal has_slept
        if name == "kp" and fields["point"] == point and not has_slept:
            has_slept = True
            os.kill(os.getpid(), signal.SIGSTOP)

    async def live() -> None:
        db = LedgerDb(dialect, url, Books(LEDGER, DIGEST_KEY), open_engine(url))
        bank = FaultyRecipient()
        bank.port = port
        async with billing(db, bank, Path(bus), note=note) as service:
            if terms is None:
                await service.invoice()
            else:
                await service.change_terms(f"terms {terms}", version=terms)
            await service.work()

    asyncio.run(live())
