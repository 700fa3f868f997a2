"""From an order to a command: what it writes, when it is refused, what it answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from landed.accounts.domain import (
    AMOUNT_CENTS_MAX,
    BALANCE_CENTS_MAX,
    Deposit,
    Kind,
    Movement,
    Order,
    Transfer,
    Withdrawal,
    account_key,
    encode,
    fingerprint_of,
)
from landed.commands import Accept, Command, Decision, NewEvent, Reject
from landed.ids import AggregateKey, EventId


class AccountAnswer(msgspec.Struct, rename="camel"):
    """What a caller is told of one account."""

    account_id: UUID
    balance_cents: int
    aggregate_version: int


Decide = Callable[[tuple[int, ...]], Decision]


def command_of(order: Order, event_id: EventId) -> Command[int, AccountAnswer]:
    """Make the command that carries an order out, under its request's event id."""
    targets, decide = _plan(order)
    return Command(
        event_id=event_id,
        fingerprint=fingerprint_of(order),
        targets=targets,
        decide=decide,
        respond=answer_of,
        malformed=_malformed(order),
    )


def answer_of(key: AggregateKey, balance_cents: int, version: int) -> AccountAnswer:
    """Say where an account stands."""
    return AccountAnswer(key.id, balance_cents, version)


def _malformed(order: Order) -> Reject | None:
    """What is wrong with an order whatever the balances are; then nothing is read (SW-84)."""
    if not 1 <= order.amount_cents <= AMOUNT_CENTS_MAX:
        return Reject("validation_error", f"an amount is 1 to {AMOUNT_CENTS_MAX} cents")
    if isinstance(order, Transfer) and order.source == order.target:
        return Reject("validation_error", "a transfer needs two different accounts")
    return None


def _plan(order: Order) -> tuple[tuple[AggregateKey, ...], Decide]:
    match order:
        case Deposit():
            return (account_key(order.account),), lambda states: _deposit(order, states)
        case Withdrawal():
            return (account_key(order.account),), lambda states: _withdraw(order, states)
        case Transfer():
            targets = (account_key(order.source), account_key(order.target))
            return targets, lambda states: _transfer(order, states)


def _deposit(order: Deposit, states: tuple[int, ...]) -> Decision:
    (balance,) = states
    event = _event(Movement(Kind.DEPOSITED, order.amount_cents))
    return _too_rich(balance, order.amount_cents) or Accept(((event,),))


def _withdraw(order: Withdrawal, states: tuple[int, ...]) -> Decision:
    (balance,) = states
    event = _event(Movement(Kind.WITHDRAWN, order.amount_cents))
    return _too_poor(balance, order.amount_cents) or Accept(((event,),))


def _transfer(order: Transfer, states: tuple[int, ...]) -> Decision:
    source, target = states
    out = _event(Movement(Kind.TRANSFERRED_OUT, order.amount_cents, order.target))
    into = _event(Movement(Kind.TRANSFERRED_IN, order.amount_cents, order.source))
    return (
        _too_poor(source, order.amount_cents)
        or _too_rich(target, order.amount_cents)
        or Accept(((out,), (into,)))
    )


def _event(movement: Movement) -> NewEvent:
    return NewEvent(movement.kind, encode(movement))


def _too_poor(balance: int, cents: int) -> Reject | None:
    if balance >= cents:
        return None
    detail = f"the balance is {balance} cents, {cents} are asked for"
    return Reject("insufficient_funds", detail, {"balanceCents": balance})


def _too_rich(balance: int, cents: int) -> Reject | None:
    if balance + cents <= BALANCE_CENTS_MAX:
        return None
    return Reject("validation_error", "the balance would be beyond what 64 bits hold")
