"""The processes of the payments' half, and what is served by which."""

from __future__ import annotations

import asyncio
from pathlib import Path

from landed.demo.children import Child, landed, module
from landed.facts import Note, forget

HOST = "127.0.0.1"


class Payments:
    """The neighbours, the boundary with its page, and the worker.

    Args:
        folder: where their databases and logs lie.
        url: of the demo; the shop sends its webhooks there, as everybody would.
        note: takes what happens to the processes.
    """

    def __init__(self, folder: Path, url: str, *, note: Note = forget) -> None:
        where = str(folder.resolve())
        self.neighbours = Child(
            "neighbours",
            lambda port: module(
                "landed.demo.payments.neighbours",
                *("--folder", where, "--port", str(port), "--hooks", f"{url}/payments/hooks/shop"),
            ),
            ready="landed demo neighbours: listening on",
            folder=folder,
            note=note,
        )
        self.service = Child(
            "payments",
            lambda port: module(
                "landed.demo.payments.service", "--folder", where, "--port", str(port)
            ),
            ready="landed demo payments: listening on",
            folder=folder,
            note=note,
        )
        self.worker = Child(
            "worker",
            lambda _port: landed(
                *("work", "landed.demo.payments.billing:ledger", "--grace", "4"),
                *("--database", f"sqlite:///{where}/payments.sqlite"),
            ),
            ready="landed work: working",
            folder=folder,
            note=note,
            has_port=False,
            environment=lambda: {"LANDED_DEMO_NEIGHBOURS": f"http://{HOST}:{self.neighbours.port}"},
        )
        self.children = (self.neighbours, self.service, self.worker)

    def takes(self, path: str) -> Child | None:
        """Which process a request is for; None: it is none of ours."""
        if path.startswith("/payments/their/"):
            return self.neighbours
        if path == "/payments" or path.startswith("/payments/"):
            return self.service
        return None

    async def start(self) -> None:
        """Start them; the worker last, for it needs the others' tables and addresses.

        Raises:
            ChildFailedError: one ended before it was ready.
        """
        async with asyncio.TaskGroup() as starts:
            starts.create_task(self.neighbours.start())
            starts.create_task(self.service.start())
        await self.worker.start()

    async def stop(self) -> None:
        """Stop them all."""
        await asyncio.gather(*(child.stop() for child in self.children))
