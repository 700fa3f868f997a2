"""A feed that is read while a commit ends skips nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask
from landed.engines.sqlite import open_sqlite
from landed.engines.sqlite.owed import Owed
from landed.engines.sqlite.store import SqliteStore
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import ANY, Delete, DeleteLeg, Event, FeedPage, FeedRead, Landed, Write

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
CLIENT = ClientId(UUID(int=9))
PATIENCE_S = 20


def write(seq: int) -> Write:
    event = Event.new(1, b"x", client_seq=seq, event_id=None)
    return Write.to(KEY, [event], client_id=CLIENT, expected_version=ANY)


@pytest.mark.real_loop
async def test_a_life_that_begins_while_the_feed_is_read_is_in_the_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is on the disk, and its heads are not in memory yet: the reader looks just then."""
    durable, seen, published = threading.Event(), threading.Event(), threading.Event()

    def note(fact: str, _: object) -> None:
        if fact == "lane.committed" and durable.is_set():
            published.set()

    lane = await open_sqlite(
        tmp_path / "log.db", limits=Limits(inline_commit_ms=0), clock=SystemClock(), note=note
    )
    assert isinstance(await ask(lane, write(1)), Landed)
    await ask(lane, Delete(CLIENT, (DeleteLeg(KEY, ANY, True, False),)))
    owe, feed = Owed.owe, SqliteStore.feed

    def owe_late(owed: Owed, *rows: object) -> None:
        durable.set()
        assert seen.wait(PATIENCE_S)
        owe(owed, *rows)  # type: ignore[arg-type]

    def feed_just_then(store: SqliteStore, read: FeedRead, budget: int) -> FeedPage:
        assert durable.wait(PATIENCE_S)
        page = feed(store, read, budget)
        seen.set()
        assert published.wait(PATIENCE_S)
        return page

    monkeypatch.setattr(Owed, "owe", owe_late)
    monkeypatch.setattr(SqliteStore, "feed", feed_just_then)
    landing, reading = ask(lane, write(2)), ask(lane, FeedRead(1, 10))
    page = await reading
    assert isinstance(await landing, Landed)
    monkeypatch.undo()
    assert isinstance(page, FeedPage)
    assert not page.is_at_end
    rest = await ask(lane, FeedRead(page.next_after, 10))
    assert isinstance(rest, FeedPage)
    batches = [entry.batch for entry in (*page.entries, *rest.entries) if entry.batch is not None]
    assert [[event.client_seq for event in batch.events] for batch in batches] == [[2]]
    assert rest.is_at_end
    await lane.close()
