"""``Intake``: from the raw bytes of a delivery to an acknowledgement that is true.

An acknowledgement says that the event is durably held. It says nothing of later effects (RC-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, NamedTuple

from sqlalchemy import Engine

from landed.deliveries.event import Rejected
from landed.deliveries.producer import HEADERS_MAX
from landed.errors import ConfigurationError, LandedError
from landed.facts import Note, forget
from landed.intake import forms
from landed.intake.admission import Delivery, Doorkeeper, Refused
from landed.intake.ed25519 import find_check
from landed.intake.groups import Busy, Groups, Sizes, unavailable
from landed.intake.rate import Rates
from landed.intake.reading import Headers
from landed.intake.refusals import Refusals
from landed.records import ingest
from landed.records.bell import Ring, silent
from landed.records.receipts import Conflicting, Kept, Taken
from landed.records.session import Books, transact
from landed.registry import Registry

BEAT_S: Final = 20.0
"""How often the ingest clock is told that we can receive; well under ``ingest.BEAT_US``."""
WRITE_REFUSALS_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one boundary takes. Sizes in bytes, times in seconds."""

    headers: int = HEADERS_MAX
    header_bytes: int = 32 * 1024
    body_s: float = 30.0
    """A body that is not here by then is given up."""
    judging: int = 2
    """Threads that authenticate and check; a user's slow check holds up one of them."""
    sizes: Sizes = field(default_factory=Sizes)


class Acknowledged(NamedTuple):
    """Durably held, event by event. A member of a batch may be refused for good."""

    items: tuple[Taken | Rejected, ...]


Answer = Acknowledged | Rejected


class Intake:
    """The boundary of one ledger.

    Args:
        engine: of the records.
        books: the ledger's.
        registry: what is declared, after the start.
        endpoints: by path name, the producers that may deliver there. None: one endpoint for each
            producer, named like its namespace. A name is an address and proves nothing.
        note: takes facts.
        bounds: what is taken at most.
        is_grouping: share one commit between requests that wait together.
        ring: tells the workers of this process that something was kept.
    """

    def __init__(
        self,
        engine: Engine,
        books: Books,
        registry: Registry,
        *,
        endpoints: Mapping[str, Sequence[str]] | None = None,
        note: Note = forget,
        bounds: Bounds | None = None,
        is_grouping: bool = True,
        ring: Ring = silent,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.registry = registry
        self.engine = engine
        self.note = note
        self._books = books
        self._endpoints = None if endpoints is None else dict(endpoints)
        self._doorkeeper: Doorkeeper | None = None
        self._judges = ThreadPoolExecutor(self.bounds.judging, thread_name_prefix="landed-intake")
        self._groups = Groups(
            engine,
            books,
            note=note,
            sizes=self.bounds.sizes,
            is_grouping=is_grouping,
            ring=ring,
        )
        self._refusals = Refusals(engine, books, note=note)
        self._rates = Rates(books.clock)
        self._chores: asyncio.Task[None] | None = None
        self._is_closed = False

    @cached_property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """By path name, the namespaces that may deliver there."""
        producers = self.registry.producers
        declared: Mapping[str, Sequence[str]] = (
            {name: (name,) for name in producers} if self._endpoints is None else self._endpoints
        )
        for endpoint, namespaces in declared.items():
            for namespace in namespaces:
                if namespace not in producers:
                    raise ConfigurationError(f"{endpoint}: no producer {namespace} is declared")
        return {endpoint: tuple(namespaces) for endpoint, namespaces in declared.items()}

    def body_bytes_max(self, endpoint: str) -> int:
        """The largest body that any producer of an endpoint may send; 0 for no endpoint."""
        return max(
            (
                self.registry.producers[name].body_bytes_max
                for name in self.endpoints.get(endpoint, ())
            ),
            default=0,
        )

    async def receive(self, endpoint: str, headers: Headers, body: bytes) -> Answer:
        """Take one delivery, and answer only once it is durable (or will never be taken).

        Args:
            endpoint: the path name it was sent to.
            headers: by lower-case name, every line of each.
            body: the raw bytes.
        """
        self._do_chores()
        namespaces = self.endpoints.get(endpoint)
        if namespaces is None:
            return self.refuse(
                Rejected(status=403, reason="no_endpoint", detail="no endpoint has this name")
            )
        loop = asyncio.get_running_loop()
        try:
            doorkeeper = await self._door()
            admitted = await loop.run_in_executor(
                self._judges,
                partial(doorkeeper.admit, Delivery(headers=headers, body=body), namespaces),
            )
        except LandedError:
            return unavailable()
        except Exception as e:  # noqa: BLE001  # a bug of ours is no verdict on the event
            self.note("intake.failed", {"error": type(e).__name__, "members": 1})
            return unavailable()
        if isinstance(admitted, Refused):
            return self.refuse(admitted.rejected, admitted.namespace)
        wait_s = self._rates.take(admitted.producer)
        if wait_s is not None:
            return self.refuse(
                Rejected(
                    status=429,
                    reason="too_fast",
                    detail="more than this producer may send",
                    retry_after_s=wait_s,
                ),
                admitted.producer.namespace,
            )
        try:
            outcome = await self._groups.take(admitted)
        except Busy:
            return unavailable("too much waits to be kept")
        if isinstance(outcome, Rejected):
            return self.refuse(outcome, admitted.producer.namespace)
        for item in outcome:
            if isinstance(item, Rejected):
                self.refuse(item, admitted.producer.namespace)
            else:
                self.note(
                    "intake.received",
                    {"namespace": admitted.producer.namespace, "disposition": word_of(item)},
                )
        return Acknowledged(outcome)

    def refuse(self, rejected: Rejected, namespace: str | None = None) -> Rejected:
        """Count a refusal. What may succeed when it comes again is not one."""
        if rejected.status != 503:
            self._refusals.count(namespace, rejected.reason, rejected.detail)
        return rejected

    async def write_refusals(self) -> None:
        """Write down at once what was refused; else it happens within a second or two."""
        await self._groups.on_thread(self._refusals.write)

    async def close(self) -> None:
        """Answer what was taken, write down what was counted, and let go of the threads."""
        self._is_closed = True
        if self._chores is not None:
            self._chores.cancel()
            await asyncio.gather(self._chores, return_exceptions=True)
        if not self._refusals.is_empty:
            await self.write_refusals()
        await self._groups.close()
        self._judges.shutdown(wait=False)

    async def _door(self) -> Doorkeeper:
        if self._doorkeeper is None:
            known = await asyncio.get_running_loop().run_in_executor(
                self._judges, forms.remember, self.engine, self.registry
            )
            self._doorkeeper = Doorkeeper(
                registry=self.registry,
                now_us=self._books.wall_us,
                check_ed25519=find_check(),
                forms=known,
            )
        return self._doorkeeper

    def _do_chores(self) -> None:
        if self._is_closed:
            return
        if self._chores is None or self._chores.done():
            self._chores = asyncio.create_task(self._keep_house(), name="landed intake")

    def start(self) -> None:
        """Begin to tell the ingest clock that we can receive; the first delivery does so as well."""
        self._do_chores()

    async def _keep_house(self) -> None:
        """Beat, and write refusals, as long as the boundary is open."""
        beaten_ms: float | None = None
        while True:
            now_ms = float(self._books.clock.monotonic_ms())
            if beaten_ms is None or now_ms - beaten_ms >= BEAT_S * 1000:
                beaten_ms = now_ms
                await self._groups.on_thread(self._beat)
            if not self._refusals.is_empty:
                await self.write_refusals()
            await asyncio.sleep(WRITE_REFUSALS_S)

    def _beat(self) -> None:
        try:
            transact(self.engine, lambda conn: ingest.beat(conn, self._books), is_durable=False)
        except LandedError as e:
            self.note("intake.failed", {"error": str(e), "members": 0})


def word_of(item: Taken | Rejected) -> str:
    """One word for what became of an event, as answers and facts carry it."""
    match item:
        case Kept(disposition=disposition):
            return disposition
        case Conflicting():
            return "conflict"
        case Rejected(reason=reason):
            return reason
        case _:
            return "duplicate"
