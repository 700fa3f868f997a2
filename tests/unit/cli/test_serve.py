"""What ``landed serve`` takes, and what it refuses before it opens anything."""

import asyncio
import ctypes
import io
import json
import subprocess
import sys

import pytest

import landed.cli.serve as cli_serve
from landed.cli import app as door
from landed.cli.logs import FREQUENT, LogFormat, log_to
from landed.cli.serve import Address, parse_address
from landed.clock import WallMs
from landed.engines.memory import open_memory
from landed.errors import ConfigurationError, StorageError
from landed.limits import Limits
from tests.unit.server.peer import dial, write


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10000", Address("127.0.0.1", 10000)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_is_read_and_printed_the_same(text, address):
    assert address == parse_address(text, "--listen")
    assert text == str(address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10000",
        ":10000",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "::1:80",
        "[::1]",
        "host:٣",
    ],
)
def test_what_is_no_address_is_said(text):
    with pytest.raises(ConfigurationError, match="--listen"):
        parse_address(text, "--listen")


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:0"])
def test_beyond_loopback_it_listens_only_if_told_aloud(capsys, flag, address):
    code = door.run(["serve", "--engine", "memory:", flag, address])
    assert 2 == code
    err = capsys.readouterr().err
    assert "--insecure" in err
    assert 1 == err.count("\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--engine", "mysql://x"], "sqlite:///path"),
        (["--engine", "postgresql://a:b@x/y"], "a password does not belong in a URL"),
        (["--engine", "memory:?nonsense=1"], "idle_timeout_s"),
        (["--engine", "memory:x"], "sqlite:///path"),
        (["--engine", "sqlite:x.db"], "sqlite:///path"),
        (["--engine", "memory:", "--set", "nonsense=1"], "idle_timeout_s"),
        (["--engine", "memory:", "--set", "idle_timeout_s=soon"], "idle_timeout_s"),
        (["--engine", "memory:", "--set", "num_shards=0"], "shards"),
        (["--engine", "memory:", "--set", "readers_max=0"], "readers_max is 1 or more"),
        (["--engine", "memory:", "--set", "connections_max=0"], "connections_max is 1 or more"),
        (["--engine", "memory:", "--set", "queued_writes_max=0"], "queued_writes_max is 1"),
        (["--engine", "memory:", "--loop", "gevent"], "uvloop"),
    ],
)
def test_what_cannot_work_is_said_and_is_exit_code_2(capsys, arguments, says):
    assert 2 == door.run(["serve", "--listen", "127.0.0.1:0", *arguments])
    out, err = capsys.readouterr()
    assert "" == out
    assert says in err
    assert "Traceback" not in err


class NoonClock:
    def wall_ms(self) -> WallMs:
        return WallMs(1_700_000_000_123)

    def monotonic_ms(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (
            LogFormat.TEXT,
            '2023-11-14T22:13:20.123+00:00 server.closed port=1 reason="a \\"b\\"\\nc" none=""',
        ),
        (
            LogFormat.JSON,
            r'{"at":"2023-11-14T22:13:20.123+00:00","fact":"server.closed","port":1,"reason":"a \"b\"\nc","none":""}',
        ),
    ],
)
def test_a_fact_is_one_line(form, line):
    out = io.StringIO()
    log_to(form, NoonClock(), out=out)(
        "server.closed", {"port": 1, "reason": 'a "b"\nc', "none": ""}
    )
    assert line + "\n" == out.getvalue()
    if form is LogFormat.JSON:
        assert 1 == json.loads(out.getvalue())["port"]


def test_frequent_facts_are_printed_only_when_asked_for():
    for is_verbose, lines in ((False, 0), (True, len(FREQUENT))):
        out = io.StringIO()
        note = log_to(LogFormat.TEXT, NoonClock(), is_verbose=is_verbose, out=out)
        for name in FREQUENT:
            note(name, {})
        assert lines == out.getvalue().count("\n")


def test_a_log_that_nobody_reads_any_more_does_not_stop_the_server():
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    log_to(LogFormat.TEXT, NoonClock(), out=Gone())("server.closed", {})


async def test_a_commit_in_doubt_ends_the_process_with_a_reason(monkeypatch, capsys):
    opened = []

    async def open_engine(_url, *, limits, clock, note):
        opened.append(await open_memory(limits=limits, clock=clock, note=note))
        return opened[0]

    monkeypatch.setattr(sys.modules["landed.connect"], "open_engine", open_engine)
    options = cli_serve.ServeOptions(
        listen=Address("127.0.0.1", 0),
        engine="memory:",
        extra={},
        admin=Address("127.0.0.1", 0),
        limits=Limits(),
        log_format=LogFormat.NONE,
        is_verbose=False,
    )
    serving = asyncio.ensure_future(cli_serve._serve(options))
    printed = ""
    while "metrics" not in printed:
        await asyncio.sleep(0.01)
        printed += capsys.readouterr().out
    first, second = printed.splitlines()
    assert second.startswith("landed: metrics on http://127.0.0.1:")
    opened[0].gate.fails_next = StorageError("test", is_outcome_known=False)
    async with dial(int(first.removeprefix("landed: listening on 127.0.0.1:"))) as peer:
        with pytest.raises(EOFError):
            await peer.ask(write(1))
    with pytest.raises(StorageError, match="nobody knows"):
        await serving


_THREADS_THAT_ALLOCATE = """
import ctypes, threading
from landed.cli.serve import _one_heap

libc = ctypes.CDLL(None)
_one_heap()
threads = [threading.Thread(target=libc.malloc, args=(100_000,)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc"
)
def test_the_threads_of_a_server_share_one_heap():
    told = subprocess.run(  # a process, since it is set once for all of it
        [sys.executable, "-c", _THREADS_THAT_ALLOCATE], capture_output=True, check=True, timeout=60
    )

    assert told.stdout.count(b"<heap nr=") == 1
