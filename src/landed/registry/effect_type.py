"""An effect type: one kind of operation at one recipient, and the code that carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import msgspec

from landed.effects.answer import AttemptAnswer, LookupAnswer, SealAnswer
from landed.effects.contract import Contract
from landed.effects.order import OrderPolicy
from landed.errors import ConfigurationError
from landed.fingerprint import (
    Fingerprint,
    Json,
    NotExactError,
    canonical_json,
    fingerprint_canonical,
)
from landed.registry.calls import Ask, Call, SealAsk

P = TypeVar("P")

Sender = Callable[[Call], Awaitable[AttemptAnswer]]
Looker = Callable[[Ask], Awaitable[LookupAnswer]]
Sealer = Callable[[SealAsk], Awaitable[SealAnswer]]
S = TypeVar("S", bound=Sender)
L = TypeVar("L", bound=Looker)
Z = TypeVar("Z", bound=Sealer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Within what effects of a type are ordered (rule OR-1)."""

    domain: str
    policy: OrderPolicy = OrderPolicy.STRICT


@dataclass(slots=True, kw_only=True)
class EffectType(Generic[P]):
    """Declared by ``recipient.effect(...)``; its functions are set by decorators before the start."""

    name: str
    recipient: str
    contract: Contract
    payload: type[P]
    ordering: Ordering | None = None
    is_commutative: bool = False
    is_one_to_one_with_event: bool = False
    sender: Sender | None = None
    looker: Looker | None = None
    sealer: Sealer | None = None
    settled_handlers: dict[str, Callable[..., object]] = field(default_factory=dict)
    _is_frozen: bool = False

    def send(self, function: S) -> S:
        """Set the async function that makes one attempt, outside any transaction."""
        self._set("sender", function)
        return function

    def lookup(self, function: L) -> L:
        """Set the async function that asks the recipient by its key."""
        self._set("looker", function)
        return function

    def seal(self, function: Z) -> Z:
        """Set the async function that asks the recipient for a tombstone."""
        self._set("sealer", function)
        return function

    def settled(self, function: Callable[..., object]) -> Callable[..., object]:
        """Add a handler ``(tx, settlement)`` that runs once per settlement, in a transaction."""
        name = f"{self.recipient}.{self.name}.{function.__name__}"
        if self._is_frozen or name in self.settled_handlers:
            raise ConfigurationError(
                f"settled handler {name} is declared twice, or after the start"
            )
        self.settled_handlers[name] = function
        return function

    def freeze(self) -> None:
        """Refuse later declarations, and what cannot work (rule PY-5)."""
        self._is_frozen = True
        if self.sender is None:
            raise ConfigurationError(f"effect {self.recipient}.{self.name} has no sender")
        if self.contract.lookup is not None and self.looker is None:
            raise ConfigurationError(
                f"effect {self.recipient}.{self.name}: its contract has a look-up, so it needs one"
            )
        if self.contract.seal is not None and self.sealer is None:
            raise ConfigurationError(
                f"effect {self.recipient}.{self.name}: its contract has a seal, so it needs one"
            )

    def encode(self, payload: P) -> tuple[bytes, Fingerprint]:
        """The exact bytes to send, for ever, and their fingerprint (rule EF-5).

        Raises:
            ConfigurationError: the payload holds something that exact JSON cannot.
        """
        try:
            body = canonical_json(to_json(payload))
        except NotExactError as e:
            raise ConfigurationError(
                f"effect {self.recipient}.{self.name}: the payload is not exact JSON ({e}); write large "
                "numbers as text"
            ) from None
        return body, fingerprint_canonical(body)

    def _set(self, which: str, function: object) -> None:
        if self._is_frozen or getattr(self, which) is not None:
            raise ConfigurationError(
                f"effect {self.recipient}.{self.name}: its {which} is set twice, or after the start"
            )
        setattr(self, which, function)


def to_json(value: object) -> Json:
    """Turn a dataclass, TypedDict, attrs class, msgspec struct, pydantic model or plain value into JSON."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return cast("Json", dump(mode="json"))
    try:
        return cast("Json", msgspec.to_builtins(value, str_keys=True))
    except TypeError as e:
        raise NotExactError("syntax", str(e)) from None
