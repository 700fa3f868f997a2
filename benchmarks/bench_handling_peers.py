"""What a Python team would use instead, doing the nearest durable work: no-op jobs, drained.

Each is given its best settings that we know of. One that is not installed is not measured.
"""

# ruff: noqa: PLC0415  # a peer that is not installed is not measured, and hinders nothing

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, Protocol

THREADS: Final = 8
BATCH: Final = 100


class Peer(Protocol):
    """One of them, on a database of its own."""

    def jobs(self, count: int) -> float:
        """Jobs per second, from the first claim to the last record."""
        ...

    def close(self) -> None: ...


class Dbos:
    """One-step workflows: the workflow and its step are recorded, durably, with their results."""

    def __init__(self, url: str) -> None:
        from dbos import DBOS

        logging.getLogger("dbos").setLevel(logging.ERROR)
        DBOS.destroy(destroy_registry=True)
        DBOS(
            config={
                "name": "bench",
                "system_database_url": url.replace("postgresql+psycopg:", "postgresql:"),
                "run_admin_server": False,
                "log_level": "ERROR",
            }
        )

        @DBOS.step()
        def act(number: int) -> int:
            return number

        @DBOS.workflow()
        def one_step(number: int) -> int:
            return act(number)

        DBOS.launch()
        self._run: Callable[[int], int] = one_step
        self._destroy = DBOS.destroy

    def jobs(self, count: int) -> float:
        """The better of two ways: one workflow after the other, or from eight threads."""
        return max(self._alone(count // 2), self._threaded(count))

    def _alone(self, count: int) -> float:
        began = time.perf_counter()
        for number in range(count):
            self._run(number)
        return count / (time.perf_counter() - began)

    def _threaded(self, count: int) -> float:
        with ThreadPoolExecutor(THREADS) as pool:
            began = time.perf_counter()
            list(pool.map(self._run, range(count)))
            return count / (time.perf_counter() - began)

    def close(self) -> None:
        self._destroy()


class Procrastinate:
    """A job row is fetched, run, and marked as succeeded."""

    def __init__(self, conninfo: str) -> None:
        import procrastinate

        self._connector = procrastinate.PsycopgConnector(conninfo=conninfo, max_size=THREADS + 2)
        self._app = procrastinate.App(connector=self._connector)
        logging.getLogger("procrastinate").setLevel(logging.ERROR)

        @self._app.task(name="act")
        async def act(number: int) -> None:
            del number

        self._task = act
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    def jobs(self, count: int) -> float:
        return asyncio.run(self._drained(count))

    async def _drained(self, count: int) -> float:
        async with self._app.open_async():
            await self._task.batch_defer_async(*({"number": n} for n in range(count)))
            began = time.perf_counter()
            await self._app.run_worker_async(
                wait=False,
                concurrency=THREADS,
                listen_notify=False,
                install_signal_handlers=False,
            )
            return count / (time.perf_counter() - began)

    def close(self) -> None:
        pass


class PgQueuer:
    """A hundred job rows are fetched at once, run, and deleted, with a line in a log table."""

    def __init__(self, conninfo: dict[str, Any]) -> None:
        import asyncpg
        import pgqueuer

        logging.getLogger("pgqueuer").setLevel(logging.ERROR)
        self._connect: Any = lambda: asyncpg.connect(**conninfo)
        self._queue_of: Any = pgqueuer.PgQueuer.from_asyncpg_connection
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        connection = await self._connect()
        await self._queue_of(connection).qm.queries.install()
        await connection.close()

    def jobs(self, count: int) -> float:
        return asyncio.run(self._drained(count))

    async def _drained(self, count: int) -> float:
        from pgqueuer.domain.types import QueueExecutionMode

        connection = await self._connect()
        queue = self._queue_of(connection)

        @queue.entrypoint("act")
        async def act(job: Any) -> None:
            del job

        for start in range(0, count, 1000):
            some = min(1000, count - start)
            await queue.qm.queries.enqueue(["act"] * some, [None] * some, [0] * some)
        began = time.perf_counter()
        await queue.qm.run(
            batch_size=BATCH,
            dequeue_timeout=timedelta(seconds=1),
            mode=QueueExecutionMode.drain,
        )
        took = time.perf_counter() - began
        await connection.close()
        return count / took

    def close(self) -> None:
        pass
