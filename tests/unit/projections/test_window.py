"""Ages are server time, never negative; a life is never shortened."""

from __future__ import annotations

import pytest

from landed.projections.port import Answered
from landed.projections.window import Kept, life_left_ms, merge


@pytest.mark.scenario("SWA-45")
@pytest.mark.parametrize(
    ("batch_ms", "newest_ms", "left_ms"),
    [(1_000, 1_000, 500.0), (1_000, 1_200, 300.0), (1_000, 1_500, 0.0), (1_400, 1_000, 500.0)],
)
def test_the_life_left_is_the_life_less_an_age_that_is_never_negative(
    batch_ms: int, newest_ms: int, left_ms: float
) -> None:
    assert life_left_ms(batch_ms=batch_ms, newest_ms=newest_ms, life_ms=500.0) == left_ms


def test_two_answers_to_one_request_become_the_newer_result_with_the_longer_life() -> None:
    old, new = Answered("old", 1, b"f"), Answered("new", 2, b"f")
    assert merge(Kept(old, 9.0), Kept(new, 5.0)) == Kept(new, 9.0)
    assert merge(Kept(new, 5.0), Kept(old, 9.0)) == Kept(new, 9.0)
