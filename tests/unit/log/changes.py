"""Changes drawn at random over few keys, clients and numbers, so that they meet often."""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import strategies as st

from landed.ids import AggregateKey, ClientId
from landed.log import Delete, DeleteLeg, Event, Leg, Mutation, Trim, Write

KEYS = [AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in (1, 2)]
CLIENTS = [ClientId(UUID(int=n)) for n in (10, 11)]

_keys = st.sampled_from(KEYS)
_clients = st.sampled_from(CLIENTS)
_guards = st.sampled_from([None, None, None, 0, 1, 2, 3, 4])
_events = st.builds(
    lambda seq, type_major: Event.new(type_major, b"x", client_seq=seq, event_id=None),
    st.integers(0, 9),
    st.sampled_from([1, 1, 1, 1, 1, 1, 1, 1, 1, 0]),
)


def _legs(
    leg: st.SearchStrategy[Leg | DeleteLeg],
) -> st.SearchStrategy[tuple[Leg | DeleteLeg, ...]]:
    return st.lists(leg, min_size=1, max_size=2, unique_by=lambda leg: leg.key).map(tuple)


def writes() -> st.SearchStrategy[Write]:
    leg = st.builds(
        Leg,
        _keys,
        st.lists(_events, min_size=0, max_size=3).map(tuple)
        | st.lists(_events, min_size=1, max_size=3).map(tuple),
        _guards,
        st.sampled_from([True, True, False]),
        st.sampled_from([True, True, False]),
    )
    return st.builds(Write, _clients, _legs(leg))


def trims() -> st.SearchStrategy[Trim]:
    return st.builds(Trim, _keys, st.integers(0, 6), _clients)


def deletes() -> st.SearchStrategy[Delete]:
    leg = st.builds(DeleteLeg, _keys, _guards, st.sampled_from([True, True, False]), st.booleans())
    return st.builds(Delete, _clients, _legs(leg))


def changes() -> st.SearchStrategy[Mutation]:
    return writes() | writes() | writes() | trims() | deletes()


def histories() -> st.SearchStrategy[list[Mutation | int | None]]:
    """Changes; a number: so many in flight become durable; None: all in flight are lost."""
    step = changes() | changes() | changes() | st.integers(1, 4) | st.none()
    return st.lists(step, min_size=5, max_size=40)


def long_history(seed: int, steps: int = 80) -> list[Mutation | int | None]:
    """The same from a seed, longer, with numbers that rise as the history goes on."""
    draw = Random(seed)
    history: list[Mutation | int | None] = []
    for at in range(steps):
        kind = draw.random()
        client = draw.choice(CLIENTS)
        keys = draw.sample(KEYS, draw.choice([1, 1, 2]))
        guard = draw.choice([None, None, None, *range(at // 8, at // 8 + 3)])
        if kind < 0.12:
            history.append(draw.randint(1, 5))
        elif kind < 0.17:
            history.append(None)
        elif kind < 0.27:
            history.append(Trim(keys[0], draw.randint(0, at // 6 + 2), client))
        elif kind < 0.33:
            may_return = draw.random() < 0.9
            delete_legs = (DeleteLeg(key, guard, may_return, draw.random() < 0.5) for key in keys)
            history.append(Delete(client, tuple(delete_legs)))
        else:
            history.append(Write(client, tuple(_leg(draw, key, guard, at // 4) for key in keys)))
    return history


def _leg(draw: Random, key: AggregateKey, guard: int | None, around: int) -> Leg:
    events = tuple(
        Event.new(
            0 if draw.random() < 0.01 else 1,
            b"x",
            client_seq=max(0, around + draw.randint(-3, 5)),
            event_id=None,
        )
        for _ in range(0 if draw.random() < 0.01 else draw.randint(1, 3))
    )
    return Leg(key, events, guard, draw.random() < 0.8, draw.random() < 0.7)
