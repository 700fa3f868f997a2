"""A real ``landed serve`` in a process of its own, to be stopped or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.lines import next_line

READY_S = 20.0
"""Far more than a start takes; a test that waits so long has failed."""


class Serving:
    """One run of the process, from its first line to its exit code."""

    def __init__(self, engine: str, *flags: str, environment: Mapping[str, str] | None = None):
        # To a file: a pipe that nobody reads would hold up a process that has much to complain about.
        self._errors = tempfile.TemporaryFile("a+")  # noqa: SIM115  # closed at the end of the block
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "landed", "serve", "--engine", engine),
                *("--listen", "127.0.0.1:0", *flags),
            ],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        line = next_line(self.process)
        if not line.startswith("landed: listening on 127.0.0.1:"):
            self.process.kill()
            self.process.communicate(timeout=READY_S)
            raise AssertionError(f"not ready: {line!r} {self.errors()!r}")
        self.port = int(line.rpartition(":")[2])
        self.admin = 0
        if "--admin" in flags:
            line = next_line(self.process)
            assert line.startswith("landed: metrics on http://127.0.0.1:")
            self.admin = int(line.rpartition(":")[2].partition("/")[0])

    def get(self, path: str) -> tuple[int, str]:
        """Ask the operator's port."""
        url = f"http://127.0.0.1:{self.admin}{path}"
        try:
            with urllib.request.urlopen(url, timeout=READY_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def kill(self) -> None:
        """As the power would: SIGKILL, nothing is said goodbye to."""
        self.process.kill()
        self.process.communicate(timeout=READY_S)
        self._errors.close()

    def errors(self) -> str:
        """What it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end. Returns its exit code and what it wrote to standard error."""
        self.process.send_signal(number)
        self.process.communicate(timeout=READY_S)
        return self.process.returncode, self.errors()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.process.communicate(timeout=READY_S)
        self._errors.close()


@contextmanager
def slow(path: Path, milliseconds: int, *flags: str) -> Iterator[tuple[Serving, Path]]:
    """A server on SQLite whose flushes are slow, and the file that makes the next one fail."""
    fail_file = path.with_suffix(".fail")
    environment = {
        "LANDED_TEST": "1",
        "LANDED_TEST_SLOW_FLUSH_MS": str(milliseconds),
        "LANDED_TEST_FAIL_FLUSH_FILE": str(fail_file),
    }
    with Serving(f"sqlite:///{path}", *flags, environment=environment) as serving:
        yield serving, fail_file


def run_to_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``landed`` with arguments until it leaves by itself."""
    return subprocess.run(
        [sys.executable, "-m", "landed", *arguments],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )
