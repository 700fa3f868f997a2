"""What an ``Idempotency-Key`` header says, and the event id it stands for.

Pure: no framework, no clock. Source: safe-writes SW-118 to SW-120, design decisions 22 and 23a, and
the IETF draft "The Idempotency-Key HTTP Header Field" (a structured-field item, RFC 9651).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from landed.commands import ServiceIdentity
from landed.ids import EventId

KEY_LENGTH_MAX: Final = 255
"""Characters of a key's text; what every proxy and log lets through."""

_BARE: Final = re.compile(r"[A-Za-z0-9_.:~+/=-]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Only the dashed form, in any letter case (design decision 23a)."""

_STRING: Final = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_BARE_ITEM: Final = (
    rf"(?:{_STRING}|%{_STRING}|@?-?[0-9]{{1,15}}(?:\.[0-9]{{1,3}})?|\?[01]|:[A-Za-z0-9+/=]*:"
    r"|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)"
)
_ITEM: Final = re.compile(rf"({_STRING})(?:; *[a-z*][a-z0-9_.*-]*(?:={_BARE_ITEM})?)*")


class BadKeyError(ValueError):
    """The header is no key. It is refused, and never replaced by a minted one (SW-118)."""


class RequestKey(NamedTuple):
    """One user intent, as its caller names it and as the log will know it."""

    text: str
    """What the header means; a UUID in lower case."""
    echo: str
    """What the caller wrote, to be said back to it; or the minted key."""
    event_id: EventId
    """What is stamped on every event of the request."""
    is_minted: bool
    """The caller sent none, so that only this answer tells it."""


def read_key(
    lines: Sequence[str],
    identity: ServiceIdentity,
    *,
    scope: str,
    mint: Callable[[], UUID],
    is_required: bool = False,
) -> RequestKey:
    """Read the key of one request, the same on every replica of one service.

    Args:
        lines: the values of every ``Idempotency-Key`` line of the request, none to several.
        identity: of the service; textual keys live in a namespace made from its client id.
        scope: the authenticated caller; empty where callers are not told apart. Callers of
            different scopes never share an event id, even for one text (case BC-15).
        mint: makes a fresh identity for a request without a key, once a request (SW-10).
        is_required: refuse a request without a key instead.

    Raises:
        BadKeyError: no key in it, several lines, or none at all where one is required.
    """
    if len(lines) > 1:
        raise BadKeyError("more than one Idempotency-Key line")
    if not lines and is_required:
        raise BadKeyError("this service wants an Idempotency-Key on every change")
    text = key_text(lines[0]) if lines else str(mint())
    echo = lines[0].strip(" \t") if lines else text
    return RequestKey(text, echo, identity.event_id_of(text, scope=scope), is_minted=not lines)


def key_text(value: str) -> str:
    """Return the text that a header value means: quoted and bare forms of a text are one key.

    Raises:
        BadKeyError: empty, blank, too long, the nil UUID, or outside both grammars.
    """
    value = value.strip(" \t")
    if item := _ITEM.fullmatch(value):
        text = re.sub(r"\\(.)", r"\1", item[1][1:-1])
    elif _BARE.fullmatch(value):
        text = value
    else:
        raise BadKeyError(
            'a key is a quoted string such as "8e03978e-40d5-43e8-bc93-6894a57f9324", or bare '
            "letters, digits and -_.:~+/="
        )
    if not text.strip():
        raise BadKeyError("the key is blank")
    if len(text) > KEY_LENGTH_MAX:
        raise BadKeyError(f"a key has at most {KEY_LENGTH_MAX} characters, not {len(text)}")
    if not _UUID.fullmatch(text):
        return text
    if UUID(text).int == 0:
        raise BadKeyError("the nil UUID names nothing")
    return text.lower()
