"""The agent that hands outbox rows on: one destination, from row state, head of each group first.

A row is done only with the destination's proof in hand. It may be handed on more than once, always
as the same message (rules OB-2 to OB-8).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never, cast

from sqlalchemy import Connection, Engine

from landed.errors import StorageError
from landed.facts import Note, forget
from landed.records import lanes, outbox, reviews, schedule
from landed.records.leases import TAKEOVER_S, Leases
from landed.records.session import Books, jittered_us
from landed.records.turns import Turns
from landed.registry import Registry
from landed.relay.alerts import Everywhere
from landed.relay.port import (
    Gone,
    Handed,
    NotHanded,
    Outgoing,
    Sink,
    Taken,
    Undeliverable,
)
from landed.relay.sinks.log import LogSink

_BACKOFF_EXPONENT_MAX: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How hand-offs go. Times in the unit of their name."""

    batch: int = 100
    """Claimed at most at once."""
    concurrency: int = 16
    """Handed on at once."""
    timeout_s: float = 20.0
    """One hand-off. Longer than a sink's own limit, so that the sink's answer comes first."""
    takeover_s: float = TAKEOVER_S
    """How soon others take up the work of a worker that was killed; its leases are renewed till then."""
    tries_max: int = 40
    """Failures before a message is set aside; with these delays, after more than a day."""
    backoff_us: int = 1_000_000
    backoff_max_us: int = 3_600_000_000


class _Sent(NamedTuple):
    claim: schedule.Claim
    row: outbox.Row
    handed: Handed


class Relay:
    """One lane: ``relay:<destination>``, or ``alert``."""

    def __init__(
        self,
        engine: Engine,
        books: Books,
        *,
        lane: str,
        sink: Sink,
        owner: str,
        chance: random.Random,
        note: Note = forget,
        pace: Pace | None = None,
        is_skipping: bool = False,
        turns: Turns | None = None,
    ) -> None:
        self.name = lane
        self.lane = lane
        self._turns = Turns(engine) if turns is None else turns
        self._books = books
        self._sink = sink
        self._owner = owner
        self._chance = chance
        self._note = note
        self._pace = Pace() if pace is None else pace
        self._is_skipping = is_skipping
        self._slots = asyncio.Semaphore(self._pace.concurrency)
        self._paused_until_ms = 0.0
        self._leases = Leases(self._turns, books, lease_s=self._pace.takeover_s)

    async def run_once(self) -> int:
        """Claim what is due, hand it on, record each proof; returns how many were claimed."""
        if self._books.clock.monotonic_ms() < self._paused_until_ms:
            return 0
        claimed = await self._turns.transact(self._claim, is_durable=False)
        if claimed:
            self._leases.hold([claim for claim, _ in claimed])
            async with self._leases.kept():
                await self._hand_all_on(claimed)
        return len(claimed)

    async def _hand_all_on(self, claimed: Sequence[tuple[schedule.Claim, outbox.Row]]) -> None:
        pending = {asyncio.ensure_future(self._hand_on(claim, row)) for claim, row in claimed}
        try:
            while pending:
                # What is answered while a record is written is recorded together by the next.
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                await self._record([task.result() for task in done])
        finally:
            for task in pending:
                task.cancel()
            self._leases.let_go([claim for claim, _ in claimed])

    async def close(self) -> None:
        """Let go of the sink's connections."""
        await self._sink.close()

    def _claim(self, conn: Connection) -> list[tuple[schedule.Claim, outbox.Row]]:
        if lanes.why_stopped(conn, self.lane) is not None:
            return []
        claims = schedule.claim(
            conn,
            self._books,
            lane=self.lane,
            owner=self._owner,
            limit=self._pace.batch,
            lease_us=int(self._pace.takeover_s * 1_000_000),
        )
        rows = {row.outbox_id: row for row in outbox.rows(conn, [c.subject_id for c in claims])}
        claimed = []
        for claim in claims:
            row = rows.get(claim.subject_id)
            if row is not None and row.state == "queued":
                claimed.append((claim, row))
            else:
                schedule.finish(conn, [claim])
        return claimed

    async def _hand_on(self, claim: schedule.Claim, row: outbox.Row) -> _Sent:
        async with self._slots:
            self._note("kp", {"point": "KP-9"})
            self._note_window(claim, row)
            try:
                async with asyncio.timeout(self._pace.timeout_s):
                    handed = await self._sink.hand_on(self._outgoing(row))
            except Exception as e:  # noqa: BLE001  # whatever a sink raises: nobody knows
                handed = NotHanded(f"{type(e).__name__}: {e}")
            self._note("kp", {"point": "KP-10"})
            return _Sent(claim, row, handed)

    def _outgoing(self, row: outbox.Row) -> Outgoing:
        headers = cast("dict[str, str]", json.loads(row.headers))
        return Outgoing(
            message_id=row.message_id,
            type=row.type,
            source=headers.get("source", f"{self._books.ledger}/{row.kind}s"),
            data=row.body or b"null",
            created_us=row.created_at,
            order_key=row.order_key,
            order_seq=row.order_seq,
        )

    def _note_window(self, claim: schedule.Claim, row: outbox.Row) -> None:
        """A repeat later than the destination recognises it: consumers must (rule OB-5)."""
        window_s = self._sink.dedup_window_s
        if claim.claims <= 1 or window_s is None:
            return
        age_s = (self._books.now_us() - row.created_at) / 1_000_000
        if age_s > window_s:
            self._note("relay.outside_window", {"lane": self.lane, "message": row.message_id})

    # --- TX-RELAY -------------------------------------------------------------------------------

    async def _record(self, sent: Sequence[_Sent]) -> None:
        try:
            await self._turns.transact(lambda conn: self._write(conn, sent))
        except StorageError as e:
            # The leases end, and the same messages go out again.
            self._note("relay.unrecorded", {"lane": self.lane, "why": str(e)})
        for one in sent:
            self._note(
                "relay.handed",
                {"lane": self.lane, "outcome": type(one.handed).__name__, "tries": one.row.tries},
            )
            if isinstance(one.handed, NotHanded) and one.handed.retry_after_s is not None:
                until_ms = self._books.clock.monotonic_ms() + one.handed.retry_after_s * 1000
                self._paused_until_ms = max(self._paused_until_ms, until_ms)

    def _write(self, conn: Connection, sent: Sequence[_Sent]) -> None:
        taken = {
            claim: (row.outbox_id, json.dumps(handed.proof))
            for claim, row, handed in sent
            if isinstance(handed, Taken)
        }
        outbox.mark_handed_on(conn, self._books, dict(taken.values()))
        schedule.finish(conn, list(taken))
        for claim, row, handed in sent:
            match handed:
                case Taken():
                    pass
                case NotHanded(error=error, retry_after_s=wait_s):
                    if row.tries + 1 >= self._pace.tries_max:
                        self._park(conn, row, error)
                        continue
                    outbox.note_failure(conn, row.outbox_id, error)
                    schedule.rearm(
                        conn, self._books, claim, delay_us=self._delay_us(row.tries, wait_s)
                    )
                case Undeliverable(error=error):
                    self._park(conn, row, error)
                case Gone(error=error):
                    outbox.note_failure(conn, row.outbox_id, error)
                    schedule.rearm(conn, self._books, claim, delay_us=0)
                    self._stop(conn, error)
                case _:
                    assert_never(handed)

    def _delay_us(self, tries: int, wait_s: float | None) -> int:
        pace = self._pace
        delay = jittered_us(
            pace.backoff_us, min(tries, _BACKOFF_EXPONENT_MAX), pace.backoff_max_us, self._chance
        )
        return delay if wait_s is None else max(delay, int(wait_s * 1_000_000))

    def _park(self, conn: Connection, row: outbox.Row, error: str) -> None:
        """TX-PARK: it blocks its group until a person decides, unless skipping is allowed."""
        if not outbox.park(
            conn, self._books, row.outbox_id, error=error, is_skipping=self._is_skipping
        ):
            return
        if row.kind == "alert":
            return  # an alert about an alert would come here again
        reviews.open_review(
            conn,
            self._books,
            reviews.Review(
                kind="relay_skipped" if self._is_skipping else "relay_parked",
                subject_kind=outbox.OUTBOX,
                subject_id=str(row.outbox_id),
                severity="warning",
                owner="installation",
                note=f"{self.lane}: message {row.message_id} was not taken: {error}",
            ),
        )

    def _stop(self, conn: Connection, error: str) -> None:
        if not lanes.stop(conn, self._books, self.lane, by="relay", why=error):
            return
        reviews.open_review(
            conn,
            self._books,
            reviews.Review(
                kind="destination_gone",
                subject_kind="lane",
                subject_id=self.lane,
                severity="critical",
                owner="installation",
                note=f"{self.lane} is stopped: {error}",
            ),
        )


def relays(
    engine: Engine,
    books: Books,
    registry: Registry,
    *,
    owner: str,
    chance: random.Random,
    note: Note = forget,
    pace: Pace | None = None,
    turns: Turns | None = None,
) -> list[Relay]:
    """The relays of a ledger: one for each destination, so that none waits for another's; alerts."""
    made = [
        Relay(
            engine,
            books,
            lane=outbox.lane_of("event", destination.name),
            sink=cast("Sink", destination.sink),
            owner=owner,
            chance=chance,
            note=note,
            pace=pace,
            turns=turns,
            is_skipping=not destination.blocks_on_failure,
        )
        for destination in registry.destinations.values()
    ]
    sinks = cast("list[Sink]", registry.alert_sinks) or [LogSink()]
    made.append(
        Relay(
            engine,
            books,
            lane=reviews.ALERT_LANE,
            sink=Everywhere(sinks),
            owner=owner,
            chance=chance,
            note=note,
            pace=pace,
            turns=turns,
        )
    )
    return made
