"""What production code notes about itself: the only instrument.

Floor 0. Logs, metrics, the simulator's history and coverage marks in tests all read the same facts.
The law notes nothing: it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Fact(NamedTuple):
    """One thing that happened, named by a fixed word and carrying fields, never prose."""

    name: str
    """Dotted, from the room outward: ``lane.committed``, ``pool.discarded``."""
    fields: Mapping[str, object]


Note = Callable[[str, Mapping[str, object]], None]
"""Take a fact. Handed in like the clock; must not raise and must not block."""


def forget(_name: str, _fields: Mapping[str, object]) -> None:
    """Note nothing. The default where nobody listens."""
