"""``landed receive``: the boundary of a ledger on a port."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from landed.cli.logs import LogFormat
from landed.cli.serve import Address, parse_address

if TYPE_CHECKING:
    from landed.facts import Note
    from landed.intake import IntakeApp

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
_GRACE_S: Final = 10
_CONNECTIONS_MAX: Final = 1000


def receive(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:LEDGER", help="Where the ledger is declared.")
    ],
    *,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Port 0 picks one.")
    ] = DEFAULT_LISTEN,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            "--trust-network",
            help="Listen beyond loopback without TLS: a proxy in front ends it, or the network is "
            "trusted.",
        ),
    ] = False,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="In place of the one that is declared.")
    ] = None,
    group: Annotated[
        bool, typer.Option("--group/--no-group", help="Share a commit between waiting requests.")
    ] = True,
    migrate: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Apply missing migrations at the start.")
    ] = True,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log on standard error.")
    ] = LogFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every delivery as well.")] = False,
) -> None:
    """Take the deliveries of a ledger's producers, until SIGTERM or Ctrl-C.

    A 202 says that the event is durably held. It says nothing of later effects: `landed work` does
    those. Any number of processes may receive for one ledger.

    Example: landed receive app:ledger --listen 127.0.0.1:8080
    """
    from landed.cli.loading import load_ledger
    from landed.cli.logs import log_to
    from landed.clock import SystemClock
    from landed.intake import Intake, IntakeApp

    address = parse_address(listen, "--listen")
    _refuse_open_address(address, is_trusted=insecure)
    ledger = load_ledger(target, database)
    note = _quiet(log_to(log_format, SystemClock(), is_verbose=verbose), is_verbose=verbose)
    ledger.prepare(is_migrating=migrate)
    try:
        intake = Intake(ledger.engine, ledger.books, ledger.registry, note=note, is_grouping=group)
        asyncio.run(_serve(IntakeApp(intake), address))
    finally:
        ledger.close()


async def _serve(app: IntakeApp, address: Address) -> None:
    import uvicorn

    from landed.errors import ConfigurationError

    config = uvicorn.Config(
        app,
        http="h11",  # bounds the headers while it reads them
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_GRACE_S,
    )
    try:
        listening = socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
        )
    except OSError as e:
        raise ConfigurationError(f"cannot listen on {address}: {e}") from None
    with listening:
        bound = Address(address.host, listening.getsockname()[1])

        class _Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                typer.echo(f"landed receive: listening on http://{bound}")

            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                # Its own way ends the process by the signal it was asked to end with.
                yield

        server = _Server(config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, partial(server.handle_exit, number, None))
        await server.serve(sockets=[listening])


def _refuse_open_address(address: Address, *, is_trusted: bool) -> None:
    """Listen on this machine only, unless the user takes the risk aloud."""
    from landed.errors import ConfigurationError

    if is_trusted or address.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and this port has no encryption: "
            "signatures are checked, but payloads can be read on their way. Listen on 127.0.0.1 "
            "behind a proxy, or say --trust-network (or --insecure)"
        )


def _quiet(note: Note, *, is_verbose: bool) -> Note:
    def noting(name: str, fields: Any) -> None:
        if is_verbose or name not in ("intake.received", "kp"):
            note(name, fields)

    return noting
