"""Stored rows turned into what handlers see: events and settlements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select

from landed.deliveries.classify import QuarantinedEvent, read_data
from landed.deliveries.producer import Producer
from landed.errors import ConfigurationError
from landed.records.effects import EffectView
from landed.records.prepared import Prepared
from landed.records.tables import payloads, receipts
from landed.registry import Event, Registry, Settlement, TransportRef


def stored_rows(conn: Connection, receipt_ids: Sequence[UUID]) -> Mapping[UUID, Row[Any]]:
    """Receipts with their payloads, in one statement."""
    if not receipt_ids:
        return {}
    rows = _STORED.execute(conn, ids=list(set(receipt_ids))).all()
    return {row.receipt_id: row for row in rows}


_STORED: Final = Prepared(
    lambda shape: (
        select(receipts, payloads.c.body)
        .outerjoin(payloads, payloads.c.receipt_id == receipts.c.receipt_id)
        .where(shape.among(receipts.c.receipt_id, "ids"))
    )
)


def event_of(row: Row[Any], registry: Registry) -> Event[Any]:
    """The event of a receipt, its data read by the check of today.

    ``data`` is None if its producer's payloads are not kept.

    Raises:
        ConfigurationError: its producer or type is no longer declared, or its payload does not fit.
    """
    producer = registry.producers.get(row.namespace)
    if producer is None:
        raise ConfigurationError(f"producer {row.namespace} is no longer declared")
    return Event(
        namespace=row.namespace,
        source=row.source,
        id=row.event_id,
        type=row.type,
        schema_version=row.schema_version,
        subject=row.subject,
        data=None if row.body is None else _data(row, producer),
        receipt_id=row.receipt_id,
        received_us=row.received_at,
        occurred_us=row.occurred_at,
        origin=row.origin,
        transport_ref=None if row.transport_ref is None else TransportRef(row.transport_ref),
    )


def settlement_of(effect: EffectView) -> Settlement:
    """How an effect ended."""
    return Settlement(
        effect_id=effect.effect_id,
        recipient=effect.recipient,
        effect_type=effect.effect_type,
        effect_key=effect.effect_key,
        state=effect.state,
        reason=effect.reason,
        certainty=effect.certainty,
        result=effect.result,
        recipient_ref=effect.recipient_ref,
        version=effect.version,
    )


def _data(row: Row[Any], producer: Producer) -> object:
    declared = producer.types.get(row.type)
    if declared is None or row.schema_version not in declared.versions:
        raise ConfigurationError(
            f"{row.namespace} no longer declares {row.type} (schema {row.schema_version})"
        )
    read = read_data(row.body, row.schema_version, declared, producer)
    if isinstance(read, QuarantinedEvent):
        raise ConfigurationError(f"the payload no longer fits: {read.reason.value}: {read.detail}")
    return read.data
