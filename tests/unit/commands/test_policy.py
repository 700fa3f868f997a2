"""Settings that cannot work are refused when they are made."""

from __future__ import annotations

import pytest

from landed.commands import Policy
from landed.errors import ConfigurationError


def test_the_defaults_are_the_published_ones() -> None:
    policy = Policy()
    assert (policy.attempts_max, policy.deadline_s, policy.attempt_timeout_s) == (5, 20.0, 5.0)
    assert (policy.backoff_first_s, policy.backoff_max_s) == (0.05, 1.0)
    assert (policy.window_s, policy.window_margin_s) == (90.0, 10.0)
    assert policy.life_ms == 100_000


@pytest.mark.scenario("SWA-47")
@pytest.mark.parametrize(
    "wrong",
    [
        {"deadline_s": 90.0},
        {"deadline_s": 80.1},
        {"window_s": 29.0},
        {"attempt_timeout_s": 20.0},
        {"attempts_max": 0},
        {"deadline_s": 0.0},
        {"window_margin_s": -1.0},
        {"backoff_first_s": 2.0},
        {"scan_horizon_s": 0.0},
        {"deadline_s": float("nan")},
        {"window_margin_s": float("nan")},
        {"backoff_max_s": float("nan")},
        {"window_s": float("inf")},
    ],
)
def test_a_deadline_that_outlives_the_window_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Policy(**wrong)


def test_a_deadline_that_just_fits_is_taken() -> None:
    assert Policy(deadline_s=80.0).deadline_s == 80.0
