"""The law against the sentences of log-semantics (a model test stands in test_judge_model.py)."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.ids import AggregateKey, ClientId
from landed.log import ANY, NEVER, Event, Head, VersionConflict, Write
from landed.log.judge import judge_write

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
CLIENT = ClientId(UUID(int=7))


class Blank:
    """A tail on which nothing was ever written."""

    def head(self, key: AggregateKey) -> Head:
        return NEVER

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        return 0

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        return None


def write(expected: int | None) -> Write:
    event = Event.new(1, b"x", client_seq=1, event_id=None)
    return Write.to(KEY, [event], client_id=CLIENT, expected_version=expected)


@pytest.mark.scenario("SC-01")
def test_a_first_write_gets_version_one() -> None:
    (step,) = judge_write(write(ANY), Blank(), now_ms=5, seq_jump_max=0)
    assert (step.head.version, step.head.event_seq, step.highest_seq) == (1, 1, 1)


def test_a_guard_above_a_key_never_written_is_a_conflict_with_zero() -> None:
    answer = judge_write(write(7), Blank(), now_ms=5, seq_jump_max=0)
    assert VersionConflict(KEY, 7, 0) == answer
