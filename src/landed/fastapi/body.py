"""Read a JSON body strictly: what two parsers could read differently is refused.

A member twice, a number that is no integer literal where an integer is wanted, another content type
or a body too large never becomes a guess. Source: safe-writes SW-115, design decision 23a.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect

from landed.fastapi.problems import ProblemError, refuse

BODY_BYTES_MAX: Final = 16 * 1024
"""A command is small. A larger body is refused before it is read to its end."""

T = TypeVar("T")


async def read_json(request: Request, *, bytes_max: int = BODY_BYTES_MAX) -> dict[str, object]:
    """Read the request's body as one JSON object.

    Integers of any size stay exact. A number with a fraction or an exponent becomes a float, even
    ``1.0`` and ``1e2``, so that a strict reader can refuse it.

    Raises:
        ProblemError: 415 not ``application/json``, 413 too large, 400 not a JSON object in UTF-8.
    """
    _check_content_type(request.headers.get("content-type", ""))
    data = await _read(request, bytes_max)
    try:
        text = data.decode()
        document = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_no_constant)
        if "\\u" in text:
            # Half a surrogate pair is no character: it could neither be stored nor hashed.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        raise refuse("BAD_REQUEST", f"the body is not strict JSON: {e}") from None
    if not isinstance(document, dict):
        raise refuse("BAD_REQUEST", "the body must be a JSON object")
    return document


def strict_body(
    kind: type[T], *, bytes_max: int = BODY_BYTES_MAX
) -> Callable[[Request], Coroutine[Any, Any, T]]:
    """Make a FastAPI dependency that reads the body into a ``msgspec.Struct`` or a dataclass.

    ``Depends(strict_body(Buy))``. An ``int`` field takes integer literals only: no ``1.0``, no
    ``1e2``, no text, no boolean. Unknown members are ignored.
    """

    async def body(request: Request) -> T:
        document = await read_json(request, bytes_max=bytes_max)
        try:
            return msgspec.convert(document, kind)
        except msgspec.ValidationError as e:
            raise refuse("BAD_REQUEST", str(e)) from None

    return body


def _check_content_type(value: str) -> None:
    kind, _, parameters = value.partition(";")
    is_json = kind.strip().lower() == "application/json"
    charset = parameters.strip().lower().replace('"', "")
    if not is_json or charset not in ("", "charset=utf-8"):
        raise refuse("UNSUPPORTED_MEDIA_TYPE", "send application/json in UTF-8")


async def _read(request: Request, bytes_max: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise _too_large(bytes_max)
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > bytes_max:
                raise _too_large(bytes_max)
    except ClientDisconnect:
        # Nobody is there to read this; but a caller who hangs up is no bug of the service.
        raise refuse("BAD_REQUEST", "the caller went away before the body was whole") from None
    return bytes(data)


def _too_large(bytes_max: int) -> ProblemError:
    return refuse("CONTENT_TOO_LARGE", f"a body has at most {bytes_max} bytes")


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice in one object")
    return members


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
