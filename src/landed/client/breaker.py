"""A node that cannot be dialled is left alone for a moment, then tried with one dial."""

from __future__ import annotations

from landed.client.assign import BreakerState


class Breaker:
    """Remember failed dials of one node (pool rule CP-22).

    Only dials count. A link that breaks, a caller who gives up, or credentials that are refused
    say nothing about whether the node can be reached.
    """

    __slots__ = ("_cooldown_s", "_open_until")

    def __init__(self, cooldown_s: float) -> None:
        self._cooldown_s = cooldown_s
        self._open_until: float | None = None

    def state(self, now: float) -> BreakerState:
        """Say whether to dial, at loop time ``now``."""
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._open_until else BreakerState.TRIAL

    def failed(self, now: float) -> None:
        """A dial failed: stay away for the cooldown."""
        self._open_until = now + self._cooldown_s

    def succeeded(self) -> None:
        """A dial succeeded: all is well."""
        self._open_until = None
