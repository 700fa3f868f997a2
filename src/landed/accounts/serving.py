"""Run one replica on a port until it is told to stop. The one place that knows uvicorn."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from landed.accounts.app import AccountService

HEAD_BYTES_MAX: Final = 32 * 1024
"""Request line and headers; more is answered with 400."""
_BACKLOG: Final = 1024


def bind(host: str, port: int) -> socket.socket:
    """Take an address. Port 0 picks one.

    Raises:
        OSError: it is taken, or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def serve(
    service: AccountService, listening: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C: then finish what is under way, and return.

    Raises:
        LandedError: the log cannot be opened.
    """
    config = uvicorn.Config(
        service.app,
        lifespan="off",  # ours below, so that what fails in it is an error and not a log line
        log_config=None,
        access_log=False,
        server_header=False,
        http="h11",  # the faster parser has no bound for headers
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=service.stopping_s,
    )
    server = _Server(config, service, on_ready)
    # uvicorn raises a signal again once it is done with it; being told to stop is no failure.
    before = signal.signal(signal.SIGTERM, lambda *_: server.handle_exit(signal.SIGTERM, None))
    try:
        async with service.running():
            await server.serve(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, service: AccountService, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # It waits for open connections, and a live stream never ends by itself.
        self._service.end_streams()
        await super().shutdown(sockets)
