"""Serving an application of the demo on a bound socket, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp

HOST: Final = "127.0.0.1"
_GRACE_S: Final = 4


class Server(uvicorn.Server):
    """uvicorn, quiet, that says when it is ready.

    Args:
        app: what to serve.
        on_ready: called once connections are accepted.
    """

    def __init__(self, app: ASGIApp, *, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            http="h11",
            timeout_graceful_shutdown=_GRACE_S,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Its own way ends the process by the signal it was asked to end with.
        yield


async def until_told(server: Server, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what is under way."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(server.handle_exit, number, None))
    await server.serve(sockets=[listening])
