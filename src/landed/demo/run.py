"""The demo as a whole: start everything, say where it is, wait, leave nothing behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from landed.accounts.serving import bind
from landed.demo.balancer import Backend, Balancer, Loss
from landed.demo.bank import CLIENT_ID, open_accounts, write_names
from landed.demo.children import FAILURES, Child, State, landed
from landed.demo.controls import Controls
from landed.demo.http import RequestHead
from landed.demo.payments.processes import Payments
from landed.errors import ConfigurationError, ListenFailedError, StorageError
from landed.facts import Note, forget

HOST: Final = "127.0.0.1"
REPLICAS: Final = ("replica-a", "replica-b")


def prepare(folder: Path) -> None:
    """Make the demo's folder and what the replicas read from it.

    Raises:
        ConfigurationError: it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_names(folder / "names.json")
    except OSError as e:
        raise ConfigurationError(f"cannot write to {folder}: {e.strerror}") from None


async def run_demo(
    folder: Path,
    port: int,
    *,
    ending: asyncio.Future[None],
    on_ready: Callable[[int], None],
    note: Note = forget,
) -> None:
    """Run the demo until ``ending`` is done.

    Args:
        folder: made by ``prepare``; keeps the log, so that a demo started again has its money.
        port: of the page, on loopback; 0 picks one.
        ending: done when the demo should end.
        on_ready: told the port once everything runs.
        note: takes what happens to the children and the answers.

    Raises:
        ListenFailedError: the port is taken.
        StorageError: a part did not start; the text is what it said.
    """
    server, replicas = _children(folder, note)
    loss = Loss()
    try:
        listening = bind(HOST, port)
    except OSError as e:
        raise ListenFailedError(HOST, port, e.strerror or str(e)) from None
    bound = listening.getsockname()[1]
    payments = Payments(folder, f"http://{HOST}:{bound}", note=note)
    balancer = Balancer(
        lambda: _running(replicas),
        control=Controls(replicas, loss, others=payments.children),
        loss=loss,
        dice=random.Random(),  # noqa: S311  # which answer is lost is no secret
        elsewhere=lambda head: _payments_backend(head, payments),
        note=note,
    )
    async with AsyncExitStack() as stack:
        await balancer.start(listening)
        stack.push_async_callback(balancer.close)
        starting = asyncio.create_task(_start(server, replicas, payments, stack))
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        try:
            await starting
        except (ExceptionGroup, *FAILURES) as failed:
            cause = _first(failed)
            if not isinstance(cause, FAILURES):
                raise
            raise StorageError(f"the demo did not start: {cause}") from None
        on_ready(bound)
        await ending


async def _start(
    server: Child, replicas: Sequence[Child], payments: Payments, stack: AsyncExitStack
) -> None:
    """Start both halves side by side; what is started is stopped in reverse."""
    stack.push_async_callback(server.stop)
    stack.push_async_callback(_stop_all, replicas)
    stack.push_async_callback(payments.stop)
    async with asyncio.TaskGroup() as starts:
        starts.create_task(_start_accounts(server, replicas))
        starts.create_task(payments.start())


async def _start_accounts(server: Child, replicas: Sequence[Child]) -> None:
    """The log, then the replicas side by side, then the accounts' first deposits."""
    await server.start()
    async with asyncio.TaskGroup() as starts:
        for replica in replicas:
            starts.create_task(replica.start())
    await open_accounts(HOST, replicas[0].port)


def _payments_backend(head: RequestHead, payments: Payments) -> Backend | None:
    """Who alone takes a request, if it is for the payments' half of the demo."""
    child = payments.takes(head.target.partition("?")[0])
    return None if child is None else Backend(child.name, HOST, child.port)


def _first(failed: Exception) -> Exception:
    """The failure itself, out of whatever groups it came in."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    return failed


async def _stop_all(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))


def _children(folder: Path, note: Note) -> tuple[Child, list[Child]]:
    log_file = (folder / "log.sqlite").resolve()
    server = Child(
        "log",
        lambda port: landed(
            "serve", "--listen", f"{HOST}:{port}", "--engine", f"sqlite:///{log_file}"
        ),
        ready="landed: listening on",
        folder=folder,
        note=note,
    )

    def replica(name: str) -> Child:
        return Child(
            name,
            lambda port: landed(
                *("accounts", "--listen", f"{HOST}:{port}", "--replica", name),
                *("--log", f"landed://{HOST}:{server.port}", "--projection", "memory"),
                *("--client-id", CLIENT_ID, "--names", str(folder / "names.json")),
            ),
            ready="landed accounts: listening on",
            folder=folder,
            note=note,
        )

    return server, [replica(name) for name in REPLICAS]


def _running(replicas: Sequence[Child]) -> list[Backend]:
    """The replicas to try: all that are not known to be down."""
    return [
        Backend(replica.name, HOST, replica.port)
        for replica in replicas
        if replica.state is State.RUNNING
    ]
