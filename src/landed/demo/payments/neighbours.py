"""Who is not ours: a shop that sends webhooks, a bank, and a mail house. Both recipients lose answers.

Run as ``python -m landed.demo.payments.neighbours``. The recipients keep their promises with
``landed.recipient``, on a database of their own; answers are lost by the same balancer as in front
of the replicas, after the recipient has committed and answered.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Engine, Integer, MetaData, Table, Text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from landed.accounts.serving import bind
from landed.clock import SystemClock
from landed.demo.balancer import Backend, Balancer, Loss
from landed.demo.payments.serving import HOST, Server, until_told
from landed.demo.payments.shop import Shop
from landed.demo.payments.switches import Switches
from landed.fingerprint import parse_json
from landed.recipient import Answer, Promises
from landed.recipient.http import Asked, Recipient
from landed.records.session import open_engine

READY: Final = "landed demo neighbours: listening on"
WORK_S: Final = 0.3
"""How long a recipient takes over a request, so that one can see it being made."""

metadata: Final = MetaData()
charges: Final = Table(
    "charges",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("invoice", Text, nullable=False),
    Column("cents", BigInteger, nullable=False),
)
"""The bank's own ledger. Nothing makes an invoice unique in it: what is doubled is seen."""
mails: Final = Table(
    "mails",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("to", Text, nullable=False),
    Column("subject", Text, nullable=False),
)
_PROMISES: Final = Promises(
    key_retention_s=24 * 3600,
    success=(201,),
    refusals=(402,),
    has_fence=False,
    has_seal=False,
    expiry_tolerance_s=None,
)


def _charged(conn: Connection, asked: Asked) -> Answer:
    charge = parse_json(asked.body)
    assert isinstance(charge, dict)
    conn.execute(
        charges.insert().values(key=asked.key, invoice=charge["invoice"], cents=charge["cents"])
    )
    return Answer(201, asked.body)


def _mailed(conn: Connection, asked: Asked) -> Answer:
    mail = parse_json(asked.body)
    assert isinstance(mail, dict)
    conn.execute(mails.insert().values(key=asked.key, to=mail["to"], subject=mail["subject"]))
    return Answer(201, asked.body)


def recipients(engine: Engine, switches: Switches) -> ASGIApp:
    """The bank and the mail house as one application."""
    bank = Recipient(engine, _PROMISES, scope_of=lambda _: "bank")
    mail_house = Recipient(engine, _PROMISES, scope_of=lambda _: "mail")
    bank.prepare()
    with engine.begin() as conn:
        metadata.create_all(conn)

    async def charge(request: Request) -> Response:
        switches.asked += 1
        await asyncio.sleep(WORK_S)
        return await bank.act(request, _charged)

    async def mail(request: Request) -> Response:
        return await mail_house.act(request, _mailed)

    app = Starlette(
        routes=[
            Mount(
                "/bank",
                routes=[Route("/charges", charge, methods=["POST"]), *bank.routes()],
            ),
            Mount("/mail", routes=[Route("/mails", mail, methods=["POST"]), *mail_house.routes()]),
        ]
    )

    async def maybe_silent(scope: Scope, receive: Receive, send: Send) -> None:
        # Silence is about questions only: what it was told to do, it does.
        if scope["type"] == "http" and scope["method"] == "GET" and switches.is_silent:
            silent = JSONResponse({"detail": "the demo's switch says: no answers"}, 503)
            await silent(scope, receive, send)
        else:
            await app(scope, receive, send)

    return maybe_silent


async def run(folder: Path, port: int, hooks: str) -> None:
    """Serve until SIGTERM."""
    engine = open_engine(f"sqlite:///{folder / 'neighbours.sqlite'}")
    switches = Switches(Loss(), engine, charges, mails)
    shop = Shop(engine, hooks, clock=SystemClock())
    await asyncio.to_thread(shop.prepare)
    app = await asyncio.to_thread(recipients, engine, switches)
    inner = bind(HOST, 0)
    behind = Backend("neighbours", HOST, inner.getsockname()[1])
    balancer = Balancer(
        lambda: [behind],
        control=switches.control(shop),
        loss=switches.loss,
        dice=random.Random(),  # noqa: S311  # which answer is lost is no secret
    )
    listening = bind(HOST, port)
    bound = listening.getsockname()[1]
    await balancer.start(listening)
    server = Server(app, on_ready=lambda: print(f"{READY} http://{HOST}:{bound}", flush=True))  # noqa: T201
    try:
        await until_told(server, inner)
    finally:
        await balancer.close()
        await shop.close()
        engine.dispose()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--hooks", required=True)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.port, given.hooks))


if __name__ == "__main__":
    main()
