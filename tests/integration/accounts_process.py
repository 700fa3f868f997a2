"""Real replicas of the account service, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.integration.process import READY_S, Serving
from tests.lines import next_line

CLIENT_ID = "0d9e9cd1-0000-4000-8000-000000000001"


class Process:
    """A ``landed`` command that says where it listens, and is gone when the block ends."""

    def __init__(self, *arguments: str, ready: str, cwd: Path | None = None, **environment: str):
        # To a file: a pipe that nobody reads would hold up a process that has much to complain about.
        self._errors = tempfile.TemporaryFile("a+")  # noqa: SIM115  # closed at the end of the block
        self.process = subprocess.Popen(
            [sys.executable, "-m", "landed", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=cwd,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        self.line = next_line(self.process).rstrip("\n")
        if not self.line.startswith(ready):
            self.process.kill()
            self.process.communicate(timeout=READY_S)
            raise AssertionError(f"not ready: {self.line!r} {self.errors()!r}")
        self.url = "http://" + self.line.rpartition("http://")[2]
        self.port = int(self.url.rpartition(":")[2])

    def errors(self) -> str:
        """What it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end. Returns its exit code and what it wrote to standard error."""
        self.process.send_signal(number)
        self.process.communicate(timeout=READY_S)
        return self.process.returncode, self.errors()

    def kill(self) -> None:
        """As the power would."""
        self.process.kill()
        self.process.communicate(timeout=READY_S)
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def replica(log_port: int, name: str, *flags: str, projection: str = "memory") -> Process:
    """One replica on a log server."""
    return Process(
        *("accounts", "--listen", "127.0.0.1:0", "--log", f"landed://127.0.0.1:{log_port}"),
        *("--projection", projection, "--client-id", CLIENT_ID, "--replica", name, *flags),
        ready="landed accounts: listening on http://127.0.0.1:",
    )


class Fleet:
    """A log server and some replicas.

    ``engine`` is the URL that the server keeps its log at, SQLite in ``folder`` unless given;
    ``projection`` is where replicas keep what they folded.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        engine: str | None = None,
        projection: str = "memory",
    ):
        self.projection = projection
        self._engine = engine or f"sqlite:///{folder}/log.sqlite"
        self._stack = ExitStack()
        self._count = count
        self.replicas: list[Process] = []

    def __enter__(self) -> Self:
        self.log = self._stack.enter_context(Serving(self._engine))
        for number in range(self._count):
            self.add(f"replica-{number}")
        return self

    def add(self, name: str, *flags: str) -> Process:
        """Start one more."""
        added = self._stack.enter_context(
            replica(self.log.port, name, *flags, projection=self.projection)
        )
        self.replicas.append(added)
        return added

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]
