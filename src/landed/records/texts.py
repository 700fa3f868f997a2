"""Which texts both databases can hold, and what becomes of others."""

from __future__ import annotations


def is_storable(text: str) -> bool:
    """Say whether both databases can hold a text: Unicode, without the null character."""
    return text == storable(text)


def storable(text: str) -> str:
    """The text, with a question mark for each character that a database cannot hold.

    For what strangers say (an error, a recipient's id): that it was said must not be lost for it.
    """
    return text.encode(errors="replace").decode().replace("\0", "?")
