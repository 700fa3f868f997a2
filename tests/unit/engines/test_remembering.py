"""What the engine remembers of an aggregate is bounded, and small."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.engines.group import Group
from landed.engines.port import Stored
from landed.engines.tail import AcceptedTail, Cold
from landed.engines.writers import WRITERS_MAX, Writers
from landed.ids import AggregateKey, ClientId
from landed.log import Event, Life, Write
from landed.log.judge import Step


def key(number: int) -> AggregateKey:
    return AggregateKey(UUID(int=1), UUID(int=2), UUID(int=number))


def write_by(client: int) -> Write:
    event = Event.new(1, b"x", client_seq=1, event_id=None)
    return Write.to(key(1), [event], client_id=UUID(int=client), expected_version=None)


def test_writes_of_one_client_come_to_share_its_id_and_keep_everything_else():
    writers = Writers()
    first, second, other = write_by(7), write_by(7), write_by(8)
    assert writers.shared(first) is first
    shared = writers.shared(second)
    assert shared == second
    assert shared.client_id is first.client_id
    assert writers.shared(other).client_id == ClientId(UUID(int=8))


def test_writers_without_number_do_not_take_memory_without_end():
    writers = Writers()
    for client in range(3 * WRITERS_MAX):
        writers.shared(write_by(client))
        assert len(writers._known) <= WRITERS_MAX + 1


def test_caches_keep_what_was_used_last_and_stay_within_a_sixteenth_of_their_bounds():
    tail = AcceptedTail(heads_max=128, marks_max=128)
    clients = [ClientId(UUID(int=number)) for number in (7, 8, 9)]
    for number in range(1000):
        pairs = [(key(number), client) for client in clients]
        tail.learn([key(number)], pairs, Stored({}, {}))
        assert [tail.mark(*pair) for pair in pairs] == [0, 0, 0]
        tail.visible(key(0))
        tail.evict()
        assert len(tail._standings) <= 136
        assert len(tail._marks) <= 136
    assert tail.visible(key(0)) == tail.visible(key(999))
    with pytest.raises(Cold):
        tail.visible(key(1))


def test_the_highest_sequence_in_flight_is_known_when_sequences_fall_and_a_group_has_landed():
    tail = AcceptedTail(heads_max=8, marks_max=8)
    tail.learn([key(1)], [], Stored({}, {}))
    client = ClientId(UUID(int=7))
    groups = [Group(), Group(), Group()]
    for version, (group, seq) in enumerate(zip(groups, (10, 5, 7), strict=True), start=1):
        head = tail.head(key(1))._replace(life=Life.LIVE, version=version)
        steps = (Step(key(1), head, seq),)
        group.add_write(write_by(7), steps, tail.accept(steps, client, group), 1, version - 1)
    in_flight = []
    for group in groups:
        in_flight.append(tail.in_flight(key(1), client))
        tail.publish(group)
    assert in_flight == [10, 7, 7]
    assert tail.in_flight(key(1), client) is None
    assert tail.mark(key(1), client) == 10


def test_a_head_with_a_change_in_flight_is_not_dropped():
    tail = AcceptedTail(heads_max=1, marks_max=1)
    tail.learn([key(1)], [], Stored({}, {}))
    head = tail.visible(key(1))
    group = Group()
    newer = head._replace(life=Life.LIVE, version=1)
    steps = (Step(key(1), newer, 1),)
    group.add_write(write_by(7), steps, tail.accept(steps, None, group), 1, 0)
    tail.learn([key(2), key(3)], [], Stored({}, {}))
    tail.evict()
    assert (tail.visible(key(1)), tail.head(key(1))) == (head, newer)
