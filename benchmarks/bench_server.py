"""(b) The server against a decode-encode echo on the same loop, with the same bytes.

Each round measures the echo and the server one after another, so that a busy machine slows both.
Client and server share the machine's cores, as in the figures that the targets come from. Every
write is durable before its answer. Each request is one event of 200 bytes to one of 16 warm
aggregates a connection, with an enforced sequence.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec
import psutil
from benchmarks.report import Figure, Plan, Report, interleaved, micros, ratios
from benchmarks.workload import PAYLOAD

from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Event, Write
from landed.wire.connection import ClientConnection

HEADER = struct.Struct("<IIIIB")
FIRST_SEQ = 2**20
"""So that every sequence takes the same number of bytes and can be patched into a template."""
AGGREGATES_PER_CONNECTION = 16


class Frames:
    """Write requests of one connection: a template, patched with key and sequence."""

    def __init__(self, number: int, connection: int) -> None:
        name = (number << 64) | (connection << 32)
        first, second = self._frame(name, FIRST_SEQ), self._frame(name + 1, FIRST_SEQ)
        self._key_at = next(
            at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]
        )
        self._seq_at = first.index(b"\xce" + FIRST_SEQ.to_bytes(4)) + 1
        self._frame_bytes = bytearray(first)
        self._made = 0

    @staticmethod
    def _frame(name: int, seq: int) -> bytes:
        key = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=name))
        write = Write.to(
            key,
            [Event.new(1, PAYLOAD, client_seq=seq, event_id=UUID(int=5))],
            client_id=UUID(int=7),
            expected_version=None,
        )
        return ClientConnection(Limits()).request(write, bytes(16))

    def next(self) -> bytes:
        frame = self._frame_bytes
        frame[self._key_at] = self._made % AGGREGATES_PER_CONNECTION
        seq = FIRST_SEQ + self._made
        frame[self._seq_at : self._seq_at + 4] = seq.to_bytes(4)
        self._made += 1
        return bytes(frame)


class Load(asyncio.BufferedProtocol):
    """One connection that keeps ``depth`` requests outstanding."""

    def __init__(self, frames: Frames, depth: int, totals: list[int]) -> None:
        self._frames = frames
        self._depth = depth
        self._totals = totals
        self._buffer = bytearray(65_536)
        self._kept = 0
        self._sent_at = 0.0
        self.latencies: list[float] = []
        """Seconds from each request to its answer, where one is outstanding at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def start(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(b"".join([self._frames.next() for _ in range(self._depth)]))

    def stop(self) -> None:
        self._transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._kept :]

    def buffer_updated(self, nbytes: int) -> None:
        end, at, answers = self._kept + nbytes, 0, 0
        while end - at >= 17:
            _version, kind, length, _plain, _compression = HEADER.unpack_from(self._buffer, at)
            if end - at < 17 + length:
                break
            if kind != 3:
                raise SystemExit(f"refused: {bytes(self._buffer[at : at + 17 + length])!r}")
            at += 17 + length
            answers += 1
        self._buffer[: end - at] = self._buffer[at:end]
        self._kept = end - at
        if answers:
            self._totals[0] += answers
            if self._depth == 1:
                now = time.perf_counter()
                self.latencies.append(now - self._sent_at)
                self._sent_at = now
            self._transport.write(b"".join([self._frames.next() for _ in range(answers)]))


class Rate(NamedTuple):
    requests_per_s: float
    cpu_us: float
    """Processor time of the server for one request, all its threads."""
    latencies: list[float]
    """Of each request, seconds; empty where several are outstanding."""


async def drive(
    process: Process, connections: int, outstanding: int, *, seconds: float, number: int
) -> Rate:
    """Keep a server busy and measure it once it is warm. ``number`` makes the keys new ones."""
    server = psutil.Process(process.pid)
    totals = [0]
    loop = asyncio.get_running_loop()
    loads = []
    for at in range(connections):
        frames = Frames(number, at)
        _, load = await loop.create_connection(
            lambda frames=frames: Load(frames, outstanding, totals), "127.0.0.1", process.port
        )
        loads.append(load)
    for load in loads:
        load.start()
    while totals[0] < 2 * connections * AGGREGATES_PER_CONNECTION:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # until every aggregate is warm
    for load in loads:
        load.latencies.clear()
    began, before, spent = time.perf_counter(), totals[0], server.cpu_times()
    await asyncio.sleep(seconds)
    while totals[0] - before < 4 * connections * outstanding:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # a whole number of commits, or nearly so, however slow
    answered, took, spends = totals[0] - before, time.perf_counter() - began, server.cpu_times()
    cpu_s = spends.user + spends.system - spent.user - spent.system
    for load in loads:
        load.stop()
    latencies = [seconds for load in loads for seconds in load.latencies]
    return Rate(answered / took, cpu_s / max(1, answered) * 1e6, latencies)


class Once(Frames):
    """One request, and no other."""

    def next(self) -> bytes:
        return b"" if self._made else super().next()


async def storm(process: Process, *, number: int) -> float:
    """Seconds until everybody who connected at once has an answer."""
    totals = [0]
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    opened = await asyncio.gather(
        *[
            loop.create_connection(
                lambda at=at: Load(Once(number, at), 1, totals), "127.0.0.1", process.port
            )
            for at in range(STORM)
        ]
    )
    for _, load in opened:
        load.start()
    while totals[0] < STORM:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    took = time.perf_counter() - began
    for _, load in opened:
        load.stop()
    return took


# --- the echo -------------------------------------------------------------------------------------


class Echo(asyncio.BufferedProtocol):
    """Decode every request whole, encode an answer, and nothing between."""

    _decode = msgspec.msgpack.Decoder().decode
    _encode = msgspec.msgpack.Encoder().encode
    _shared = memoryview(bytearray(256 * 1024))

    def __init__(self) -> None:
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._shared

    def buffer_updated(self, nbytes: int) -> None:
        data = self._data
        data += self._shared[:nbytes]
        at, end, answers = 0, len(data), []
        while end - at >= 17:
            _version, _kind, length, _plain, _compression = HEADER.unpack_from(data, at)
            if end - at < 17 + length:
                break
            request = self._decode(memoryview(data)[at + 17 : at + 17 + length])
            body = self._encode((request[0], 1))
            answers.append(HEADER.pack(3, 3, len(body), len(body), 0) + body)
            at += 17 + length
        del data[:at]
        self._transport.write(b"".join(answers))


async def echo() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=4096)
    print(f"echo: listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


# --- rounds ---------------------------------------------------------------------------------------


class Shape(NamedTuple):
    connections: int
    outstanding: int
    target: float | None


SHAPES: Final = (
    Shape(1, 1, None),
    Shape(64, 1, 0.40),
    Shape(64, 16, 0.20),
    Shape(512, 1, None),
    Shape(512, 16, None),
)


STORM: Final = 512
"""Connections opened at once."""
LOOPS: Final = ("uvloop", "asyncio") if importlib.util.find_spec("uvloop") else ("asyncio",)
"""Both where both are installed, side by side; the load comes from the first of them."""


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return plan.rounds * len(SHAPES) + len(LOOPS)


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    seconds = 0.4 if plan.is_quick else 1.0
    numbers = iter(range(1, 1_000_000))
    with ExitStack() as stack:
        processes = {}
        for loop in LOOPS:
            engine = f"sqlite:///{plan.folder}/server-{loop}.sqlite"
            serve = [sys.executable, "-m", "landed", "serve", "--listen", "127.0.0.1:0"]
            serve += ["--loop", loop, "--log-format", "none", "--engine", engine]
            echoing = [sys.executable, "-m", "benchmarks.bench_server", "--echo", loop]
            processes["echo", loop] = stack.enter_context(started(echoing))
            processes["server", loop] = stack.enter_context(started(serve))
        for shape in SHAPES:
            _measure(plan, report, shape, processes, seconds, numbers)
        for loop in LOOPS:
            _storm(plan, report, loop, processes["server", loop], numbers)


class Process(NamedTuple):
    pid: int
    port: int


@contextmanager
def started(arguments: list[str]) -> Iterator[Process]:
    """Run a server that prints where it listens, and end it with the block."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        yield Process(process.pid, int(process.stdout.readline().rpartition(":")[2]))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _measure(
    plan: Plan,
    report: Report,
    shape: Shape,
    processes: dict[tuple[str, str], Process],
    seconds: float,
    numbers: Iterator[int],
) -> None:
    connections, outstanding, target = shape
    report.doing(f"server: {connections} x {outstanding}")
    rates: dict[str, list[Rate]] = {f"{what} {loop}": [] for what, loop in processes}

    def rate(process: Process, into: list[Rate]) -> float:
        number = next(numbers)
        driving = drive(process, connections, outstanding, seconds=seconds, number=number)
        into.append(run_on(LOOPS[0], driving))
        return into[-1].requests_per_s

    subjects: dict[str, Callable[[], float]] = {
        name: partial(rate, process, rates[name])
        for name, process in zip(rates, processes.values(), strict=True)
    }
    found = interleaved(plan.rounds, subjects, after=report.step)

    def add(subject: str, measured: str, against: str, target: float | None) -> None:
        report.add(
            Figure(
                bench="server",
                subject=subject,
                rounds=ratios(found[measured], found[against]),
                unit="x",
                measured=_shown(rates[measured]),
                against=_shown(rates[against]),
                target=target,
            )
        )

    at = f"{connections} connections, {outstanding} outstanding"
    for loop in LOOPS:
        add(f"{loop}, {at}", f"server {loop}", f"echo {loop}", target)
        if outstanding == 1:
            report.add(_late(f"{loop}, {connections} connections", rates[f"server {loop}"]))
    if len(LOOPS) > 1:
        add(f"asyncio against uvloop, {at}", "server asyncio", "server uvloop", 0.85)


def _late(subject: str, rates: list[Rate]) -> Figure:
    percentiles = [statistics.quantiles(one.latencies, n=100) for one in rates]
    return Figure(
        bench="server",
        subject=f"{subject}, 1 outstanding: the 99th percentile in medians",
        rounds=tuple(cuts[98] / cuts[49] for cuts in percentiles),
        unit="x",
        measured=micros([cuts[98] for cuts in percentiles]),
        against=micros([cuts[49] for cuts in percentiles]),
        target=4,
        is_more_better=False,
    )


def _storm(plan: Plan, report: Report, loop: str, process: Process, numbers: Iterator[int]) -> None:
    report.doing(f"server: {loop}, {STORM} connections at once")
    took = [run_on(LOOPS[0], storm(process, number=next(numbers))) for _ in range(plan.rounds)]
    report.step()
    report.add(
        Figure(
            bench="server",
            subject=f"{loop}, {STORM} connections opened at once, until the last has its answer",
            rounds=tuple(took),
            unit="s",
            measured=micros(took),
            target=0.5,
            is_more_better=False,
        )
    )


def _shown(rates: list[Rate]) -> str:
    rate = statistics.median(one.requests_per_s for one in rates)
    cpu_us = statistics.median(one.cpu_us for one in rates)
    return f"{rate:,.0f}/s, {cpu_us:.1f} us cpu"


def run_on(loop: str, main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop of that kind."""
    factory = None
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415  # only where it is asked for

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--echo", required=True, metavar="LOOP", help="be the echo")
    run_on(parser.parse_args().echo, echo())
