"""``landed accounts``: one replica of the reference account service."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from landed.cli.serve import Address, parse_address

if TYPE_CHECKING:
    from uuid import UUID

    from landed.accounts.settings import Settings

PLACES: Final = "Where folded states live: memory, or postgresql://user@host/database."
SERVICE_EXTRA: Final = "this needs the service extra: pip install 'landed[service]'"


def accounts(
    *,
    log: Annotated[
        str,
        typer.Option(
            "--log", metavar="URL", help="landed://host:port, sqlite:///path or postgresql://…"
        ),
    ],
    client_id: Annotated[
        str,
        typer.Option(
            "--client-id",
            metavar="UUID",
            help="Of the whole service: the same on every replica and after every restart.",
        ),
    ],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Port 0 picks one.")
    ] = "127.0.0.1:8080",
    projection: Annotated[
        str, typer.Option("--projection", metavar="PLACE", help=PLACES)
    ] = "memory",
    accept_config: Annotated[
        bool,
        typer.Option(
            "--accept-config",
            help="Write client id and window into the database although others stand there.",
        ),
    ] = False,
    window: Annotated[
        float, typer.Option("--window", metavar="S", help="How long a key is remembered.")
    ] = 90.0,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="S", help="For one request, retries included.")
    ] = 20.0,
    margin: Annotated[
        float, typer.Option("--margin", metavar="S", help="Kept beyond the window, unpromised.")
    ] = 10.0,
    attempt_timeout: Annotated[
        float, typer.Option("--attempt-timeout", metavar="S", help="For each request to the log.")
    ] = 5.0,
    replica: Annotated[
        str, typer.Option("--replica", metavar="NAME", help="Told with every answer.")
    ] = "",
    caller_header: Annotated[
        str | None,
        typer.Option(
            "--caller-header",
            metavar="NAME",
            help="Header in which your authenticating proxy, and only it, names the caller.",
        ),
    ] = None,
    trust_network: Annotated[
        bool,
        typer.Option("--trust-network", help="Listen beyond loopback; all callers are one."),
    ] = False,
    require_idempotency_key: Annotated[
        bool,
        typer.Option("--require-idempotency-key", help="Answer 400 to a change without a key."),
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option("--names", metavar="FILE", help='Account names, JSON: {"uuid": "name"}'),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
) -> None:
    """Serve accounts over HTTP, as one of any number of equal replicas, until SIGTERM or Ctrl-C.

    Example: landed accounts --log landed://127.0.0.1:10000
    --client-id 5b0c64f7-6a0b-4b1f-9d55-5f3f5d1f4f0e
    """
    address = parse_address(listen, "--listen")
    _refuse_unknown_callers(address, caller_header, trust_network=trust_network)
    shared = _shared_place(projection)
    require_service_extra()
    from landed.accounts.settings import Settings
    from landed.commands import Policy, ServiceIdentity

    settings = Settings(
        identity=ServiceIdentity.from_config(client_id),
        policy=Policy(
            window_s=window,
            deadline_s=deadline,
            window_margin_s=margin,
            attempt_timeout_s=attempt_timeout,
        ),
        replica=_header_text(replica or f"accounts-{address.port or os.getpid()}", "--replica"),
        names={} if names is None else _read_names(names),
        caller_header=caller_header and _header_text(caller_header, "--caller-header"),
        is_key_required=require_idempotency_key,
        projection=shared,
        is_config_accepted=accept_config,
    )
    asyncio.run(_serve(log, settings, address, is_verbose=verbose))


def _shared_place(projection: str) -> str | None:
    """The database that replicas share, or None: each folds in memory. There is no third."""
    from landed.errors import ConfigurationError

    if projection == "memory":
        return None
    if not projection.startswith("postgresql://"):
        raise ConfigurationError(
            "--projection takes memory or postgresql://user@host/database; a cache between the "
            "log and its answers would lose them"
        )
    return projection


def require_service_extra() -> None:
    """Say in one sentence what is missing.

    Raises:
        ConfigurationError: it is missing.
    """
    from landed.errors import ConfigurationError

    try:
        import fastapi  # noqa: F401  # asked for before anything else is done
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigurationError(SERVICE_EXTRA) from None


async def _serve(log: str, settings: Settings, address: Address, *, is_verbose: bool) -> None:
    from landed.accounts import AccountService
    from landed.accounts.serving import bind, serve
    from landed.cli.logs import LogFormat, log_to
    from landed.clock import SystemClock
    from landed.errors import ListenFailedError

    try:
        listening = bind(address.host, address.port)
    except OSError as e:
        raise ListenFailedError(address.host, address.port, e.strerror or str(e)) from None
    with listening:
        note = log_to(LogFormat.TEXT, SystemClock(), is_verbose=is_verbose)
        service = AccountService(log, settings, note=note)
        bound = Address(address.host, listening.getsockname()[1])
        await serve(
            service,
            listening,
            on_ready=lambda: typer.echo(f"landed accounts: listening on http://{bound}"),
        )


def _refuse_unknown_callers(
    address: Address, caller_header: str | None, *, trust_network: bool
) -> None:
    """Beyond loopback, whoever shares a key reads an answer: know the caller, or say so aloud."""
    from landed.errors import ConfigurationError

    if caller_header is not None or trust_network or address.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"{address} can be reached from other machines: name the header in which your "
            "authenticating proxy names the caller (--caller-header), or say --trust-network"
        )


def _header_text(text: str, flag: str) -> str:
    """What goes into a header holds visible characters only."""
    from landed.errors import ConfigurationError

    if not (text.isascii() and text.isprintable() and text.strip() == text):
        raise ConfigurationError(f"{flag} must be plain printable text: {text!r}")
    return text


def _read_names(path: Path) -> dict[UUID, str]:
    from landed.accounts.settings import parse_names
    from landed.errors import ConfigurationError

    try:
        return parse_names(path.read_bytes())
    except (OSError, ValueError) as e:
        raise ConfigurationError(f"--names {path}: {e}") from None
