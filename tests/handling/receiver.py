"""Processes that receive and are killed: a server that forks one for every life it is asked for.

One request a line on standard input, one answer a line on standard output. Forking from a process
that only imported keeps a life at a few milliseconds; SIGKILL keeps it real.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from landed.deliveries.event import IdentityRule
from landed.records.session import Books
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.doors import door, plain_ledger
from tests.lines import kill_with_children, next_line


@contextmanager
def receivers() -> Iterator[Receivers]:
    """A server of lives; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.handling.receiver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Receivers(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            kill_with_children(process)
            raise
        assert process.stdout is not None
        process.stdout.close()


class Receivers:
    """Asks for lives."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def live(
        self,
        url: str,
        events: list[dict[str, Any]],
        *,
        processes: int = 1,
        at_once: bool = False,
        **kill: Any,
    ) -> list[dict[str, Any]]:
        """Deliver events in new processes; by process its answers, and the signal it died of.

        ``kill`` is ``point="KP-1"``, ``statement=3`` or ``commit="before"`` (or ``"after"``).
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"url": url, "events": events, "at_once": at_once, "kill": kill}
        self._process.stdin.write(json.dumps([request] * processes) + "\n")
        self._process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(next_line(self._process))
        return answer


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        started = [_fork(request) for request in json.loads(line)]
        results = []
        for pid, reader in started:
            with os.fdopen(reader) as pipe:
                answers = [json.loads(told) for told in pipe]
            _, status = os.waitpid(pid, 0)
            results.append({"answers": answers, "signal": os.waitstatus_to_exitcode(status)})
        print(json.dumps(results), flush=True)


def _fork(request: Mapping[str, Any]) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    try:
        asyncio.run(_live(request, writer))
    finally:
        os._exit(0 if sys.exception() is None else 1)


async def _live(request: Mapping[str, Any], writer: int) -> None:
    kill = request["kill"]

    def note(name: str, fields: Mapping[str, object]) -> None:
        if name == "kp" and fields["point"] == kill.get("point"):
            os.kill(os.getpid(), signal.SIGKILL)

    db = LedgerDb("", request["url"], Books(LEDGER, DIGEST_KEY), None)  # type: ignore[arg-type]
    made = plain_ledger(db, identity=IdentityRule.CLOUDEVENTS)
    engine = made[0].engine
    made[0].prepare()
    async with door(db, ledger=made, note=note) as at:
        # What opens and beats is not what is killed here.
        await at.intake._door()
        at.intake._do_chores = lambda: None  # type: ignore[method-assign]
        _arm(engine, kill)

        async def deliver(wanted: Mapping[str, Any]) -> None:
            answer = await at.post(at.cloudevent(**wanted))
            told = {
                "status": answer.status_code,
                "disposition": answer.headers.get("landed-disposition"),
                "receipt": answer.headers.get("landed-receipt"),
            }
            os.write(writer, json.dumps(told).encode() + b"\n")

        if request["at_once"]:
            await asyncio.gather(*map(deliver, request["events"]))
        else:
            for wanted in request["events"]:
                await deliver(wanted)


def _arm(engine: Any, kill: Mapping[str, Any]) -> None:
    left = kill.get("statement")

    @event.listens_for(engine, "before_cursor_execute")
    def _count(*_: object) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if "commit" in kill:
        commit = engine.dialect.do_commit

        def killed(connection: Any) -> None:
            if kill["commit"] == "after":
                commit(connection)
            os.kill(os.getpid(), signal.SIGKILL)

        engine.dialect.do_commit = killed


if __name__ == "__main__":
    main()
