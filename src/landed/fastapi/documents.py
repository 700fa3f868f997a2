"""Problem documents for what the framework itself refuses: 404, 405, 422, and bugs.

Optional: an app whose other routes answer errors in their own way leaves this out.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from landed.fastapi.glue import SafeWrites
from landed.fastapi.problems import TABLE, Problem, Row, problem

_BY_STATUS: Final = {row.status: code for code, row in TABLE.items() if row.type == "about:blank"}


def problem_documents(app: FastAPI, safe: SafeWrites[Any]) -> None:
    """Answer every error of an app with a problem document."""

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = safe.respond(request, _of_status(error.status_code, str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return safe.respond(request, problem("BAD_REQUEST", f"{where}: {first['msg']}"))

    async def on_bug(request: Request, _error: Exception) -> Response:
        return safe.respond(request, problem("INTERNAL_ERROR", "a bug; see the service's log"))

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_bug)


def _of_status(status: int, detail: str) -> Problem:
    if code := _BY_STATUS.get(status):
        return problem(code, detail)
    row = Row(status, "about:blank", detail, None, is_retryable=False)
    return Problem(f"HTTP_{status}", row, detail, {})
