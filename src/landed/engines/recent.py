"""Dictionaries as caches, in the order of use: who is used is taken out and put back."""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")

SLACK: Final = 16
"""A cache may be larger than its bound by one in so many, since cutting it takes a copy."""


def cut(cache: dict[_K, _V], bound: int) -> dict[_K, _V]:
    """The same cache if it is about within its bound, else a new one of the ``bound`` newest.

    A copy, because a dictionary that loses its oldest entries one by one grows to twice the size
    and finds its oldest entry slowly: it keeps the places of what was dropped.
    """
    if len(cache) <= bound + bound // SLACK:
        return cache
    return dict(islice(cache.items(), len(cache) - bound, None))
