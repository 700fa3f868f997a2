"""The billing service in a process of its own, killed at one crash point as a machine would be."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from landed.records.session import Books, open_engine
from landed.testing import FaultyRecipient, crash_at
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.crash_child import _import_path, _processes
from tests.handling.stories.billing import billing

# Children are forked from one server; let it have everything imported that they need.
_processes.set_forkserver_preload(["tests.handling.crash_child", "tests.handling.stories.mortal"])


def killed(point: str, db: LedgerDb, bank: FaultyRecipient, bus: Path) -> bool:
    """Receive one invoice and work, until SIGKILL at the point; says whether it was acknowledged."""
    reader, writer = _processes.Pipe(duplex=False)
    process = _processes.Process(
        target=_main, args=(point, db.dialect, db.url, bank.port, str(bus), writer)
    )
    with _import_path():
        process.start()
    writer.close()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode == -9, f"{point} was never passed"
    try:
        return reader.recv() == 202
    except EOFError:
        return False
    finally:
        reader.close()


def _main(point: str, dialect: str, url: str, port: int, bus: str, told: Connection) -> None:
    asyncio.run(_live(point, dialect, url, port, Path(bus), told))


async def _live(point: str, dialect: str, url: str, port: int, bus: Path, told: Connection) -> None:
    db = LedgerDb(dialect, url, Books(LEDGER, DIGEST_KEY), open_engine(url))
    bank = FaultyRecipient()
    bank.port = port  # it lives in the other process
    async with billing(db, bank, bus, note=crash_at(point)) as service:
        answer = await service.invoice()
        told.send(answer.status_code)
        await service.work()
