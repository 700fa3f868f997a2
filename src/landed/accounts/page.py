"""The page: static files, served from the package. No build step, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Response

_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def install(app: FastAPI) -> None:
    """Serve the page at the root of an app, and the files beside it by their names."""
    for file in (files("landed.accounts") / "static").iterdir():
        kind = _KINDS.get("." + file.name.rpartition(".")[2])
        if kind is None:
            continue  # an editor's leftovers are nobody's page
        path = "/" if file.name == "index.html" else f"/{file.name}"
        app.add_api_route(path, _sender(file.read_bytes(), kind), methods=["GET", "HEAD"])


def _sender(data: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(data, media_type=kind, headers=_HEADERS)

    return send
