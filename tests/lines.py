"""What a process says, waited for with a bound: a process that says nothing fails its test."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from typing import Any

import psutil

SAYS_WITHIN_S = 60.0
"""Far more than any start takes."""


def next_line(process: subprocess.Popen[Any], *, within_s: float = SAYS_WITHIN_S) -> Any:
    """The next line of its standard output; empty if it ended. One that keeps silent is killed."""
    assert process.stdout is not None
    kept_silent = threading.Event()

    def give_up() -> None:
        kept_silent.set()
        kill_with_children(process)

    timer = threading.Timer(within_s, give_up)
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    assert not kept_silent.is_set(), f"{process.args!r} said nothing for {within_s:.0f} s"
    return line


def kill_with_children(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to it and to all it started: each of them may hold its standard output open."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
