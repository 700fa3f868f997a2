"""The values a caller builds and compares."""

from __future__ import annotations

from uuid import UUID

from landed.ids import AggregateKey
from landed.log import (
    Busy,
    Deleted,
    Event,
    Landed,
    Leg,
    SequenceInFlight,
    SequenceTaken,
    Trimmed,
    Write,
)

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))


def test_an_event_to_be_written_has_no_number_yet() -> None:
    iv = b"123456789012"
    event = Event.new(1, b"x", client_seq=4, event_id=UUID(int=5), type_minor=6, event_ms=7, iv=iv)
    assert event == Event(4, 0, UUID(int=5), 7, 1, 6, b"x", iv)
    assert Event.new(1, b"x", client_seq=4, event_id=None).event_id is None


def test_a_write_of_one_leg() -> None:
    event = Event.new(1, b"x", client_seq=4, event_id=None)
    write = Write.to(KEY, [event], client_id=UUID(int=7), expected_version=3, user_id=UUID(int=8))
    assert write == Write(UUID(int=7), (Leg(KEY, (event,), 3, True, True),), UUID(int=8))
    assert Write.to(KEY, [event], client_id=UUID(int=7), expected_version=3).user_id is None


def test_an_answer_equals_only_its_own_kind() -> None:
    assert SequenceTaken(KEY, 1, 1) != SequenceInFlight(KEY, 1, 1)
    assert (SequenceTaken(KEY, 1, 1) == SequenceInFlight(KEY, 1, 1)) is False
    assert SequenceTaken(KEY, 1, 1) == SequenceTaken(KEY, 1, 1)
    assert (SequenceTaken(KEY, 1, 1) != SequenceTaken(KEY, 1, 1)) is False
    assert SequenceTaken(KEY, 1, 1) != SequenceTaken(KEY, 2, 1)
    assert len({Trimmed(), Deleted(), Busy(), Trimmed()}) == 3
    assert Landed((1,)) != ((1,),)
