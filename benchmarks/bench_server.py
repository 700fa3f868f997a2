"""The server against a decode-encode echo on the same loop, with the same bytes.

Run ``python -m benchmarks.bench_server``. Each round measures the echo and the servers one after
another, so that a busy machine slows all of them; the ratios' median is the result. Client and
server share the machine's cores, as in the figures this is compared with.

Every write is durable before its answer where the engine is SQLite. Each request is one event of
200 bytes to one of 16 warm aggregates a connection, with an enforced sequence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec
import psutil

from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Event, Write
from landed.wire.connection import ClientConnection

HEADER = struct.Struct("<IIIIB")
PAYLOAD = b"p" * 160
FIRST_SEQ = 2**20
"""So that every sequence takes the same number of bytes and can be patched into a template."""
AGGREGATES_PER_CONNECTION = 16


class Frames:
    """Write requests of one connection: a template, patched with key and sequence."""

    def __init__(self, connection: int) -> None:
        first, second = self._frame(connection, 0, FIRST_SEQ), self._frame(connection, 1, FIRST_SEQ)
        self._key_at = next(
            at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]
        )
        self._seq_at = first.index(b"\xce" + FIRST_SEQ.to_bytes(4)) + 1
        self._frame_bytes = bytearray(first)
        self._made = 0

    @staticmethod
    def _frame(connection: int, number: int, seq: int) -> bytes:
        key = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=(connection << 32) | number))
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

    def __init__(self, number: int, depth: int, totals: list[int]) -> None:
        self._frames = Frames(number)
        self._depth = depth
        self._totals = totals
        self._buffer = bytearray(65_536)
        self._kept = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def start(self) -> None:
        self._transport.write(b"".join([self._frames.next() for _ in range(self._depth)]))

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
            self._transport.write(b"".join([self._frames.next() for _ in range(answers)]))


class Rate(NamedTuple):
    requests_per_s: float
    cpu_us: float
    """Processor time of the server for one request, all its threads."""


async def drive(
    port: int, connections: int, depth: int, *, seconds: float, number: int, pid: int
) -> Rate:
    """Keep a server busy and measure it once it is warm."""
    server = psutil.Process(pid)
    totals = [0]
    loop = asyncio.get_running_loop()
    loads = []
    for at in range(connections):
        _, load = await loop.create_connection(
            lambda at=at: Load(number * 65_536 + at, depth, totals), "127.0.0.1", port
        )
        loads.append(cast("Load", load))
    for load in loads:
        load.start()
    while totals[0] < 2 * connections * AGGREGATES_PER_CONNECTION:  # noqa: ASYNC110
        await asyncio.sleep(seconds / 8)  # until every aggregate is warm
    began, before, spent = time.perf_counter(), totals[0], server.cpu_times()
    await asyncio.sleep(seconds)
    answered, took, spends = totals[0] - before, time.perf_counter() - began, server.cpu_times()
    cpu_s = spends.user + spends.system - spent.user - spent.system
    for load in loads:
        load._transport.abort()
    return Rate(answered / took, cpu_s / max(1, answered) * 1e6)


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


# --- rounds -----------------------------------------------------------------------------------------


def started(arguments: list[str]) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    return process, int(process.stdout.readline().rpartition(":")[2])


def subjects(loop: str, folder: Path, number: int) -> dict[str, list[str]]:
    serve = [sys.executable, "-m", "landed", "serve", "--listen", "127.0.0.1:0", "--loop", loop]
    serve += ["--log-format", "none"]
    return {
        "echo": [sys.executable, "-m", "benchmarks.bench_server", "--echo", "--loop", loop],
        "memory": [*serve, "--engine", "memory:"],
        "sqlite": [*serve, "--engine", f"sqlite:///{folder}/{number}.db"],
    }


def measure(loop: str, rounds: int, seconds: float, shapes: list[tuple[int, int]]) -> list[dict]:
    rows = []
    for connections, depth in shapes:
        rates: dict[str, list[Rate]] = {}
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            for number in range(rounds):
                for name, arguments in subjects(loop, Path(folder), number).items():
                    process, port = started(arguments)
                    try:
                        rate = run(
                            loop,
                            drive(
                                port,
                                connections,
                                depth,
                                seconds=seconds,
                                number=number,
                                pid=process.pid,
                            ),
                        )
                    finally:
                        process.terminate()
                        process.wait()
                    rates.setdefault(name, []).append(rate)
        for name, measured in rates.items():
            ratios = [
                one.requests_per_s / base.requests_per_s
                for one, base in zip(measured, rates["echo"], strict=True)
            ]
            rows.append(
                {
                    "loop": loop,
                    "connections": connections,
                    "outstanding": depth,
                    "subject": name,
                    "requests_per_s": round(
                        statistics.median(one.requests_per_s for one in measured)
                    ),
                    "cpu_us": round(statistics.median(one.cpu_us for one in measured), 1),
                    "ratio_to_echo": round(statistics.median(ratios), 3),
                }
            )
            print(
                "{loop:8} {connections:4} x {outstanding:<3} {subject:8} "
                "{requests_per_s:9,}/s {cpu_us:8} us cpu  {ratio_to_echo:.3f}".format(**rows[-1]),
                flush=True,
            )
    return rows


def run(loop: str, main: Coroutine[Any, Any, Any]) -> Any:
    factory = None
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415  # only where it is asked for

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", default="asyncio", choices=["asyncio", "uvloop"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--shapes", default="64x1,64x16,512x1")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        run(options.loop, echo())
        return
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    rows = measure(options.loop, options.rounds, options.seconds, cast("list", shapes))
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
