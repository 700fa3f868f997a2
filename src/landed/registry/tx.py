"""What a handler writes besides its own rows: effects and publications, in the same transaction.

Nothing here commits, rolls back, opens a savepoint or keeps state that outlives a rollback (SQ-5).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from landed.effects.contract import Contract
from landed.effects.identity import EFFECT_KEY_CHARS_MAX
from landed.effects.order import Order
from landed.effects.state import State
from landed.errors import ConfigurationError
from landed.fingerprint import canonical_json
from landed.records import effects, outbox
from landed.records.session import Books, as_retry
from landed.registry.declared import Destination, Registry
from landed.registry.effect_type import EffectType, to_json
from landed.registry.event import Event, TransportRef

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class EffectRef:
    """One effect. Provisional until your commit; it has no method that sends (rule PY-2)."""

    effect_id: UUID
    key: str
    idempotency_key: UUID
    is_created: bool
    """False: it was there already, and is shared."""
    state: State


class Tx:
    """A transaction in progress. ``conn`` is SQLAlchemy's connection, for your own statements."""

    def __init__(
        self,
        conn: Connection,
        books: Books,
        registry: Registry,
        *,
        cause: effects.Cause,
        event: Event[Any] | None = None,
        session: Session | None = None,
        gathered: effects.Gathered | None = None,
    ) -> None:
        self.conn = conn
        self._session = session
        self._books = books
        self._registry = registry
        self._cause = cause
        self._event = event
        self._gathered = gathered

    @property
    def session(self) -> Session:
        """An ORM session on this very transaction: the joined one, or one of its own.

        Its ``commit`` commits nothing here: the transaction belongs to whoever began it.
        """
        if self._session is None:
            self._session = Session(bind=self.conn, join_transaction_mode="rollback_only")
        return self._session

    def flush(self) -> None:
        """Send to the database what the ORM session still holds back."""
        if self._session is not None:
            self._session.flush()

    def request(
        self,
        effect_type: EffectType[P],
        key: str,
        payload: P,
        *,
        order: Order | None = None,
        not_after: datetime | None = None,
        correlation: Mapping[str, str] | None = None,
    ) -> EffectRef:
        """Find or create the one effect for a key; nothing is sent before your commit (rule EF-1).

        Args:
            effect_type: what is to be done, and where.
            key: its meaning and scope, as ``invoice/481/collect/revision/3``; the same key is the
                same effect, for ever.
            payload: what the effect type takes; the same key with another payload is refused.
            order: within what and at which version, for an ordered type.
            not_after: a business deadline, with a time zone; past it an effect that was never
                begun is cancelled.
            correlation: values by which the recipient can be asked later; kept readable.

        Raises:
            PayloadMismatchError: a changed intention needs a key of its own (``revise``).
            OrderConflictError: another effect has this version.
            RetryTransactionError: run your whole transaction again.
        """
        intent = self._intent(effect_type, key, payload, order, not_after, correlation)
        return self._found(
            self._run(
                lambda: effects.request(self.conn, self._books, intent, gathered=self._gathered)
            )
        )

    def revise(
        self,
        previous: EffectRef | UUID,
        effect_type: EffectType[P],
        key: str,
        payload: P,
        *,
        order: Order | None = None,
        not_after: datetime | None = None,
        correlation: Mapping[str, str] | None = None,
    ) -> EffectRef:
        """Record a changed intention under a key of its own, linked to the one before (rule EF-7).

        Raises:
            PreviousStillOpenError: the one before may still act; settle, seal or cancel it first.
        """
        before = previous.effect_id if isinstance(previous, EffectRef) else previous
        intent = self._intent(effect_type, key, payload, order, not_after, correlation)
        return self._found(
            self._run(lambda: effects.revise(self.conn, self._books, before, intent))
        )

    def publish(
        self,
        type: str,
        data: object,
        *,
        to: str | None = None,
        key: str | None = None,
        domain: str = "events",
    ) -> UUID:
        """Record an event to be handed on after your commit; returns its message id (rule OB-1).

        Args:
            type: the event's type.
            data: JSON, or anything an effect's payload may be.
            to: the destination's name; may be left out if there is only one.
            key: events of one key go out in the order of their commits (OG-2).
            domain: within what the key is unique.
        """
        destination = self._destination(to)
        body = canonical_json(to_json(data))
        if destination.body_bytes_max is not None and len(body) > destination.body_bytes_max:
            raise ConfigurationError(
                f"{destination.name} takes {destination.body_bytes_max} bytes at most, not {len(body)}"
            )
        message_id = self._books.new_id()
        self._run(lambda: self._add(destination, message_id, type, body, key, domain))
        return message_id

    def _add(
        self,
        destination: Destination,
        message_id: UUID,
        type: str,
        body: bytes,
        key: str | None,
        domain: str,
    ) -> None:
        order_seq = None
        if key is not None:
            order_seq = outbox.next_seq(self.conn, domain=f"{destination.name}:{domain}", key=key)
        receipt_id = None if self._event is None else self._event.receipt_id
        outbox.add(
            self.conn,
            self._books,
            [
                outbox.Message(
                    kind="event",
                    destination=destination.name,
                    message_id=str(message_id),
                    cause_kind=self._cause.kind,
                    cause_id=receipt_id,
                    type=type,
                    body=body,
                    lane=f"relay:{destination.name}",
                    headers=json.dumps({"source": f"{self._books.ledger}/{domain}"}),
                    order_domain=None if key is None else domain,
                    order_key=key,
                    order_seq=order_seq,
                    origin=self._cause.origin,
                )
            ],
        )

    def _destination(self, name: str | None) -> Destination:
        destinations = self._registry.destinations
        if name is None and len(destinations) == 1:
            return next(iter(destinations.values()))
        if name is None or name not in destinations:
            raise ConfigurationError(
                f"publish to={name!r}: declared destinations are {', '.join(destinations) or 'none'}"
            )
        return destinations[name]

    def _intent(
        self,
        effect_type: EffectType[P],
        key: str,
        payload: P,
        order: Order | None,
        not_after: datetime | None,
        correlation: Mapping[str, str] | None,
    ) -> effects.Intent:
        self._check_key(effect_type, key)
        if (order is None) != (effect_type.ordering is None):
            raise ConfigurationError(
                f"effect {effect_type.recipient}.{effect_type.name} is "
                + ("ordered: say order=Order(...)" if order is None else "not declared ordered")
            )
        body, fingerprint = effect_type.encode(payload)
        placed = None
        if order is not None and effect_type.ordering is not None:
            placed = effects.Ordered(
                domain=f"{effect_type.recipient}/{effect_type.ordering.domain}",
                key=order.key,
                version=order.version,
                policy=effect_type.ordering.policy,
            )
        return effects.Intent(
            recipient=effect_type.recipient,
            effect_type=effect_type.name,
            effect_key=key,
            payload=body,
            fingerprint=fingerprint,
            contract_digest=_digest_of(effect_type.contract),
            cause=self._cause,
            order=placed,
            not_after_us=None if not_after is None else _micros(not_after),
            correlation=json.dumps(dict(correlation)) if correlation else "{}",
        )

    def _check_key(self, effect_type: EffectType[Any], key: str) -> None:
        """Refuse a key that is another identity in disguise (rules ID-5, ID-6)."""
        if isinstance(key, TransportRef):
            raise ConfigurationError("a transport's offset is evidence and never an effect key")
        if not key or len(key) > EFFECT_KEY_CHARS_MAX:
            raise ConfigurationError(f"an effect key has 1 to {EFFECT_KEY_CHARS_MAX} characters")
        event = self._event
        if event is not None and key == event.id and not effect_type.is_one_to_one_with_event:
            raise ConfigurationError(
                f"{key!r} is the event's id, not the effect's meaning; name the operation and its "
                "scope, or declare the type one_to_one_with_event"
            )

    def _run(self, work: Callable[[], R]) -> R:
        try:
            return work()
        except DBAPIError as e:
            raise (as_retry(e) or e) from e.__cause__

    def _found(self, requested: effects.Requested) -> EffectRef:
        return EffectRef(
            requested.effect_id,
            requested.effect_key,
            requested.idempotency_key,
            requested.is_created,
            requested.state,
        )


@functools.cache
def _digest_of(contract: Contract) -> bytes:
    """Computed once: contracts are few, and never change."""
    return contract.digest()


def _micros(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ConfigurationError("a deadline needs a time zone")
    return int(moment.timestamp() * 1_000_000)
