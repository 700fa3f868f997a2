"""(j) Where the time of one receipt and of one effect goes, layer by layer, on both databases.

Each layer runs by itself, on one thread, through the functions that the product calls: for one alone,
and for a hundred together, as a busy worker has them. A figure is the time of one of a hundred; beside
it stands what one alone takes. ``around`` is what the whole takes more than the sum of its layers:
threads, tasks, waiting for each other; below zero, layers overlap. Lines that begin with SQL cut the
transactions among the layers the other way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from benchmarks.bench_handling import on_disk, opened
from benchmarks.bench_handling_ours import Measured, deliveries
from benchmarks.report import Figure, Plan, Report
from sqlalchemy import Connection, Engine, event

from landed.deliveries.verify import verify
from landed.intake.admission import Admitted, Delivery, Doorkeeper
from landed.intake.asgi import acknowledged
from landed.intake.groups import Outcome, keep_all
from landed.intake.receive import Acknowledged
from landed.records import attempts, schedule
from landed.records.session import transact
from landed.workers.desk import Desk
from landed.workers.executor import Executor, Made
from landed.workers.flow import Flow
from landed.workers.handling import Handling
from landed.workers.jobs import Job, load

T = TypeVar("T")
BATCH: Final = 100
SIZES: Final = (1, BATCH)
_WHOLE: Final = "all of it"
_AROUND: Final = "around"

EFFECT: Final = {
    "claim": "lease, event read, handler found",
    "handler": "the user's code, and what it asks for",
    "record": "done-mark, effect, cause, schedule",
    "begin": "lease, effect read, attempt durable",
    "send": "task, call, time limit, meaning",
    "end": "answer, effect, schedule",
    _AROUND: "",
}
RECEIPT: Final = {
    "HTTP": "socket and uvicorn, without an app",
    "verify": "signature over the raw bytes",
    "judge": "parse, fingerprint, classify, route",
    "keep": "receipt, payload, outbox, schedule",
    "answer": "receipt and disposition",
    _AROUND: "",
}
CUT: Final = {
    "SQL: ours": "our own code, rows read",
    "SQL: SQLAlchemy": "around each statement",
    "SQL: driver": "its processor time",
    "SQL: database": "",
    "SQL: commit": "",
}
"""The transactions of either, cut the other way."""


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 2 * 2 * plan.rounds


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="landed-bench-")))
        cluster = stack.enter_context(on_disk(folder))
        urls = {
            "SQLite": f"sqlite:///{folder}/ledger.db",
            "PostgreSQL": cluster.url(cluster.create()),
        }
        for where, url in urls.items():
            with opened(url) as ledger, asyncio.Runner() as runner:
                ledger.effects(10 * BATCH)  # so that everything is warm, and costs are known
                for what, way in (
                    ("receipt", ReceiptWay(ledger)),
                    ("effect", EffectWay(ledger, runner)),
                ):
                    report.doing(f"effects: one {what} on {where}")
                    _add(plan, report, f"{what}, {where}", way)


def _add(plan: Plan, report: Report, subject: str, way: ReceiptWay | EffectWay) -> None:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    batches = 3 if plan.is_quick else 10
    for _ in range(plan.rounds):
        for size in SIZES:
            for name, micros in way.round(size, batches if size > 1 else 5 * batches).items():
                found[name, size].append(micros)
        report.step()
    for name, what in {**way.layers, _WHOLE: "", **CUT}.items():
        if not any(found[name, BATCH]):
            continue
        alone = statistics.median(found[name, 1]) if found[name, 1] else None
        report.add(
            Figure(
                bench="effects",
                subject=f"{subject}: {name}",
                rounds=tuple(found[name, BATCH]),
                unit="us",
                measured=what,
                against="" if alone is None else f"alone {alone:,.0f} us",
                is_more_better=False,
            )
        )


class Clocked:
    """Transactions, timed from outside and inside; microseconds by the names of ``CUT``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        self.spent: Counter[str] = Counter()
        self._inside = 0.0
        self._executing = 0.0

    def transact(self, work: Callable[[Connection], T], *, is_durable: bool = True) -> T:
        """Run a transaction, and add up where its time goes."""
        self._inside = self._executing = commit = 0.0
        dialect = self._engine.dialect
        do_commit = dialect.do_commit

        def _commit(connection: Any) -> None:
            nonlocal commit
            began = time.perf_counter()
            do_commit(connection)
            commit += time.perf_counter() - began

        dialect.do_commit = _commit  # type: ignore[method-assign]
        began = time.perf_counter()
        try:
            with self._watching():
                return transact(self._engine, work, is_durable=is_durable)
        finally:
            took = time.perf_counter() - began
            del dialect.do_commit
            self.spent["SQL: commit"] += commit
            self.spent["SQL: SQLAlchemy"] += self._executing - self._inside
            self.spent["SQL: ours"] += took - self._executing - commit

    @contextmanager
    def _watching(self) -> Iterator[None]:
        execute, by_hand = Connection.execute, Connection.exec_driver_sql

        def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
            def _run(*arguments: Any, **options: Any) -> Any:
                began = time.perf_counter()
                try:
                    return method(*arguments, **options)
                finally:
                    self._executing += time.perf_counter() - began

            return _run

        def _one(cursor: Any, statement: str, parameters: Any, _context: Any) -> bool:
            return self._drive(lambda: cursor.execute(statement, parameters))

        def _many(cursor: Any, statement: str, parameters: Any, _context: Any) -> bool:
            return self._drive(lambda: cursor.executemany(statement, parameters))

        Connection.execute = _timed(execute)  # type: ignore[method-assign]
        Connection.exec_driver_sql = _timed(by_hand)  # type: ignore[method-assign]
        event.listen(self._engine, "do_execute", _one)
        event.listen(self._engine, "do_executemany", _many)
        try:
            yield
        finally:
            event.remove(self._engine, "do_execute", _one)
            event.remove(self._engine, "do_executemany", _many)
            Connection.execute, Connection.exec_driver_sql = execute, by_hand  # type: ignore[method-assign]

    def _drive(self, call: Callable[[], object]) -> bool:
        """Processor time is the driver's, waiting is the database's; SQLite is inside its driver."""
        wall, cpu = time.perf_counter(), time.thread_time()
        call()
        took, worked = time.perf_counter() - wall, time.thread_time() - cpu
        worked = 0.0 if self._is_sqlite else min(worked, took)
        self._inside += took
        self.spent["SQL: driver"] += worked
        self.spent["SQL: database"] += took - worked
        return True


class Laps:
    """A clock with laps, microseconds a lap for each of a batch; the medians of many batches."""

    def __init__(self) -> None:
        self._laps: dict[str, list[float]] = defaultdict(list)

    def take(self, name: str, size: int, began: float) -> float:
        """Note a lap since ``began``; returns the time."""
        now = time.perf_counter()
        self._laps[name].append((now - began) / size * 1e6)
        return now

    def medians(self) -> dict[str, float]:
        return {name: statistics.median(laps) for name, laps in self._laps.items()}


def _whole(
    layers: Mapping[str, float], clocked: Clocked, of: int, whole: float | None
) -> dict[str, float]:
    """What was found of one round: the layers, the whole, and its transactions cut the other way."""
    cut = {name: clocked.spent[name] / of * 1e6 for name in CUT}
    sum_ = sum(layers.values())
    around = {_WHOLE: sum_} if whole is None else {_AROUND: whole - sum_, _WHOLE: whole}
    return {**layers, **around, **cut}


class EffectWay:
    """The way of effects from claimed receipts to their ends."""

    layers = EFFECT

    def __init__(self, ledger: Measured, runner: asyncio.Runner) -> None:
        self._measured = ledger
        self._ledger = ledger.ledger
        self._runner = runner
        runner.run(self._prepare())

    async def _prepare(self) -> None:
        ledger = self._ledger
        chance = random.Random()
        self._desk = Desk(
            engine=ledger.engine, books=ledger.books, registry=ledger.registry, worker="bench"
        )
        self._handling = Handling(
            ledger.engine, ledger.books, ledger.registry, owner="bench", chance=chance
        )
        flow = Flow(
            "acme",
            ledger.registry.recipients["acme"].contract,
            clock=ledger.books.clock,
            chance=chance,
            tempo=self._desk.tempo,
            note=self._desk.note,
        )
        self._executor = Executor(self._desk, "acme", flow)

    def round(self, size: int, batches: int) -> dict[str, float]:
        """So many batches of a size; microseconds an effect, by layer."""
        laps, clocked = Laps(), Clocked(self._ledger.engine)
        self._measured.keep(size * batches)
        for _ in range(batches):
            self._batch(size, laps, clocked)
        # One effect alone in a worker would mostly measure how long its lanes rest.
        around = None if size == 1 else 1e6 / self._measured.effects(10 * BATCH)
        return _whole(laps.medians(), clocked, size * batches, around)

    def _batch(self, size: int, laps: Laps, clocked: Clocked) -> None:
        handling, executor, ledger = self._handling, self._executor, self._ledger
        in_handlers = 0.0

        def _claim(conn: Connection) -> list[Job]:
            claims = schedule.claim(
                conn, ledger.books, lane="handle", owner="bench", limit=size, lease_us=30_000_000
            )
            return load(
                conn, ledger.books, ledger.registry, claims, claimed_ms=0.0, note=self._desk.note
            )

        def _timed(job: Job) -> Job:
            function = job.handler.function

            def _call(tx: Any, argument: Any) -> None:
                nonlocal in_handlers
                began = time.perf_counter()
                function(tx, argument)
                in_handlers += time.perf_counter() - began

            return job._replace(handler=dataclasses.replace(job.handler, function=_call))

        now = time.perf_counter()
        jobs = clocked.transact(_claim, is_durable=False)
        now = laps.take("claim", size, now)
        assert len(jobs) == size, "all that was kept is due"
        jobs = [_timed(job) for job in jobs]
        now = time.perf_counter()
        clocked.transact(lambda conn: handling._work(jobs, [], conn), is_durable=False)
        laps.take("handler", size, time.perf_counter() - in_handlers)
        now = laps.take("record", size, now + in_handlers)
        made = clocked.transact(lambda conn: executor._begun(conn, size, 0.0))
        now = laps.take("begin", size, now)
        answered = self._runner.run(self._sent(made))
        now = laps.take("send", size, now)
        clocked.transact(lambda conn: attempts.end_all(conn, ledger.books, answered))
        laps.take("end", size, now)

    async def _sent(self, made: list[Made]) -> list[attempts.Answered]:
        now_ms = float(self._ledger.books.clock.monotonic_ms())

        async def _one(piece: Made) -> attempts.Answered:
            begun, contract = piece.begun, piece.contract
            assert begun is not None, "nobody else is here"
            assert contract is not None
            assert piece.effect_type is not None
            answer = await self._executor._attempts._sent(
                begun, contract, piece.effect_type, started_ms=now_ms
            )
            delays = self._desk.delays(begun.effect)
            return attempts.Answered(begun.effect, contract, answer, delays, begun.attempt_no)

        return await asyncio.gather(*(_one(piece) for piece in made))


class ReceiptWay:
    """The way of deliveries from their bytes to their answers."""

    layers = RECEIPT

    def __init__(self, ledger: Measured) -> None:
        self._measured = ledger
        self._ledger = ledger.ledger
        self._keeper = Doorkeeper(
            registry=self._ledger.registry, now_us=self._ledger.books.now_us, forms={}
        )

    def round(self, size: int, batches: int) -> dict[str, float]:
        """So many groups of a size; microseconds a receipt, by layer."""
        laps, clocked = Laps(), Clocked(self._ledger.engine)
        for _ in range(batches):
            self._batch(size, laps, clocked)
        found = {"HTTP": _http_micros(200), **laps.medians()}
        around = 1e6 / self._measured.receipts(max(2, size) * 10, at_once=size) + found["HTTP"]
        return _whole(found, clocked, size * batches, around)

    def _batch(self, size: int, laps: Laps, clocked: Clocked) -> None:
        ledger = self._ledger
        some = deliveries(size)
        authentication = ledger.registry.producers["shop"].authentication
        began = time.perf_counter()
        for headers, body in some:
            verify(
                authentication,
                namespace="shop",
                headers=headers,
                body=body,
                now_us=ledger.books.now_us(),
            )
        verified = laps.take("verify", size, began)
        admitted = [
            self._keeper.admit(Delivery(headers=headers, body=body), ("shop",))
            for headers, body in some
        ]
        laps.take("judge", size, verified + (verified - began))  # it verified them once more
        group = [one for one in admitted if isinstance(one, Admitted)]
        assert len(group) == size, "all of them are signed"
        now = time.perf_counter()
        outcomes: list[Outcome] = clocked.transact(
            lambda conn: keep_all(conn, ledger.books, group, note=lambda _name, _fields: None)
        )
        now = laps.take("keep", size, now)
        for outcome in outcomes:
            assert isinstance(outcome, tuple)
            acknowledged(Acknowledged(outcome))
        laps.take("answer", size, now)


def _http_micros(requests: int) -> float:
    """Processor time of a request in uvicorn's thread, whose app reads the body and says 202."""
    times: list[float] = []

    async def _app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await receive()
        times.append(time.thread_time())
        await send(
            {"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(_app, port=0, log_level="error", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < until, "uvicorn did not start"
        time.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    connection = HTTPConnection(host, port, timeout=10)
    for headers, body in deliveries(requests):
        lines = {name: values[0] for name, values in headers.items()}
        connection.request("POST", "/shop", body=body, headers=lines)
        connection.getresponse().read()
    connection.close()
    server.should_exit = True
    thread.join(10)
    return (times[-1] - times[0]) / (len(times) - 1) * 1e6
