"""A log file driven by the law alone: judged, staged and committed without a lane."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from landed.engines.group import Group
from landed.engines.sqlite import SqliteStore
from landed.engines.standing import Standing
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    ANY,
    NEVER,
    Batch,
    Delete,
    DeleteLeg,
    Event,
    FeedEntry,
    FeedRead,
    Head,
    Leg,
    Mutation,
    Page,
    Read,
    ReadFilters,
    Trim,
    Write,
)
from landed.log.judge import judge_delete, judge_trim, judge_write

A = ClientId(UUID(int=0xA))
B = ClientId(UUID(int=0xB))
BUDGET = 1024 * 1024
NOW_MS = 1_700_000_000_000


def key(number: int) -> AggregateKey:
    # Spread over the key space, as ids are.
    return AggregateKey(UUID(int=1), UUID(int=2), UUID(int=number * 0x9E3779B97F4A7C15 << 56))


def event(seq: int, value: bytes = b"value") -> Event:
    return Event.new(1, value, client_seq=seq, event_id=UUID(int=seq))


class LogFile:
    """One open store, with the accepted tail that a lane would keep."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.path = path
        self.store = SqliteStore(path, limits=replace(Limits(), **settings))
        self.position, self.last_ms = self.store.open()
        self.now_ms = max(NOW_MS, self.last_ms)
        self._heads: dict[AggregateKey, Head] = {}
        self._marks: dict[tuple[AggregateKey, ClientId], int] = {}
        self._standings: defaultdict[AggregateKey, Standing] = defaultdict(lambda: Standing(NEVER))

    # --- the accepted tail, for the law

    def head(self, key: AggregateKey) -> Head:
        if key not in self._heads:
            self._heads[key] = self.store.load([key], []).heads.get(key, NEVER)
        return self._heads[key]

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        pair = (key, client_id)
        if pair not in self._marks:
            self._marks[pair] = self.store.load([], [pair]).marks.get(pair, 0)
        return self._marks[pair]

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> None:
        return None

    # --- changes, a group each

    def stage(self, group: Group, change: Mutation) -> None:
        self.now_ms += 1
        now_ms = self.now_ms
        if isinstance(change, Write):
            steps = judge_write(change, self, now_ms=now_ms, seq_jump_max=0)
            assert isinstance(steps, tuple)
            standings = [self._standings[step.key] for step in steps]
            self.position = group.add_write(change, steps, standings, now_ms, self.position)
        else:
            steps = (
                judge_trim(change, self, now_ms=now_ms)
                if isinstance(change, Trim)
                else judge_delete(change, self, now_ms=now_ms)
            )
            assert isinstance(steps, tuple)
            standings = [self._standings[step.key] for step in steps]
            self.position = group.add_other(change, steps, standings, self.position)
        for step in steps:
            self._heads[step.key] = step.head
            pair = (step.key, change.client_id)
            self._marks[pair] = max(self.mark(*pair), step.highest_seq)

    def commit(self, *changes: Mutation) -> None:
        group = Group()
        for change in changes:
            self.stage(group, change)
        self.store.commit(group.staged)

    def write(
        self,
        key: AggregateKey,
        *seqs: int,
        client: ClientId = A,
        value: bytes = b"value",
        enforce: bool = True,
        user: UUID | None = None,
    ) -> None:
        events = tuple(event(seq, value) for seq in seqs)
        self.commit(Write(client, (Leg(key, events, ANY, True, enforce),), user))

    def fill(
        self,
        *keys: AggregateKey,
        seqs: Iterable[int],
        clients: tuple[ClientId, ...] = (A,),
        value: bytes = b"value",
    ) -> None:
        """A batch for each sequence and key, all in one group; the clients take turns."""
        self.commit(
            *(
                Write(
                    clients[at % len(clients)], (Leg(key, (event(seq, value),), ANY, True, True),)
                )
                for at, seq in enumerate(seqs)
                for key in keys
            )
        )

    def trim(self, key: AggregateKey, keep_from: int) -> None:
        self.commit(Trim(key, keep_from, A))

    def delete(self, key: AggregateKey, *, recreate: bool = True, go_on: bool = False) -> None:
        self.commit(Delete(A, (DeleteLeg(key, ANY, recreate, go_on),)))

    # --- looks

    def page(self, key: AggregateKey, filters: ReadFilters | None = None, **more: int) -> Page:
        head = self.head(key)
        filters = filters or ReadFilters(head.floor)
        answer = self.store.read(Read(key, filters), head, more.get("budget", BUDGET))
        assert isinstance(answer, Page), answer
        return answer

    def batches(self, key: AggregateKey) -> tuple[Batch, ...]:
        page = self.page(key)
        assert page.next_version is None
        return page.batches

    def versions(self, key: AggregateKey) -> list[int]:
        return [batch.version for batch in self.batches(key)]

    def feed(self, after: int = 0) -> tuple[FeedEntry, ...]:
        page = self.store.feed(FeedRead(after, 1_000_000), BUDGET)
        assert page.is_at_end
        return page.entries

    def stored_mark(self, key: AggregateKey, client_id: ClientId = A) -> int:
        """What a cold start would know."""
        return self.store.load([], [(key, client_id)]).marks.get((key, client_id), 0)

    def close(self) -> None:
        self.store.close()


@contextmanager
def opened(path: Path, **settings: object) -> Iterator[LogFile]:
    log = LogFile(path, **settings)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file itself, behind the store's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
