"""``landed demo``: the main job on one machine, and a page to try it on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from landed.facts import Note

FOLDER = Path(".landed-demo")


def demo(
    *,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            envvar="LANDED_DEMO_PORT",
            min=0,
            max=65_535,
            help="Of the page. Port 0 picks one.",
        ),
    ] = 8300,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens.")] = False,
) -> None:
    """Run both wings on this machine, with partners that can lose answers; print where the page is.

    Accounts: a log, two replicas and a balancer. Payments: a shop, a bank, a boundary and a worker.

    Data lies under ./.landed-demo and is kept. Ctrl-C or SIGTERM ends it all.

    Example: landed demo --port 8300
    """
    from landed.cli.accounts import require_service_extra
    from landed.demo.run import prepare

    require_service_extra()
    _require_effects_extra()
    prepare(FOLDER)
    asyncio.run(_demo(port, is_verbose=verbose))


def _require_effects_extra() -> None:
    from importlib.util import find_spec

    from landed.errors import ConfigurationError

    # Looked for, not imported: only the children need them.
    if None in map(find_spec, ("sqlalchemy", "starlette", "httpx", "cryptography")):
        extra = "the payments need the effects extra: pip install 'landed[service,effects]'"
        raise ConfigurationError(extra)


async def _demo(port: int, *, is_verbose: bool) -> None:
    from landed.cli.logs import LogFormat, log_to
    from landed.clock import SystemClock
    from landed.demo.run import HOST, run_demo

    loop = asyncio.get_running_loop()
    ending: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ending.done():
            ending.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    await run_demo(
        FOLDER,
        port,
        ending=ending,
        on_ready=lambda bound: typer.echo(f"demo ready at http://{HOST}:{bound}"),
        note=_telling(log_to(LogFormat.TEXT if is_verbose else LogFormat.NONE, SystemClock())),
    )


def _telling(note: Note) -> Note:
    """Tell people of a part that does not come back, whatever is logged; the same thing once."""
    told: set[tuple[object, object]] = set()

    def tell(name: str, fields: Mapping[str, object]) -> None:
        note(name, fields)
        what = (fields.get("name"), fields.get("error"))
        if name == "child.failed" and what not in told:
            told.add(what)
            typer.echo(
                f"landed demo: {what[0]} did not start again, which is tried further: {what[1]} "
                f"(its output is in {FOLDER / f'{what[0]}.log'})",
                err=True,
            )

    return tell
