"""PostgreSQL servers that may be killed, stood still, promoted and set up again.

Each lives in a slot: a port and a folder that stay, whatever data lies there. So a connection string
that names two slots goes on being right through any number of failovers.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from tests.handling import postgres

READY_S: Final = 60.0
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
    "autovacuum": "off",
    "wal_retrieve_retry_interval": "100ms",
    "log_min_messages": "fatal",
}
_PORTS: Final = random.SystemRandom()
_WATCH: Final = """
"$@" & server=$!
read -r _ || true
kill -CONT "$server" 2>/dev/null; kill -QUIT "$server" 2>/dev/null; wait "$server"
"""
"""The shell sees the end of our pipe when this process is gone, however it went."""


def free_port() -> int:
    """A port for a server that comes and goes.

    Below those that the system hands to clients: one of them could get it while the server is away,
    and whoever dials a port of that range over and over may even be connected to himself.
    """
    while True:
        port = _PORTS.randrange(15_000, 32_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


class Ground:
    """A folder for servers, the programs, and the user that may run them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self.user = {
                "user": postgres.NOBODY,
                "group": postgres.NOBODY,
                "extra_groups": [],
            }
            os.chown(home, postgres.NOBODY, postgres.NOBODY)
        self.programs = postgres._programs(home)
        self.environment = {**os.environ, "LC_ALL": "C", "HOME": str(home)}

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        postgres._run(
            [self.programs / program, *arguments], env=self.environment, cwd=self.home, **self.user
        )


class Server:
    """What runs in one slot."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.name = name
        self._ground = ground
        self._data = ground.home / name
        self._watcher: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres connect_timeout=5"

    def make(self) -> None:
        """Lay down an empty database."""
        self._ground.run(
            *("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
        )

    def copy(self, primary: Server) -> None:
        """Lay down a copy of a running primary that will follow it; what lay here is gone."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._ground.run(
            *("pg_basebackup", "-D", str(self._data), "-d", primary.conninfo, "-R", "-N"),
            *("--checkpoint", "fast"),
        )

    def start(self, *, standby_names: str = "") -> None:
        """Start it, and wait until it answers.

        Args:
            standby_names: ``synchronous_standby_names``, which counts while it is a primary.
        """
        settings = {
            **_SETTINGS,
            "port": str(self.port),
            "synchronous_standby_names": standby_names,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        program = str(self._ground.programs / "postgres")
        with (self._ground.home / f"{self.name}.log").open("ab") as log:
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "watch", program, "-D", str(self._data), *flags],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._ground.environment,
                cwd=self._ground.home,
                start_new_session=True,
                **self._ground.user,
            )
        self._wait(lambda: self.ask("SELECT 1") == 1, "it does not answer")

    def ask(self, question: str) -> Any:
        """One value from one statement; None if nobody answers."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.conninfo) as connection:
            row = connection.execute(question).fetchone()  # type: ignore[call-overload]
            return None if row is None else row[0]

    def wait_for_standby(self) -> None:
        """Wait until a standby follows whom commits wait for."""
        synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        self._wait(lambda: self.ask(synchronous) == 1, "no standby follows it")

    def promote(self) -> None:
        """Make a standby the primary, and wait until it takes writes."""
        assert self.ask("SELECT pg_promote(true, 30)") is True

    def kill(self) -> None:
        """SIGKILL to the server and to every process of it; back when none of them is left."""
        self._processes()[0].suspend()  # so that it has no children that are not listed
        processes = self._processes()
        self._signal(signal.SIGKILL)
        self._wait(lambda: not any(map(_is_alive, processes)), "it does not end")
        self.stop()

    def crash(self) -> None:
        """What ``pg_ctl stop -m immediate`` does: gone without a checkpoint, but told to go."""
        processes = self._processes()
        processes[0].send_signal(signal.SIGQUIT)
        self._wait(lambda: not any(map(_is_alive, processes)), "it does not end")
        self.stop()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its sockets and answers nobody."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if nothing had happened meanwhile."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """See to it that nothing of it runs. Idempotent."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            self._signal(signal.SIGCONT, watcher)
            postgres.end(watcher)

    def _processes(self, watcher: subprocess.Popen[bytes] | None = None) -> list[psutil.Process]:
        """The server itself first, then its children."""
        watcher = watcher or self._watcher
        assert watcher is not None, f"{self.name} does not run"
        return psutil.Process(watcher.pid).children(recursive=True)

    def _signal(self, number: int, watcher: subprocess.Popen[bytes] | None = None) -> None:
        for process in self._processes(watcher):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _wait(self, is_so: Any, otherwise: str) -> None:
        until = time.monotonic() + READY_S
        while not is_so():
            assert time.monotonic() < until, (
                f"{self.name}: {otherwise}: "
                + (self._ground.home / f"{self.name}.log").read_text(errors="replace")[-1000:]
            )
            time.sleep(0.02)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Pair:
    """A primary and its synchronous standby, and the URL that leads to whichever takes writes."""

    def __init__(self, ground: Ground, *, is_strict: bool) -> None:
        """``is_strict``: who was promoted waits for a standby of its own before it acknowledges."""
        self._after = "*" if is_strict else ""
        self.primary, self.standby = Server(ground, "first"), Server(ground, "second")
        self.hosts = ",".join(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        self.primary.make()
        self.primary.start(standby_names="*")
        self.follow()

    def follow(self) -> None:
        """Set the standby up anew, as a copy of the primary."""
        self.standby.copy(self.primary)
        self.standby.start(standby_names=self._after)
        self.primary.wait_for_standby()

    def swap(self) -> None:
        """Promote the standby."""
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def stop(self) -> None:
        for server in (self.standby, self.primary):
            server.stop()


@contextmanager
def ground() -> Iterator[Ground]:
    """A place for servers, gone at the end with everything in it."""
    home = Path(tempfile.mkdtemp(prefix="landed-pg-", dir=postgres._roomy()))
    try:
        yield Ground(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
