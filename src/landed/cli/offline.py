"""``landed offline``: look at a device's queue, send it, and the few things a person decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from landed.offline import AsyncQueue, Status, Synced

offline = typer.Typer(
    name="offline", help="Look at a device's queue of events, and send it.", no_args_is_help=True
)

_Store = Annotated[Path, typer.Argument(help="The queue's file.", metavar="STORE")]
_Log = Annotated[str, typer.Option("--log", help="The log: landed://host:port, or sqlite:///path.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@offline.command()
def status(store: _Store, as_json: _Json = False) -> None:
    """Say what is queued, what stands still and why. Works beside the application that owns it.

    Example: landed offline status notes.db
    """
    from landed.offline import status_of

    found = status_of(store)
    if as_json:
        typer.echo(json.dumps(_status_fields(found)))
        return
    typer.echo(
        f"{found.queued} queued ({found.attempted} of them may be in the log), {found.synced} "
        f"synced, {found.abandoned} abandoned; {found.used_bytes} bytes"
    )
    typer.echo(f"client id {found.client_id}, next number {found.next_seq}")
    for blocked in found.blocked:
        typer.echo(_blocked_line(blocked))
    if found.fault:
        typer.echo(f"stopped: {found.fault}")


@offline.command()
def sync(
    store: _Store,
    log: _Log,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to keep trying; 0 for ever.")
    ] = 60.0,
    as_json: _Json = False,
) -> None:
    """Send what is queued, in order. Stopping it at any moment loses and doubles nothing.

    Exits with 1 if anything is left.

    Example: landed offline sync notes.db --log landed://log.example:10000
    """
    from rich.console import Console
    from rich.progress import Progress

    from landed.offline import status_of

    console = Console(stderr=True)
    queued = status_of(store).queued if store.is_file() else 0
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("sending", total=queued)

        def note(name: str, fields: Any) -> None:
            if name == "offline.landed":
                bar.update(task, advance=fields["events"], description="sending")
            elif name == "offline.held":
                bar.update(task, description=f"waiting: {fields['reason'][:60]}")

        async def send(queue: AsyncQueue, opened: Any) -> Synced:
            return await queue.sync(opened, timeout_s=timeout or None)

        synced: Synced = _with_queue(store, log, send, note=note)
    if as_json:
        fields = {
            "landed": synced.landed,
            "left": synced.left,
            "blocked": [_blocked_fields(one) for one in synced.blocked],
            "in_time": synced.is_in_time,
            "last_trouble": synced.last_trouble,
        }
        typer.echo(json.dumps(fields))
    else:
        typer.echo(f"{synced.landed} landed, {synced.left} left")
        for blocked in synced.blocked:
            typer.echo(_blocked_line(blocked))
        if not synced.is_in_time:
            typer.echo(f"the time was up; last trouble: {synced.last_trouble or 'none'}")
    if synced.left:
        raise typer.Exit(1)


@offline.command()
def recover(store: _Store, log: _Log, as_json: _Json = False) -> None:
    """Put a store right that was restored from a backup or copied.

    Asks the log which of its events are there. Those are marked; events whose numbers are another's
    get new numbers, which are printed.

    Example: landed offline recover notes.db --log landed://log.example:10000
    """

    async def look(queue: AsyncQueue, opened: Any) -> Any:
        return await queue.recover(opened)

    found = _with_queue(store, log, look)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
        return
    typer.echo(f"{len(found.synced)} found in the log")
    for old, new in found.renumbered:
        typer.echo(f"number {old} is {new} now")
    for seq in found.stuck:
        typer.echo(f"nobody can tell whether {seq} landed: abandon it, save it again if missing")


@offline.command()
def abandon(
    store: _Store,
    number: Annotated[int, typer.Option(help="The event's number.")],
    reason: Annotated[str, typer.Option(help="Why. Kept with the event.")],
) -> None:
    """Give one queued event up; what is behind it goes on. Not undone.

    Example: landed offline abandon notes.db --number 17 --reason "the form no longer exists"
    """
    from landed.offline import Queue

    _insist_on(store)
    with Queue.open(store) as queue:
        queue.abandon(number, reason)
    typer.echo(f"number {number} is abandoned")


@offline.command()
def unblock(
    store: _Store,
    key: Annotated[str, typer.Option(help="The aggregate: org/type/id, three UUIDs.")],
) -> None:
    """Try a blocked aggregate again at the next sync.

    Example: landed offline unblock notes.db --key ORG/TYPE/ID
    """
    from landed.ids import AggregateKey
    from landed.offline import Queue

    try:
        aggregate = AggregateKey.parse(key)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--key") from None
    _insist_on(store)
    with Queue.open(store) as queue:
        was_blocked = queue.unblock(aggregate)
    typer.echo("will be tried again" if was_blocked else "it was not blocked")


def _with_queue(store: Path, url: str, work: Any, **options: Any) -> Any:
    import asyncio

    from landed.connect import connect
    from landed.offline import AsyncQueue

    _insist_on(store)

    async def run() -> Any:
        async with await AsyncQueue.open(store, **options) as queue, await connect(url) as log:
            return await work(queue, log)

    return asyncio.run(run())


def _insist_on(store: Path) -> None:
    """A mistyped path must not make a new, empty queue with an identity of its own."""
    from landed.errors import ConfigurationError

    if not store.is_file():
        raise ConfigurationError(f"there is no queue at {store}")


def _status_fields(found: Status) -> dict[str, object]:
    fields = found._asdict()
    fields.pop("limit_bytes")
    fields["client_id"] = str(found.client_id)
    fields["blocked"] = [_blocked_fields(one) for one in found.blocked]
    return fields


def _blocked_fields(blocked: Any) -> dict[str, object]:
    return {**blocked._asdict(), "key": str(blocked.key)}


def _blocked_line(blocked: Any) -> str:
    code = f" ({blocked.code})" if blocked.code else ""
    return (
        f"blocked: {blocked.key} at number {blocked.client_seq}, {blocked.queued} waiting: "
        f"{blocked.reason}{code}"
    )
