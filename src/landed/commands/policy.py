"""``Policy``: how long and how often a command is tried, and how long its answer is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

from landed.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The knobs of a loop, seconds unless the name says otherwise (rule SW-14).

    All replicas of a service use the same ones, the window above all: it is a published property
    of an API, not a detail.

    Raises:
        ConfigurationError: the deadline and the margin do not fit into the window, or one attempt
            does not fit into the deadline.
    """

    attempts_max: int = 5
    deadline_s: float = 20.0
    """For the whole call. With the margin it must fit into the window: an attempt must not outlive
    the answers that would recognise it."""
    attempt_timeout_s: float = 5.0
    """For each request to the log."""
    backoff_first_s: float = 0.05
    """Upper bound of the first pause; it doubles. The pause itself is drawn below it."""
    backoff_max_s: float = 1.0
    window_s: float = 90.0
    """How long a retry gets the original answer. It covers transport retries, not a user who
    comes back tomorrow."""
    window_margin_s: float = 10.0
    """How much longer an answer is really kept. Never promised."""
    scan_horizon_s: float | None = None
    """Look so far back in the log for a request that is not remembered: one read more for every
    new request. None: do not (rules SW-74 to SW-77)."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ConfigurationError("attempts_max must be at least 1")
        for name in ("deadline_s", "attempt_timeout_s", "backoff_first_s", "window_s"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be above 0")
        for name in ("window_s", "window_margin_s", "backoff_max_s"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigurationError(f"{name} must be a number of seconds")
        if self.window_margin_s < 0 or self.backoff_max_s < self.backoff_first_s:
            raise ConfigurationError("a margin is not negative; backoff_max_s is the longest pause")
        if self.deadline_s + self.window_margin_s > self.window_s:
            raise ConfigurationError(
                f"deadline_s + window_margin_s must fit into window_s, or a retry could outlive the "
                f"answer: {self.deadline_s} + {self.window_margin_s} > {self.window_s}"
            )
        if self.attempt_timeout_s >= self.deadline_s:
            raise ConfigurationError(
                f"attempt_timeout_s must be below deadline_s: "
                f"{self.attempt_timeout_s} >= {self.deadline_s}"
            )
        if self.scan_horizon_s is not None and not self.scan_horizon_s > 0:
            raise ConfigurationError("scan_horizon_s must be above 0, or None")

    @property
    def life_ms(self) -> float:
        """How long an answer is kept from the moment it is recorded, milliseconds."""
        return (self.window_s + self.window_margin_s) * 1000.0
