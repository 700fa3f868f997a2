"""Processes of the demo: started, watched, restarted, and never left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from landed.facts import Note, forget

READY_TIMEOUT_S: Final = 60.0
"""A cold start on a slow machine, imports included."""
STOP_TIMEOUT_S: Final = 12.0
"""After SIGTERM; above the grace the server gives what it has received. Then SIGKILL."""
RESTART_PAUSE_S: Final = 3.0
"""Long enough for a person to see that a process is gone, and to try what happens meanwhile."""

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class State(Enum):
    """What a child is doing."""

    STARTING = "starting"
    RUNNING = "running"
    DOWN = "down"


class ChildFailedError(Exception):
    """A child ended before it was ready. The text is its last line."""


FAILURES: Final = (ChildFailedError, TimeoutError, OSError, ValueError)
"""It ended, or was too slow; it could not be run, or its line could not be read."""


class Child:
    """One process that is kept running until it is told to stop.

    Args:
        name: for people, and for the file its output goes to.
        command: given the port it should listen on (0 at first, then the one it got, so that
            whoever knows it need not be told again).
        ready: the text before the address in the one line it prints when it is ready.
        has_port: False: it listens nowhere, and the text alone says that it is ready.
        environment: variables it is given besides ours; asked for at each start.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], list[str]],
        *,
        ready: str,
        folder: Path,
        note: Note = forget,
        has_port: bool = True,
        environment: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.name = name
        self.state = State.DOWN
        self.port = 0
        self.restarts = 0
        self._command = command
        self._ready = ready
        self._has_port = has_port
        self._environment = environment
        self._error_file = folder / f"{name}.log"
        self._note = note
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return None if self._process is None or self.state is State.DOWN else self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready; from then on it is restarted whenever it ends.

        Raises:
            ChildFailedError: it ended, or was not ready in time.
        """
        await self._launch()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    def kill(self) -> bool:
        """SIGKILL it, as a power cut would. It comes back after a pause. False if it is down."""
        if self._process is None or self.state is not State.RUNNING:
            return False
        self._process.kill()
        return True

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not end. Returns when the process is gone."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self.state = State.DOWN

    async def _launch(self) -> None:
        self.state = State.STARTING
        with self._error_file.open("ab") as errors:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command(self.port),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **self._environment()},
                # Ctrl-C is for the demo, which stops its children in order.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                self.port = await self._read_port(process)
        except BaseException:
            if process.returncode is None:
                process.kill()
            self.state = State.DOWN
            await process.wait()
            raise
        self.state = State.RUNNING
        self._note("child.ready", {"name": self.name, "pid": process.pid, "port": self.port})

    async def _read_port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(self._ready):
                return int(text.rpartition(":")[2]) if self._has_port else 0
        await process.wait()
        raise ChildFailedError(f"{self.name} ended: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._error_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            assert self._process.stdout is not None
            async for _line in self._process.stdout:
                pass  # read on, so that a chatty child never waits for us
            code = await self._process.wait()
            self.state = State.DOWN
            self._note("child.ended", {"name": self.name, "code": code})
            while not await self._is_restarted():
                pass  # it pauses before each try

    async def _is_restarted(self) -> bool:
        """Try to start it again. Whatever hinders it may pass: no room, no memory, a port in use."""
        await asyncio.sleep(RESTART_PAUSE_S)
        self.restarts += 1
        try:
            await self._launch()
        except FAILURES as e:
            self.state = State.DOWN
            slow = f"it was not ready within {READY_TIMEOUT_S:g} s"
            self._note("child.failed", {"name": self.name, "error": str(e) or slow})
            return False
        return True


def landed(*arguments: str) -> list[str]:
    """The command line of a subcommand of this very installation."""
    return [sys.executable, "-m", "landed", *arguments]


def _die_with_parent() -> None:
    """Ask Linux to end this child with us, so that even a SIGKILL of the demo leaves nothing."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def module(name: str, *arguments: str) -> list[str]:
    """The command line of a module of this very installation."""
    return [sys.executable, "-m", name, *arguments]
