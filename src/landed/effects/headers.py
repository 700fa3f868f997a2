"""How a version and a deadline travel with a request, as text (rules OR-5, RP-10).

``Landed-Fence: DOMAIN/KEY/VERSION``, domain and key percent-encoded; ``Landed-Expires`` is in
milliseconds since 1970. Sender and recipient both read and write them here.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote


class FenceText(NamedTuple):
    """What a fence compares: a version, within a key of a domain."""

    domain: str
    key: str
    version: int


def fence_text(fence: FenceText) -> str:
    """Write a fence as a header's value."""
    return f"{quote(fence.domain, safe='')}/{quote(fence.key, safe='')}/{fence.version}"


def parse_fence(text: str) -> FenceText:
    """Read a fence from a header's value.

    Raises:
        ValueError: it is none.
    """
    parts = text.split("/")
    if len(parts) != 3 or not parts[2].isascii() or not parts[2].isdecimal():
        raise ValueError(f"a fence is DOMAIN/KEY/VERSION, not {text[:100]!r}")
    return FenceText(unquote(parts[0]), unquote(parts[1]), int(parts[2]))


def expires_text(expires_us: int) -> str:
    """Write a deadline (microseconds since 1970) as a header's value; never later than it is."""
    return str(expires_us // 1000)


def parse_expires(text: str) -> int:
    """Read a deadline, microseconds since 1970.

    Raises:
        ValueError: it is none.
    """
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"a deadline is milliseconds since 1970, not {text[:100]!r}")
    return int(text) * 1000
