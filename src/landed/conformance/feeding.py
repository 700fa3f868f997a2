"""Obligations: the feed of all aggregates: no gap, one order, and it waits (design decisions 11, 12)."""

from __future__ import annotations

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, Trial, delete, expect, key, leg, write
from landed.log import FeedKind, FeedPage, FeedRead, Unknown, Write


@obligation("FEED", levers=(Lever.RESTART,))
async def the_feed_tells_every_change_once_in_one_order(trial: Trial) -> None:
    await trial.ask_all(write(key(n), seq) for seq in (1, 2, 3) for n in range(5))
    await trial.ask(Write(A, (leg(key(0), 4), leg(key(1), 4))))
    await trial.trim(key(0), 2)
    await trial.delete(key(4))
    entries = await trial.entries()
    positions = [entry.position for entry in entries]
    assert positions == sorted(set(positions))
    assert trial.engine.position == positions[-1]
    assert [(e.kind, e.key, e.version) for e in entries[-4:]] == [
        (FeedKind.WRITTEN, key(0), 4),
        (FeedKind.WRITTEN, key(1), 4),
        (FeedKind.TRIMMED, key(0), 2),
        (FeedKind.DELETED, key(4), 3),
    ]
    for n in range(1, 4):
        told = [e.batch for e in entries if e.key == key(n) and e.kind is FeedKind.WRITTEN]
        assert told == await trial.batches(key(n))
    gone = [e for e in entries if e.key == key(4) and e.kind is FeedKind.WRITTEN]
    assert gone == []
    await trial.restart()
    assert await trial.entries() == entries


@obligation("FEED", max_response_size=2_000)
async def the_feed_pages_without_loss_or_repetition(trial: Trial) -> None:
    await trial.ask_all(write(key(n % 7), n + 1, value=bytes(300)) for n in range(50))
    whole = await trial.entries()
    assert [entry.batch.events[0].client_seq for entry in whole if entry.batch] == list(
        range(1, 51)
    )
    assert await trial.entries(limit=3) == whole
    assert await trial.entries(whole[20].position) == whole[21:]
    page = expect(FeedPage, await trial.ask(FeedRead(0, limit=3)))
    assert len(page.entries) == 3
    assert page.is_at_end is False


@obligation("FEED")
async def the_end_of_the_feed_is_told(trial: Trial) -> None:
    assert await trial.ask(FeedRead(0)) == FeedPage((), 0, True)
    await trial.land(write(key(), 1))
    end = trial.engine.position
    page = expect(FeedPage, await trial.ask(FeedRead(0)))
    assert (page.next_after, page.is_at_end) == (end, True)
    assert await trial.ask(FeedRead(end)) == FeedPage((), end, True)
    assert await trial.ask(FeedRead(end + 1_000)) == FeedPage((), end + 1_000, True)


@obligation("FEED")
async def a_cursor_moves_past_entries_that_are_gone(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq) for seq in range(1, 11))
    await trial.delete(key())
    page = expect(FeedPage, await trial.ask(FeedRead(0)))
    assert [entry.kind for entry in page.entries] == [FeedKind.DELETED]
    assert page.next_after == trial.engine.position


@obligation("FEED", levers=(Lever.HOLD,))
async def a_feed_read_waits_for_the_next_entry(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    end = trial.engine.position
    waiting = [trial.ask(FeedRead(end, wait_ms=30_000)) for _ in range(3)]
    trial.hold()
    pending = trial.ask(write(key(), 2))
    assert await trial.ask(FeedRead(end)) == FeedPage((), end, True)
    assert not any(future.done() for future in waiting)
    trial.release()
    await pending
    for future in waiting:
        page = expect(FeedPage, await future)
        assert [(entry.key, entry.version) for entry in page.entries] == [(key(), 2)]


@obligation("FEED")
async def a_feed_read_waits_no_longer_than_asked(trial: Trial) -> None:
    assert await trial.ask(FeedRead(0, wait_ms=20)) == FeedPage((), 0, True)


@obligation("FEED", levers=(Lever.FAIL, Lever.RESTART))
async def a_failed_flush_is_never_told_by_the_feed(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    end = trial.engine.position
    waiting = trial.ask(FeedRead(end, wait_ms=30_000))
    trial.fail_next()
    expect(Unknown, await trial.ask(write(key(), 2, value=b"lost")))
    assert not waiting.done()
    await trial.land(write(key(), 2, value=b"kept"))
    page = expect(FeedPage, await waiting)
    assert [entry.batch.events[0].value for entry in page.entries if entry.batch] == [b"kept"]
    await trial.restart()
    assert await trial.entries(end) == list(page.entries)


@obligation("FEED", levers=(Lever.RESTART,))
async def positions_are_never_reused(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    await trial.ask(delete(key()))
    last = trial.engine.position
    await trial.restart()
    await trial.land(write(key(2), 1))
    assert trial.engine.position > last
    (entry,) = await trial.entries(last)
    assert (entry.key, entry.version) == (key(2), 1)
