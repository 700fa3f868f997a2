"""Versions within an order key: what is an old decision, and who guards it.

The check here is a hint that saves a call. The guard is the recipient's fence or seal, and nothing
local is ever presented as remote order (rule OR-10).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class OrderPolicy(StrEnum):
    STRICT = "strict"
    """A newer effect waits until the older one is terminal."""
    LATEST_WINS = "latest_wins"
    """A newer one need not wait; older ones never begun are superseded. Needs a fence."""


class Order(NamedTuple):
    """Within what an effect is ordered, and its place there.

    ``version`` comes from the log, from a column of the business row read in the same transaction,
    or from the order head (None: take the next one). Never from a wall clock (rule OR-2).
    """

    key: str
    version: int | None = None


class Placed(NamedTuple):
    """The version may be recorded."""

    is_behind_head: bool
    """An old decision. Recorded all the same, and still goes through the recipient's control."""


class SameVersion(NamedTuple):
    """Another effect has this version already: nothing may be written (rule OR-4)."""


def place(
    version: int, *, head_version: int | None, is_version_taken: bool
) -> Placed | SameVersion:
    """Say what a version means within its order key (rules OR-3, OR-4)."""
    if is_version_taken:
        return SameVersion()
    return Placed(is_behind_head=head_version is not None and version <= head_version)


class FenceVerdict(StrEnum):
    TAKE = "take"
    """Higher than anything taken, or the same version under the same key."""
    REFUSE = "refuse"


def compare_fence(
    version: int, key: str, *, taken_version: int | None, taken_key: str | None
) -> FenceVerdict:
    """Compare at the recipient (rules OR-5, RP-4): refuse older, refuse equal from another key."""
    if taken_version is None or version > taken_version:
        return FenceVerdict.TAKE
    if version == taken_version and key == taken_key:
        return FenceVerdict.TAKE
    return FenceVerdict.REFUSE
