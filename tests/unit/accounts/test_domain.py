"""Accounts: what is stored, what it adds up to, what a request is."""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.accounts.decide import command_of
from landed.accounts.domain import (
    AMOUNT_CENTS_MAX,
    BALANCE_CENTS_MAX,
    Accounts,
    Deposit,
    Kind,
    Movement,
    Transfer,
    Withdrawal,
    account_key,
    decode,
    encode,
    fingerprint_of,
)
from landed.commands import Accept, Reject
from landed.errors import UndecodableEventError
from landed.ids import EventId
from landed.log import Event

A = UUID("aaaaaaaa-0000-4000-8000-000000000001")
B = UUID("bbbbbbbb-0000-4000-8000-000000000002")
KEY = EventId(UUID(int=7))

orders = st.one_of(
    st.builds(Deposit, st.sampled_from([A, B]), st.integers(1, AMOUNT_CENTS_MAX)),
    st.builds(Withdrawal, st.sampled_from([A, B]), st.integers(1, AMOUNT_CENTS_MAX)),
    st.builds(Transfer, st.just(A), st.just(B), st.integers(1, AMOUNT_CENTS_MAX)),
    st.builds(Transfer, st.just(B), st.just(A), st.integers(1, AMOUNT_CENTS_MAX)),
)


def stored(type_major: int, value: bytes) -> Event:
    return Event.new(type_major, value, client_seq=1, event_id=KEY)


@pytest.mark.parametrize(
    ("movement", "type_major", "payload"),
    [
        (Movement(Kind.DEPOSITED, 50), 1, {"AmountCents": 50}),
        (Movement(Kind.WITHDRAWN, 50), 2, {"AmountCents": 50}),
        (Movement(Kind.TRANSFERRED_OUT, 50, B), 3, {"AmountCents": 50, "ToAccountId": str(B)}),
        (Movement(Kind.TRANSFERRED_IN, 50, A), 4, {"AmountCents": 50, "FromAccountId": str(A)}),
    ],
)
def test_events_are_the_published_demo_domain(movement, type_major, payload):
    assert int(movement.kind) == type_major
    assert json.loads(encode(movement)) == payload
    assert decode(stored(type_major, encode(movement))) == movement


@pytest.mark.parametrize(
    ("type_major", "value"),
    [
        (5, b'{"AmountCents":1}'),
        (1, b""),
        (1, b"{}"),
        (1, b'{"AmountCents":"1"}'),
        (1, b'{"AmountCents":1.5}'),
        (1, b'{"AmountCents":0}'),
        (1, b'{"AmountCents":-5}'),
        (1, b'{"AmountCents":2147483648}'),
        (3, b'{"AmountCents":1}'),
        (4, b'{"AmountCents":1,"FromAccountId":"x"}'),
        (3, b'{"AmountCents":1,"FromAccountId":"aaaaaaaa-0000-4000-8000-000000000001"}'),
    ],
)
def test_an_event_that_is_not_understood_is_a_fault_and_never_counts_as_nothing(type_major, value):
    with pytest.raises(UndecodableEventError):
        Accounts().fold(0, stored(type_major, value), account_key(A))


def test_a_fingerprint_is_taken_over_exactly_these_bytes():
    lines = {
        Deposit(A, 50): f"fp1\ndeposit\naccount:{A}\ncents:50",
        Withdrawal(A, 50): f"fp1\nwithdraw\naccount:{A}\ncents:50",
        Transfer(A, B, 50): f"fp1\ntransfer\nfrom:{A}\nto:{B}\ncents:50",
    }
    for order, text in lines.items():
        assert fingerprint_of(order) == hashlib.sha256(text.encode()).digest()


@given(orders, st.integers(0, BALANCE_CENTS_MAX))
def test_every_event_of_an_order_gives_its_fingerprint_back(order, balance):
    command = command_of(order, KEY)
    decision = command.decide(tuple(balance for _ in command.targets))
    if isinstance(decision, Reject):
        return
    domain = Accounts()
    total = 0
    for key, (new,) in zip(command.targets, decision.events, strict=True):
        event = stored(new.type_major, new.value)
        assert domain.fingerprint_of(event, key) == command.fingerprint
        total += domain.fold(balance, event, key) - balance
    if isinstance(order, Transfer):
        assert total == 0


@given(st.lists(orders, min_size=2, max_size=2, unique=True))
def test_different_orders_have_different_fingerprints(pair):
    first, second = pair
    assert fingerprint_of(first) != fingerprint_of(second)


@pytest.mark.parametrize("cents", [0, -1, AMOUNT_CENTS_MAX + 1, 2**70])
def test_an_amount_out_of_range_is_malformed_whatever_the_balance(cents):
    for order in (Deposit(A, cents), Withdrawal(A, cents), Transfer(A, B, cents)):
        malformed = command_of(order, KEY).malformed
        assert malformed is not None
        assert malformed.code == "validation_error"


@pytest.mark.scenario("SWA-67")
def test_a_transfer_to_itself_is_malformed():
    assert command_of(Transfer(A, A, 5), KEY).malformed is not None
    assert command_of(Transfer(A, B, 5), KEY).malformed is None


def test_a_rule_refuses_exactly_what_is_not_there_and_what_would_not_fit():
    assert isinstance(command_of(Withdrawal(A, 100), KEY).decide((100,)), Accept)
    poor = command_of(Withdrawal(A, 101), KEY).decide((100,))
    assert isinstance(poor, Reject)
    assert (poor.code, poor.fields) == ("insufficient_funds", {"balanceCents": 100})
    assert isinstance(command_of(Deposit(A, 1), KEY).decide((BALANCE_CENTS_MAX - 1,)), Accept)
    rich = command_of(Deposit(A, 1), KEY).decide((BALANCE_CENTS_MAX,))
    assert isinstance(rich, Reject)
    assert rich.code == "validation_error"
    full = command_of(Transfer(A, B, 1), KEY).decide((1, BALANCE_CENTS_MAX))
    assert isinstance(full, Reject)
