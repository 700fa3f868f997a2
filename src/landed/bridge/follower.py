"""Follows a log's feed and takes its events as receipts, through the ordinary functions of intake.

The cursor moves in the transaction that keeps the receipts. Losing it, or reading a page twice,
costs time and no second receipt: an event is known by where it stands in its aggregate, which never
changes, and never by its position in the feed (rule ID-5).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from landed.client.log import Log, LogInfo
from landed.deliveries.event import Event as Delivered
from landed.deliveries.event import IdentityRule, Verified
from landed.deliveries.producer import Producer
from landed.deliveries.verify import StandardWebhooks
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.intake.admission import Admitted, Delivery, Doorkeeper
from landed.intake.groups import keep_all
from landed.ledger import Ledger
from landed.ledger.event_type import Declared
from landed.log import Batch, Event, FeedEntry, FeedKind, FeedPage, FeedRead
from landed.records import cursors
from landed.records.session import transact

PAGE: Final = 200
_OCCURRED_MS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Which events of a log are taken, and what they are called."""

    types: Mapping[int, str]
    """By major type, the name of the event type; other events are passed over."""
    aggregate_types: frozenset[UUID] | None = None
    """Only of these aggregates; None: of all."""


def log_producer(ledger: Ledger, namespace: str, types: Mapping[str, Declared]) -> Producer:
    """Declare a log as a producer of a ledger. Nobody can sign in its name over HTTP."""
    return ledger.producer(
        namespace,
        authentication=StandardWebhooks(keys=()),
        types=types,
        identity=IdentityRule.FIELD,
        identity_field=("-",),
    )


class LogFollower:
    """An agent: run it along with a ledger's worker (``ledger.worker(others=[follower])``).

    Args:
        log: any log, open.
        ledger: where receipts go; started before the first round.
        producer: as ``log_producer`` declared it.
        followed: which events, under which names.
        page: entries of the feed taken in one transaction.
        note: takes facts.
    """

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        producer: Producer,
        followed: Followed,
        *,
        page: int = PAGE,
        note: Note = forget,
    ) -> None:
        self.name = f"follow:{producer.namespace}"
        self._log = log
        self._ledger = ledger
        self._namespace = producer.namespace
        self._followed = followed
        self._page = page
        self._note = note
        self._doorkeeper = Doorkeeper(registry=ledger.registry, now_us=ledger.books.now_us)

    async def run_once(self) -> int:
        """Take one page of the feed; returns how many entries it had.

        Raises:
            ConfigurationError: it is another log than the one that was followed before.
            LandedError: the log or the database failed; nothing was moved on.
        """
        info = await self._log.info()
        after = await asyncio.to_thread(
            transact, self._ledger.engine, lambda conn: self._position(conn, info), is_durable=False
        )
        page = await self._log.feed(FeedRead(after=after, limit=self._page))
        if page.next_after == after:
            return 0
        await asyncio.to_thread(
            transact, self._ledger.engine, lambda conn: self._keep(conn, info, page)
        )
        self._note("bridge.followed", {"namespace": self._namespace, "position": page.next_after})
        return len(page.entries)

    def _position(self, conn: Connection, info: LogInfo) -> int:
        """Where to go on. After a restore of the log from its beginning: repeats are recognised."""
        stored = cursors.load(conn, self.name)
        if stored is None:
            return 0
        known = json.loads(stored)
        if known["log_id"] != str(info.log_id):
            raise ConfigurationError(
                f"{self._namespace} followed log {known['log_id']}, and this is {info.log_id}: its "
                "events would be taken for new ones; declare another namespace for another log"
            )
        return int(known["after"]) if known["restore_epoch"] == info.restore_epoch else 0

    def _keep(self, conn: Connection, info: LogInfo, page: FeedPage) -> None:
        """Receipts of a page, and the cursor behind it: together or not at all."""
        producer = self._ledger.registry.producers[self._namespace]
        verified = Verified(namespace=self._namespace, key_id=f"log:{info.log_id}", method="log")
        arrivals = tuple(
            self._doorkeeper.arrive(
                delivered,
                producer,
                verified,
                Delivery(headers={}, body=b"", transport="log", transport_ref=str(entry.position)),
            )
            for entry in page.entries
            for delivered in self._events(entry, info)
        )
        if arrivals:
            keep_all(
                conn, self._ledger.books, [Admitted(producer, verified, arrivals)], note=self._note
            )
        place = {
            "log_id": str(info.log_id),
            "restore_epoch": info.restore_epoch,
            "after": page.next_after,
        }
        cursors.save(conn, self._ledger.books, self.name, json.dumps(place))

    def _events(self, entry: FeedEntry, info: LogInfo) -> list[Delivered]:
        if entry.kind is not FeedKind.WRITTEN or entry.batch is None:
            return []
        only = self._followed.aggregate_types
        if only is not None and entry.key.type not in only:
            return []
        batch = entry.batch
        return [
            self._delivered(entry, batch, index, event, info)
            for index, event in enumerate(batch.events)
            if event.type_major in self._followed.types
        ]

    def _delivered(
        self, entry: FeedEntry, batch: Batch, index: int, event: Event, info: LogInfo
    ) -> Delivered:
        """One event, named by what the log never changes of it.

        Version and place say which event of one life of the aggregate it is. Lives whose versions
        both began at 1 are told apart by the server's stamp, which never goes back, and by the
        writer's own number, which a writer never uses twice, whatever was deleted (log rule I15).
        """
        has_time = 0 < event.event_ms <= _OCCURRED_MS_MAX
        return Delivered(
            source=f"log:{info.log_id}/{entry.key}",
            id=f"{batch.version}.{index}@{batch.server_ms}/{batch.client_id}:{event.client_seq}",
            identity_rule=IdentityRule.FIELD,
            type=self._followed.types[event.type_major],
            subject=str(entry.key.id),
            occurred_us=event.event_ms * 1000 if has_time else None,
            content_type="application/json",
            data=bytes(event.value),
        )
