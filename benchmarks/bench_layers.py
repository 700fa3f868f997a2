"""(i) Where the time of one write goes: the processor time of each layer it passes, one by one.

The same writes go through each layer alone, in groups of 1,024 and, over the wire, 16 frames a
read, as a busy server sees them. Each figure is the time of one write on one thread; the lowest of
many groups in a round, since whatever else the machine does can only add to it. What a layer
cannot be measured without is measured as well, and taken off.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from benchmarks.report import Figure, Plan, Report
from benchmarks.workload import Aggregates, calm_collector

from landed.clock import SystemClock
from landed.engines.ask import ask_all
from landed.engines.lane import Lane
from landed.engines.port import Done, LogIdentity, Staged
from landed.engines.sqlite import SqliteStore
from landed.engines.sqlite.append import Transaction
from landed.limits import Limits
from landed.log import Answer, Landed, Request, Write
from landed.log.judge import judge_write
from landed.server.line import Line
from landed.server.shared import Shared
from landed.wire import codec
from landed.wire.connection import NEED_DATA, ClientConnection, Received, ServerConnection
from landed.wire.frames import HEADER_SIZE
from landed.wire.messages import Operation

AGGREGATES: Final = 100_000
GROUP: Final = 1024
PER_READ: Final = 16
GROUPS: Final = 64
"""In one round: heads are written in sweeps, and a round has to hold more than one."""

LAYERS: Final = (
    ("socket", "one receive and one send for 16 frames, over the loopback"),
    ("socket, alone", "the same for each frame; not in the sum"),
    ("frame", "bytes copied out of the read buffer, headers looked at, bodies cut out"),
    ("decode", "a body to a value, checked to be canonical"),
    ("dispatch", "the order of the connection: requests started, answers collected"),
    ("lane", "admission, staging, publishing, answering, without the judge"),
    ("judge", "the guard and the sequence, against a warm tail"),
    ("rows", "laying out the rows of entries and heads"),
    ("SQL: entries", "appended, with anchors and dead ranges"),
    ("SQL: heads", "written late, in the order of their rows"),
    ("flush", "COMMIT: processor time only"),
    ("reply", "an answer to a whole frame"),
)


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 1 + plan.rounds


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    found: dict[str, list[float]] = {name: [] for name, _ in LAYERS}
    with asyncio.Runner() as runner, calm_collector():
        report.doing("layers: warming aggregates")
        count = 8_192 if plan.is_quick else AGGREGATES
        way = runner.run(_opened(plan, count))
        report.step()
        for _ in range(plan.rounds):
            report.doing("layers: one by one")
            for name, micros in runner.run(way.round(8 if plan.is_quick else GROUPS)).items():
                found[name].append(micros)
            report.step()
        runner.run(way.lane.close())
    for name, what in LAYERS:
        report.add(_figure(name, found[name], what))
    del found["socket, alone"]
    totals = [sum(layer[at] for layer in found.values()) for at in range(plan.rounds)]
    report.add(_figure("all of it", totals, ""))


def _figure(name: str, rounds: list[float], what: str) -> Figure:
    return Figure(
        bench="layers",
        subject=name,
        rounds=tuple(rounds),
        unit="us cpu",
        measured=what,
        is_more_better=False,
    )


class KeptStore:
    """A store that only keeps the groups it is given, in front of the one that is measured later."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.groups: deque[list[Staged]] = deque()

    @property
    def identity(self) -> LogIdentity:
        return self.store.identity

    def commit(self, group: list[Staged]) -> None:
        self.groups.append(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Agreeing:
    """An engine that answers every write at once."""

    identity = None
    position = 0
    is_stopped = False

    def submit(self, _request: Request, done: Done, /) -> None:
        done(Landed((7,)))


async def _opened(plan: Plan, count: int) -> Way:
    store = SqliteStore(plan.folder / "layers.sqlite", limits=Limits())
    kept = KeptStore(store)
    lane = Lane(kept, limits=Limits(), clock=SystemClock())  # type: ignore[arg-type]
    await lane.open()
    way = Way(lane, kept, Aggregates(count))
    for at in range(0, count, GROUP):
        ends = range(at, min(at + GROUP, count))
        _check(await ask_all(lane, [way.aggregates.write(one) for one in ends]))
        store.commit(kept.groups.popleft())
    return way


def _check(answers: list[Answer]) -> None:
    if not all(isinstance(answer, Landed) for answer in answers):
        raise SystemExit(f"refused: {answers[0]!r}")


def _timed(work: Callable[[], Any]) -> float:
    """Processor time of this thread, in microseconds a write of a group."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) / GROUP * 1e6


class Way:
    """The way of a write, layer by layer."""

    def __init__(self, lane: Lane, kept: KeptStore, aggregates: Aggregates) -> None:
        self.lane = lane
        self._kept = kept
        self.aggregates = aggregates

    async def round(self, groups: int) -> dict[str, float]:
        """The lowest of so many groups; of the late heads the mean, since few groups pay them."""
        lowest: dict[str, float] = {}
        heads = 0.0
        for _ in range(groups):
            writes = self.aggregates.some(GROUP)
            found = self._wire(writes) | await self._engine(writes)
            heads += found.pop("SQL: heads")
            for name, micros in found.items():
                lowest[name] = min(micros, lowest.get(name, micros))
        # What a layer could not be measured without is taken off.
        lowest["frame"] -= lowest["decode"]
        lowest["dispatch"] -= lowest["frame"] + lowest["decode"] + lowest["reply"]
        lowest["lane"] -= lowest["judge"]
        return lowest | {"SQL: heads": heads / groups}

    def _wire(self, writes: list[Write]) -> dict[str, float]:
        client = ClientConnection(Limits())
        frames = [client.request(write, bytes(16)) for write in writes]
        reads = [b"".join(frames[at : at + PER_READ]) for at in range(0, GROUP, PER_READ)]
        bodies = [frame[HEADER_SIZE:] for frame in frames]
        server = ServerConnection(Limits())
        taken: list[Received] = []
        answers: list[bytes] = []

        def take() -> None:
            for read in reads:
                server.receive(read)
                while (received := server.next_request()) is not NEED_DATA:
                    assert isinstance(received, Received)
                    taken.append(received)

        landed = Landed((7,))
        decode = _timed(lambda: [codec.decode_request(Operation.WRITE, body) for body in bodies])
        frame = _timed(take)
        reply = _timed(lambda: answers.extend([server.answer(one, landed) for one in taken]))
        line = _timed(lambda: _through_a_line(reads))
        return {
            "socket": _through_a_socket(reads, answers),
            "socket, alone": _through_a_socket(frames, answers),
            "frame": frame,
            "decode": decode,
            "dispatch": line,
            "reply": reply,
        }

    async def _engine(self, writes: list[Write]) -> dict[str, float]:
        tail, now_ms = self.lane._tail, 2**41
        judge = _timed(
            lambda: [judge_write(one, tail, now_ms=now_ms, seq_jump_max=2**32) for one in writes]
        )
        began = time.thread_time()
        answers = await ask_all(self.lane, writes)
        lane = (time.thread_time() - began) / GROUP * 1e6
        _check(answers)
        return {"judge": judge, "lane": lane} | self._store(self._kept.groups.popleft())

    def _store(self, group: list[Staged]) -> dict[str, float]:
        """What ``Appender.append`` does, in its parts."""
        appender = self._kept.store._appender
        assert appender is not None
        times = [time.thread_time()]
        draft = appender._draft(group)
        times.append(time.thread_time())
        with Transaction(appender._connection):
            appender._write(draft)
            times.append(time.thread_time())
            payment = appender._owed.slice(len(group), appender._position)
            if payment is not None:
                appender._write_heads(payment)
            times.append(time.thread_time())
        times.append(time.thread_time())
        appender._keep(group, draft, payment)
        names = ("rows", "SQL: entries", "SQL: heads", "flush")
        pairs = zip(names, times, times[1:], strict=False)
        return {name: (end - begin) / GROUP * 1e6 for name, begin, end in pairs}


def _through_a_line(reads: list[bytes]) -> None:
    """Requests taken, started and answered in the order of one connection."""
    engine: Any = Agreeing()
    shared = Shared(
        engine,
        Limits(),
        lambda _name, _fields: None,
        asyncio.get_running_loop(),
        on_first=lambda: None,
        on_empty=lambda: None,
        on_engine_stopped=lambda: None,
    )
    line = Line(shared, lambda: None)
    for read in reads:
        line.receive(memoryview(read))
        line.advance()
        b"".join(line.take_answers())


def _through_a_socket(reads: list[bytes], answers: list[bytes]) -> float:
    """The server's part of it: receive what a client sent, send what it will receive."""
    share = len(answers) // len(reads)
    back = [b"".join(answers[at : at + share]) for at in range(0, len(answers), share)]
    buffer = memoryview(bytearray(256 * 1024))
    spent = 0.0
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with client, server:
            for read, answer in zip(reads, back, strict=True):
                client.sendall(read)
                began = time.thread_time()
                server.recv_into(buffer)
                server.send(answer)
                spent += time.thread_time() - began
                client.recv(256 * 1024)
    return spent / GROUP * 1e6
