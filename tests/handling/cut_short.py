"""Acts in a process of their own, killed within their transaction or right after its commit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, event, update

from landed.deliveries.event import IdentityRule
from landed.deliveries.producer import Producer
from landed.ledger import StandardWebhooks
from landed.ledger.event_type import event_types
from landed.records import actions, migrations, quarantine, retention
from landed.records.session import Books, open_engine, transact
from landed.registry import Handler, Registry
from landed.testing import crash_at
from landed.workers.backfill import Clerk, go
from landed.workers.sources import DeliveryFile
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.crash_child import _import_path, _processes
from tests.handling.doors import KEY, TYPE
from tests.handling.ledgers import bills, shop

Act = Callable[..., object]
AFTER = "after the commit"


def cut_short(act: Act, url: str, *arguments: object, at: int | str) -> bool:
    """Run ``act(engine, books, *arguments)`` in a new process; says whether it was killed.

    ``at``: the number of the statement before which SIGKILL comes, or ``AFTER`` the commit, before
    anybody is told of it. An act with fewer statements comes to its end.
    """
    process = _processes.Process(target=_main, args=(act, url, arguments, at))
    with _import_path():
        process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join(30)
        raise AssertionError("it did not come to an end")
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def _main(act: Act, url: str, arguments: tuple[object, ...], at: int | str) -> None:
    engine = open_engine(url)
    left = at if isinstance(at, int) else -1

    def _kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(engine, "before_cursor_execute")
    def _count(_conn: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        nonlocal left
        if statement.startswith(("SELECT set_config", "PRAGMA", "SHOW")):
            return
        if left == 0:
            _kill()
        left -= 1

    act(engine, Books(LEDGER, DIGEST_KEY), *arguments)
    if at == AFTER:
        _kill()
    engine.dispose()


# --- Acts ----------------------------------------------------------------------------------------

SHOP = Producer(
    namespace="shop",
    authentication=StandardWebhooks(keys=(KEY,)),
    types=event_types({TYPE: None}),
    identity=IdentityRule.WEBHOOK_ID,
)


def route(_event: object, _data: object) -> tuple[quarantine.Route, ...]:
    return (quarantine.Route("bill"),)


def release(engine: Engine, books: Books, receipt_id: Any, action_id: Any) -> actions.Done:
    """An operator releases an event that was set aside."""
    action = actions.Action(action_id=action_id, actor="ann", reason="it is declared now")
    return transact(
        engine,
        lambda conn: actions.release_quarantine(
            conn, books, action, receipt_id, producer=SHOP, routes=route
        ),
    )


def scrub(engine: Engine, books: Books, policy: retention.Policy) -> retention.Scrubbed:
    """The keeper scrubs one batch."""
    return transact(engine, lambda conn: retention.scrub_due(conn, books, policy))


def backfill(engine: Engine, books: Books, run_id: UUID, path: Path, passes: int) -> object:
    """A run takes its items, until it is killed with a batch taken and not counted (KP-27)."""
    registry = Registry()
    registry.add_producer(SHOP)
    registry.add_handler(Handler(name="bill", function=release, namespace="shop", event_type=TYPE))
    clerk = Clerk(
        engine=engine,
        books=books,
        registry=registry,
        note=crash_at("KP-27", passes=passes),
        batch=4,
    )
    return asyncio.run(go(clerk, run_id, DeliveryFile(path)))


def grow_by_ten(engine: Engine, books: Books, point: str) -> object:
    """A worker handles an event, until it is killed at a crash point (KP-7, KP-8)."""

    def grow(tx: Any, _event: Any) -> None:
        tx.conn.execute(update(bills).values(cents=bills.c.cents + 10))

    url = engine.url.render_as_string(hide_password=False)
    with shop(LedgerDb("", url, books, engine), grow) as made:
        return asyncio.run(made.agent(note=crash_at(point)).run_once())


def migrate(engine: Engine, books: Books) -> object:
    """A replica brings the tables up to date."""
    return migrations.migrate(engine, books)
