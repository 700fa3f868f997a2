"""What filters select (log rules R5, R6)."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.ids import ClientId, UserId
from landed.log import Batch, Event, ReadFilters
from landed.log.read import has_event_conditions, select, selects_batch, selects_event

A, B = ClientId(UUID(int=1)), ClientId(UUID(int=2))
USER, STRANGER = UserId(UUID(int=3)), UserId(UUID(int=4))

EVENT = Event(20, 30, None, 40, 5, 6, b"")
BATCH = Batch(2, A, USER, 10, (EVENT, Event(21, 31, None, 41, 7, 6, b"")))


@pytest.mark.scenario("R5")
@pytest.mark.parametrize(
    ("filters", "is_selected"),
    [
        (ReadFilters(), True),
        (ReadFilters(include_client=A), True),
        (ReadFilters(include_client=B), False),
        (ReadFilters(exclude_client=A), False),
        (ReadFilters(exclude_client=B), True),
        (ReadFilters(include_user=USER), True),
        (ReadFilters(include_user=STRANGER), False),
        (ReadFilters(exclude_user=USER), False),
        (ReadFilters(exclude_user=STRANGER), True),
        (ReadFilters(min_server_ms=10, max_server_ms=10), True),
        (ReadFilters(min_server_ms=11), False),
        (ReadFilters(max_server_ms=9), False),
    ],
)
def test_conditions_on_batches(filters: ReadFilters, is_selected: bool) -> None:
    assert selects_batch(filters, BATCH) is is_selected
    assert select(filters, BATCH) == (BATCH if is_selected else None)
    assert has_event_conditions(filters) is False


@pytest.mark.scenario("R5")
def test_a_batch_without_user_matches_no_included_user_and_is_never_excluded() -> None:
    without = BATCH._replace(user_id=None)
    assert selects_batch(ReadFilters(include_user=USER), without) is False
    assert selects_batch(ReadFilters(exclude_user=USER), without) is True


@pytest.mark.scenario("R5", "SC-51")
@pytest.mark.parametrize("name", ["client_seq", "event_seq", "event_ms"])
def test_ranges_of_events_include_both_ends(name: str) -> None:
    value = getattr(EVENT, name)
    for low, high, is_selected in (
        (value, value, True),
        (value + 1, None, False),
        (None, value - 1, False),
        (None, value, True),
        (value, None, True),
        (value - 1, value + 1, True),
    ):
        filters = ReadFilters()._replace(**{f"min_{name}": low, f"max_{name}": high})
        assert selects_event(filters, EVENT) is is_selected
        assert has_event_conditions(filters) is True


@pytest.mark.scenario("R5", "SC-49")
def test_types_are_major_types_and_an_empty_list_is_no_filter() -> None:
    assert selects_event(ReadFilters(include_types=(5, 9)), EVENT) is True
    assert selects_event(ReadFilters(include_types=(6,)), EVENT) is False
    assert selects_event(ReadFilters(include_types=()), EVENT) is True
    assert has_event_conditions(ReadFilters(include_types=())) is False
    assert has_event_conditions(ReadFilters(include_types=(5,))) is True


@pytest.mark.scenario("R5", "R6")
def test_single_events_are_removed_and_an_empty_batch_is_omitted() -> None:
    assert select(ReadFilters(include_types=(5,)), BATCH) == BATCH._replace(events=(EVENT,))
    assert select(ReadFilters(include_types=(5,), min_client_seq=21), BATCH) is None
    assert select(ReadFilters(include_client=B, include_types=(5,)), BATCH) is None
