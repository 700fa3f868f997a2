"""Which shard, and whether a request can be routed at all (log rules G2, G6, M9)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import ANY, Delete, DeleteLeg, Event, Leg, Misrouted, Write
from landed.log.route import misrouted, shard_of

CLIENT = ClientId(UUID(int=7))
LARGE = 2**128 - 1


def key(org: int, type: int, id: int) -> AggregateKey:
    return AggregateKey(UUID(int=org), UUID(int=type), UUID(int=id))


def write(*keys: AggregateKey) -> Write:
    event = Event.new(1, b"", client_seq=1, event_id=None)
    return Write(CLIENT, tuple(Leg(each, (event,), ANY, True, True) for each in keys))


@pytest.mark.scenario("G2")
@pytest.mark.parametrize(
    ("rule", "part"), [("org_id", 0), ("aggregate_type_id", 1), ("aggregate_id", 2)]
)
def test_the_shard_is_the_whole_part_modulo_the_count(rule: str, part: int) -> None:
    limits = replace(Limits(), num_shards=7, routing_rule=rule)
    for number in (0, 6, 7, 2**64 + 3, LARGE):
        parts = [5, 5, 5]
        parts[part] = number
        assert shard_of(key(*parts), limits) == number % 7


@pytest.mark.scenario("G6", "SC-40")
def test_keys_of_one_shard_go_together_and_others_do_not() -> None:
    limits = replace(Limits(), num_shards=4)
    assert misrouted(write(key(1, 1, 1), key(9, 9, 5)), limits) is None
    answer = misrouted(write(key(1, 1, 1), key(1, 1, 2)), limits)
    assert answer == Misrouted(False, 4, "the aggregates lie on different shards")
    assert misrouted(write(key(1, 1, 1), key(1, 1, 2)), Limits()) is None


@pytest.mark.scenario("G6")
def test_a_request_without_aggregates_has_nothing_to_route_by() -> None:
    for request in (Write(CLIENT, ()), Delete(CLIENT, ())):
        answer = misrouted(request, Limits())
        assert answer is not None
        assert (answer.is_nothing, answer.num_shards) == (True, 1)


@pytest.mark.scenario("M9")
def test_a_key_named_twice_is_refused() -> None:
    twice = DeleteLeg(key(1, 1, 1), None, False, False)
    for request in (write(key(1, 1, 1), key(1, 1, 1)), Delete(CLIENT, (twice, twice))):
        answer = misrouted(request, Limits())
        assert answer is not None
        assert answer.is_nothing is True
    assert misrouted(write(key(1, 1, 1)), Limits()) is None
