"""The boundary and the page of the demo's billing: ``python -m landed.demo.payments.service``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from landed.accounts.serving import bind
from landed.demo.payments import reading
from landed.demo.payments.billing import ledger, metadata
from landed.demo.payments.serving import HOST, Server, until_told
from landed.errors import ActionRefusedError
from landed.records import contracts, effect_actions, settle
from landed.records.actions import Action
from landed.records.effects import view
from landed.records.session import transact

READY: Final = "landed demo payments: listening on"
_FILES: Final = {
    "": ("landed.demo.payments", "index.html", "text/html; charset=utf-8"),
    "/payments.css": ("landed.demo.payments", "payments.css", "text/css; charset=utf-8"),
    "/payments.js": ("landed.demo.payments", "payments.js", "text/javascript; charset=utf-8"),
    "/page.css": ("landed.accounts", "page.css", "text/css; charset=utf-8"),
    "/dom.js": ("landed.accounts", "dom.js", "text/javascript; charset=utf-8"),
}
"""By path below /payments; what the accounts page has already is served from there."""
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def make_app() -> Starlette:
    """The page, what it reads, and the boundary under /payments/hooks. The ledger must be ready."""
    routes: list[BaseRoute] = [
        Route("/payments/api/state", _state),
        Route("/payments/api/stories/{id}", _stories),
        Route("/payments/api/ask/{id}", _ask, methods=["POST"]),
        Mount("/payments/hooks", ledger.asgi()),
    ]
    for path, (package, name, kind) in _FILES.items():
        data = (files(package) / "static" / name).read_bytes()
        routes.append(Route(f"/payments{path}", _sender(data, kind)))
    return Starlette(routes=routes)


def _sender(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def _send(_request: Request) -> Response:
        return Response(data, media_type=kind, headers=_HEADERS)

    return _send


async def _state(_request: Request) -> Response:
    return _json(await _read(lambda conn: reading.overview(conn, ledger.books)))


async def _stories(request: Request) -> Response:
    try:
        id = UUID(request.path_params["id"])
    except ValueError:
        return JSONResponse({"detail": "not an id"}, 404)
    told = await _read(lambda conn: reading.stories(conn, ledger.books, id))
    return JSONResponse({"detail": "no such receipt"}, 404) if told is None else _json(told)


async def _ask(request: Request) -> Response:
    """Have a recipient asked now, as ``landed unknown ask`` does; the worker does the asking."""
    if request.headers.get("content-type") != "application/json":
        return JSONResponse({"detail": "send application/json"}, 415)
    try:
        id = UUID(request.path_params["id"])
        await asyncio.to_thread(transact, ledger.engine, lambda conn: _asked_about(conn, id))
    except (ValueError, ActionRefusedError) as e:
        return JSONResponse({"detail": str(e)}, 409)
    return _json({"asked": str(id)})


def _asked_about(conn: Connection, id: UUID) -> None:
    effect = view(conn, id)
    contract = None if effect is None else contracts.load(conn, effect.contract_digest)
    if contract is None:
        raise ValueError(f"there is no effect {id} that can be asked about")
    action = Action(action_id=uuid4(), actor="the demo's page", reason="somebody pressed Ask now")
    case = effect_actions.Case(id, contract, settle.Delays())
    effect_actions.reconcile(conn, ledger.books, action, case)


async def _read(work: Callable[[Connection], Any]) -> Any:
    return await asyncio.to_thread(transact, ledger.engine, work, is_durable=False)


def _json(document: Any) -> Response:
    return JSONResponse(document, headers={"Cache-Control": "no-store"})


async def run(folder: Path, port: int) -> None:
    """Serve until SIGTERM.

    Raises:
        LandedError: the database cannot be used.
    """
    ledger.use_database(folder / "payments.sqlite")
    await ledger.start()
    try:
        with ledger.engine.begin() as conn:
            metadata.create_all(conn)
        listening = bind(HOST, port)
        bound = listening.getsockname()[1]
        server = Server(
            make_app(),
            on_ready=lambda: print(f"{READY} http://{HOST}:{bound}", flush=True),  # noqa: T201
        )
        await until_told(server, listening)
    finally:
        await ledger.aclose()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.port))


if __name__ == "__main__":
    main()
