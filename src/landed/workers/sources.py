"""Where a run's items come from: a file of stored deliveries, or the receipts that we have."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, select

from landed.deliveries.event import Rejected
from landed.errors import ConfigurationError
from landed.intake.admission import Admitted, Delivery, Doorkeeper, Refused
from landed.records.session import transact
from landed.records.tables import quarantine, receipts


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """One line of a file: ``{"headers": {...}, "body": "..."}`` or ``"body_base64"``."""

    line: bytes

    def admit(
        self, keeper: Doorkeeper, *, namespace: str, origin: str, is_stale_approved: bool
    ) -> Admitted | Refused:
        """Authenticate it by its own signature, as if it came now."""
        delivery = self._delivery(origin, is_stale_approved)
        if delivery is None:
            reason = Rejected(status=400, reason="bad_syntax", detail="not a stored delivery")
            return Refused(reason, namespace)
        return keeper.admit(delivery, (namespace,))

    def _delivery(self, origin: str, is_stale_approved: bool) -> Delivery | None:
        try:
            stored = json.loads(self.line)
            headers = {
                str(name).lower(): [value] if isinstance(value, str) else [*map(str, value)]
                for name, value in stored["headers"].items()
            }
            body = (
                base64.b64decode(stored["body_base64"], validate=True)
                if "body_base64" in stored
                else stored["body"].encode()
            )
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError):
            return None
        return Delivery(
            headers=headers,
            body=body,
            transport="stored",
            origin=origin,
            is_stale_approved=is_stale_approved,
        )


class DeliveryFile:
    """A file of JSON lines. Only the places of its lines are held in memory.

    Raises:
        ConfigurationError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: list[int] = []
        try:
            with path.open("rb") as lines:
                place = 0
                for line in lines:
                    if line.strip():
                        self._places.append(place)
                    place += len(line)
        except OSError as e:
            raise ConfigurationError(f"{path} cannot be read: {e.strerror}") from None

    @property
    def total(self) -> int:
        """How many items there are."""
        return len(self._places)

    def read(self, start: int, count: int) -> Sequence[StoredDelivery]:
        """Lines from a place on."""
        with self._path.open("rb") as lines:
            items: list[StoredDelivery] = []
            for place in self._places[start : start + count]:
                lines.seek(place)
                items.append(StoredDelivery(lines.readline()))
            return items


class ReceiptList:
    """The receipts of a producer that wait for a decision, in the order of their ids."""

    def __init__(self, engine: Engine, namespace: str, *, not_after: UUID) -> None:
        def _work(conn: Connection) -> list[UUID]:
            # Decided ones as well, so that places stay what they were after a restart.
            return list(
                conn.execute(
                    select(receipts.c.receipt_id)
                    .join(quarantine, quarantine.c.receipt_id == receipts.c.receipt_id)
                    .where(receipts.c.namespace == namespace, receipts.c.receipt_id < not_after)
                    .order_by(receipts.c.receipt_id)
                ).scalars()
            )

        self._ids = transact(engine, _work, is_durable=False)

    @property
    def total(self) -> int:
        """How many items there are."""
        return len(self._ids)

    def read(self, start: int, count: int) -> Sequence[UUID]:
        """Ids from a place on."""
        return self._ids[start : start + count]
