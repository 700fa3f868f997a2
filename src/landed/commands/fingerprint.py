"""``fingerprint``: what a command wishes, in 32 bytes that every replica computes alike."""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from uuid import UUID

FINGERPRINT_VERSION: Final = 1
"""Of the canonical form below. Told by services, so that a fleet can be compared."""


def fingerprint(operation: str, *parts: tuple[str, UUID | int | str]) -> bytes:
    """Hash an operation and its parts, in the order given.

    The bytes hashed are ``fp1``, the operation and one ``name:value`` a part, joined by line feeds,
    UTF-8: ``fingerprint("deposit", ("account", account_id), ("cents", 50))``. UUIDs are written in
    lower case. The spelling of JSON, the order of headers and unknown members thus do not matter.

    Raises:
        ValueError: a line feed in a text, which could make two wishes look alike.

    Source: rule SW-79.
    """
    canonical = "\n".join(["fp1", operation, *[f"{name}:{value}" for name, value in parts]])
    if canonical.count("\n") != len(parts) + 1:
        raise ValueError("a part of a fingerprint holds no line feed")
    return sha256(canonical.encode()).digest()
