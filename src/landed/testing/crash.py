"""Crashing at a point of docs/reference/crash-points.md, as a machine would or as a test can catch."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping

from landed.errors import ConfigurationError
from landed.facts import Note


class Crash(BaseException):  # no error: the end of a process, in a process that goes on
    """What ``crash_at(..., kill=False)`` raises. No ``except Exception`` catches it."""

    def __init__(self, point: str) -> None:
        super().__init__(point)
        self.point = point


def crash_at(point: str, *, passes: int = 0, kill: bool = True) -> Note:
    """Make a ``note`` that ends the process at a crash point: ``Ledger(note=crash_at("KP-16"))``.

    Args:
        point: ``KP-n``.
        passes: how often the point is passed unharmed first.
        kill: send SIGKILL to this process, as only a child process can be tested; False: raise
            ``Crash`` instead, after which connections still roll back by themselves.
    """
    if not re.fullmatch(r"KP-[1-9]\d?", point):
        raise ConfigurationError(f"a crash point is called KP-n, not {point!r}")
    left = passes

    def _note(name: str, fields: Mapping[str, object]) -> None:
        nonlocal left
        if name != "kp" or fields.get("point") != point:
            return
        left -= 1
        if left >= 0:
            return
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Crash(point)

    return _note
