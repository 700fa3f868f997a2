"""A worker in a process of its own that is killed at one crash point, as a machine would be."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from landed.effects.contract import Contract, contract_of
from landed.records.session import Books, open_engine
from landed.workers.worker import Worker
from tests.handling import works
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.far_side import FarSide

_ROOT = str(Path(__file__).parents[2])
# The server that children are forked from is started once and has everything imported; it takes
# the path of imports from its environment.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.handling.crash_child"])


def killed_at(point: str, db: LedgerDb, far: FarSide, contract: Contract) -> int | None:
    """Run a worker until it kills itself at a crash point; returns its exit code, -9."""
    process = _processes.Process(
        target=_main, args=(point, db.dialect, db.url, far.port, contract.declaration())
    )
    with _import_path():
        process.start()
    process.join(30)
    if process.is_alive():
        process.kill()
        process.join(30)
        raise AssertionError(f"{point} was never passed")
    return process.exitcode


@contextmanager
def _import_path() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _ROOT if before is None else f"{_ROOT}{os.pathsep}{before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _main(point: str, dialect: str, url: str, port: int, declaration: bytes) -> None:
    asyncio.run(_work(point, dialect, url, port, contract_of(declaration)))


async def _work(point: str, dialect: str, url: str, port: int, contract: Contract) -> None:
    def note(name: str, fields: Mapping[str, object]) -> None:
        if name == "kp" and fields["point"] == point:
            os.kill(os.getpid(), signal.SIGKILL)

    db = LedgerDb(dialect, url, Books(LEDGER, DIGEST_KEY), open_engine(url))
    async with works.acme(db, FarSide(port=port), contract=contract, note=note) as acme:
        await Worker([acme.executor, acme.reconciler, acme.reaper], note=acme.desk.note).run()
