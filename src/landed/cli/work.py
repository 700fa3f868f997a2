"""``landed work``: handlers, effects, reconciling, relaying and keeping, until SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from landed.cli.logs import LogFormat

if TYPE_CHECKING:
    from landed.facts import Note
    from landed.ledger import Ledger
    from landed.workers.worker import Worker

STUCK_S: Final = 5.0
"""After the grace, and after that time as well, what has not ended will not end by itself."""


class WorkOptions(NamedTuple):
    """What one worker was asked to do."""

    lanes: tuple[str, ...] | None
    concurrency: int | None
    is_once: bool
    grace_s: float
    as_json: bool
    is_migrating: bool


def work(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:LEDGER", help="Where the ledger is declared.")
    ],
    *,
    lanes: Annotated[
        str | None,
        typer.Option(
            help="Only these, by comma: handle, relay, alert, effect, reconcile, reaper, keeper; "
            "effect:NAME is one recipient's."
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Attempts at one recipient at once, at most.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and leave.")] = False,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="In place of the one that is declared.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that open sends may take after SIGTERM.")
    ] = 10.0,
    migrate: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Apply missing migrations at the start.")
    ] = True,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log on standard error.")
    ] = LogFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log gauges as well.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Work for a ledger, until SIGTERM or Ctrl-C.

    Then it claims nothing more, lets open sends finish within the grace, and leaves the rest open:
    they are asked about later, and never sent again on a guess. Any number of workers may run.

    Example: landed work app:ledger --lanes effect,reconcile
    """
    from landed.cli.loading import load_ledger
    from landed.cli.logs import log_to
    from landed.clock import SystemClock

    ledger = load_ledger(target, database)
    note = _both(ledger.note, log_to(log_format, SystemClock(), is_verbose=verbose))
    options = WorkOptions(
        lanes=None if lanes is None else tuple(filter(None, map(str.strip, lanes.split(",")))),
        concurrency=concurrency,
        is_once=once,
        grace_s=grace,
        as_json=as_json,
        is_migrating=migrate,
    )
    with suppress(asyncio.CancelledError):  # told twice to end
        asyncio.run(_work(ledger, options, note))


async def _work(ledger: Ledger, options: WorkOptions, note: Note) -> None:
    from landed.workers.desk import Desk
    from landed.workers.worker import Worker, agents_of, lane_of

    # First of all, so that a stop while it starts is a stop in good order as well.
    ending = _Ending(options.grace_s)
    try:
        await ledger.start(is_migrating=options.is_migrating)
        desk = Desk(
            engine=ledger.engine,
            books=ledger.books,
            registry=ledger.registry,
            worker=f"{socket.gethostname()}/{os.getpid()}",
            note=note,
            chance=ledger.chance,
        )
        agents = agents_of(desk, lanes=options.lanes, slots=options.concurrency)
        worker = Worker(agents, note=note, grace_s=options.grace_s)
        ending.stops(worker)
        if options.is_once:
            done = await worker.run_until_idle()
            typer.echo(
                json.dumps({"done": done}) if options.as_json else f"landed work: {done} done"
            )
            return
        names = [lane_of(agent) for agent in agents]
        typer.echo(
            json.dumps({"working": ledger.name, "lanes": names})
            if options.as_json
            else f"landed work: working for {ledger.name}"
        )
        await worker.run()
    finally:
        ledger.close()


class _Ending:
    """The first signal stops the worker in good order; a second one does not wait for the grace."""

    def __init__(self, grace_s: float) -> None:
        self._signals = 0
        self._leave_s = grace_s + STUCK_S
        self._worker: Worker | None = None
        self._running = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._come)

    def stops(self, worker: Worker) -> None:
        self._worker = worker
        if self._signals:
            worker.stop()

    def _come(self) -> None:
        self._signals += 1
        if self._signals == 1:
            leave_after(self._leave_s)
        if self._worker is not None:
            self._worker.stop()
        if self._signals > 1 and self._running is not None:
            self._running.cancel()


def leave_after(seconds: float) -> None:
    """End the process so many seconds from now if it has not ended by itself.

    A database that neither answers nor hangs up holds the thread that waits for it, and Python waits
    for its threads. To be killed at any moment is what the records are made for: nothing is lost.
    """

    def leave() -> None:
        typer.echo(
            f"landed work: the database kept silent for {seconds:g} s after the stop; left as after "
            "a kill: what was open is asked about later",
            err=True,
        )
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _both(first: Note, second: Note) -> Note:
    def note(name: str, fields: Mapping[str, object]) -> None:
        first(name, fields)
        second(name, fields)

    return note
