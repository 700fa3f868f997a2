"""Accounts of money: what is stored, what it adds up to, what a request is.

Pure. The events are the published demo domain (safe-writes SW-116), so that services in other
languages can fold them. Money is integer cents; a balance is a signed 64-bit number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from landed.commands import fingerprint
from landed.errors import UndecodableEventError
from landed.ids import AggregateKey
from landed.log import Event

ORG: Final = UUID("6c616e64-6564-4000-8000-6163636f756e")
"""The organisation every account lies in. With ``ACCOUNT`` it makes an account's full key."""
ACCOUNT: Final = UUID("6c616e64-6564-4000-8000-000000000001")
"""The aggregate type of accounts."""

AMOUNT_CENTS_MAX: Final = 2_147_483_647
BALANCE_CENTS_MAX: Final = 2**63 - 1


class Kind(IntEnum):
    """The major types of the events; minor is 0."""

    DEPOSITED = 1
    WITHDRAWN = 2
    TRANSFERRED_OUT = 3
    TRANSFERRED_IN = 4


_NAMES: Final = {
    Kind.DEPOSITED: "Deposited",
    Kind.WITHDRAWN: "Withdrawn",
    Kind.TRANSFERRED_OUT: "TransferredOut",
    Kind.TRANSFERRED_IN: "TransferredIn",
}
_KINDS: Final = {kind.value: kind for kind in Kind}
"""By the number: every fold of an event asks, and calling an enumeration is dearer than the rest."""
_ADDS: Final = frozenset({Kind.DEPOSITED, Kind.TRANSFERRED_IN})
_OTHER_MEMBER: Final = {
    Kind.TRANSFERRED_OUT: "ToAccountId",
    Kind.TRANSFERRED_IN: "FromAccountId",
}


class Movement(NamedTuple):
    """What one event did to one account."""

    kind: Kind
    amount_cents: int
    """1 to AMOUNT_CENTS_MAX; the kind gives the sign."""
    other: UUID | None = None
    """The account on the other side of a transfer."""

    @property
    def name(self) -> str:
        """The published name of the event's type."""
        return _NAMES[self.kind]

    @property
    def signed_cents(self) -> int:
        """What it adds to the balance."""
        return self.amount_cents if self.kind in _ADDS else -self.amount_cents


def account_key(account: UUID) -> AggregateKey:
    """The full key of an account."""
    return AggregateKey(ORG, ACCOUNT, account)


def is_account(key: AggregateKey) -> bool:
    """Say whether a key names an account of this domain."""
    return key.org == ORG and key.type == ACCOUNT


def encode(movement: Movement) -> bytes:
    """The payload of the event that stores a movement."""
    members: dict[str, object] = {"AmountCents": movement.amount_cents}
    if movement.other is not None:
        members[_OTHER_MEMBER[movement.kind]] = str(movement.other)
    return _ENCODER.encode(members)


def decode(event: Event) -> Movement:
    """Read an event back.

    Raises:
        UndecodableEventError: not an event of this domain. It is never skipped: a skipped event is
            a wrong balance (SW-21).
    """
    kind = _KINDS.get(event.type_major)
    if kind is None:
        raise _undecodable(event, f"{event.type_major} is no kind of event")
    try:
        payload = _DECODER.decode(event.value)
        other = payload.other(kind)
    except ValueError as e:
        raise _undecodable(event, str(e)) from None
    if not 1 <= payload.AmountCents <= AMOUNT_CENTS_MAX:
        raise _undecodable(event, f"an amount of {payload.AmountCents} cents")
    return Movement(kind, payload.AmountCents, other)


def _undecodable(event: Event, reason: str) -> UndecodableEventError:
    return UndecodableEventError(
        f"not an event of an account: {reason}", type_major=event.type_major
    )


@dataclass(frozen=True, slots=True)
class Deposit:
    """Put money into an account."""

    account: UUID
    amount_cents: int


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Take money out of an account, if it is there."""

    account: UUID
    amount_cents: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Move money from one account to another, or not at all."""

    source: UUID
    target: UUID
    amount_cents: int


Order = Deposit | Withdrawal | Transfer


def fingerprint_of(order: Order) -> bytes:
    """The fingerprint of a request: equal for equal requests only (SW-79)."""
    match order:
        case Deposit(account, cents):
            return fingerprint("deposit", ("account", account), ("cents", cents))
        case Withdrawal(account, cents):
            return fingerprint("withdraw", ("account", account), ("cents", cents))
        case Transfer(source, target, cents):
            return fingerprint("transfer", ("from", source), ("to", target), ("cents", cents))


def order_of(account: UUID, movement: Movement) -> Order:
    """Say which request stored a movement on an account (SW-80): either leg of a transfer knows."""
    cents = movement.amount_cents
    match movement.kind:
        case Kind.DEPOSITED:
            return Deposit(account, cents)
        case Kind.WITHDRAWN:
            return Withdrawal(account, cents)
        case Kind.TRANSFERRED_OUT:
            assert movement.other is not None
            return Transfer(account, movement.other, cents)
        case Kind.TRANSFERRED_IN:
            assert movement.other is not None
            return Transfer(movement.other, account, cents)


class Accounts:
    """The domain: the state of an account is its balance in cents."""

    def initial(self, _key: AggregateKey, /) -> int:
        """Nothing."""
        return 0

    def fold(self, state: int, event: Event, _key: AggregateKey, /) -> int:
        """Add what one event did."""
        return state + decode(event).signed_cents

    def fingerprint_of(self, event: Event, key: AggregateKey, /) -> bytes:
        """The fingerprint of the request that stored an event."""
        return fingerprint_of(order_of(key.id, decode(event)))


class _Payload(msgspec.Struct):
    AmountCents: int
    ToAccountId: UUID | None = None
    FromAccountId: UUID | None = None

    def other(self, kind: Kind) -> UUID | None:
        """The member that a transfer must have; the other kinds have none."""
        if (member := _OTHER_MEMBER.get(kind)) is None:
            return None
        other: UUID | None = getattr(self, member)
        if other is None:
            raise ValueError(f"{kind.name} without {member}")
        return other


_DECODER: Final = msgspec.json.Decoder(_Payload)
_ENCODER: Final = msgspec.json.Encoder()
