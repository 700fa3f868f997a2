"""``landed demo``: the main job on one machine, and a page to try it on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

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
    """Run a log, two replicas and a balancer that can lose answers, and print where the page is.

    Data lies under ./.landed-demo and is kept. Ctrl-C or SIGTERM ends it all.
    """
    from landed.cli.accounts import require_service_extra
    from landed.demo.run import prepare

    require_service_extra()
    prepare(FOLDER)
    asyncio.run(_demo(port, is_verbose=verbose))


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
        note=log_to(LogFormat.TEXT if is_verbose else LogFormat.NONE, SystemClock()),
    )
