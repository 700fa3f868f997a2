"""What one call of a pool may still do, and what it has seen on its way."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from landed.client.options import Address, Consistency
from landed.errors import LandedError

E = TypeVar("E", bound=LandedError)


class Policy(NamedTuple):
    """How a caller wants its requests handled."""

    consistency: Consistency
    busy_retries: int


class Call:
    """One call: its end, its policy, the nodes it has asked."""

    __slots__ = ("attempts", "ends_at", "guess", "policy", "served_by", "tried")

    def __init__(self, policy: Policy, *, ends_at: float, guess: Address) -> None:
        self.policy = policy
        self.ends_at = ends_at
        """Loop time; infinity for no limit on the whole call."""
        self.guess = guess
        """Who was taken for the leader when it began."""
        self.attempts = 0
        """Request frames handed to a link."""
        self.served_by: str | None = None
        """The node that was handed the last one."""
        self.tried: list[tuple[str, LandedError]] = []
        """Nodes that did not take the change, and why."""

    def blame(self, error: E) -> E:
        """Write on an error where it comes from (pool rule CP-6)."""
        error.attempts = self.attempts
        error.served_by = self.served_by
        return error
