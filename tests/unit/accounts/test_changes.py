"""The live stream: nothing is missed that was not said to be missed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import pytest

from landed.accounts import changes as changes_room
from landed.accounts.changes import WAITING_ACCOUNTS_MAX, Change, Changes, Listener
from landed.accounts.history import history_of
from landed.commands import Seen
from landed.errors import ReadFailedError
from landed.ids import AggregateKey
from landed.log import ANY, Event, Write
from tests.unit.accounts.replicas import X, Y, replicas


class Stream:
    """One live stream, read line by line over ASGI."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.may_send = asyncio.Event()
        self.may_send.set()

    async def send(self, message) -> None:
        await self.may_send.wait()
        for line in message.get("body", b"").decode().splitlines():
            if line:
                self.lines.put_nowait(line)

    async def next(self) -> str:
        return await self.lines.get()


@asynccontextmanager
async def listening(service):
    stream, gone = Stream(), asyncio.Event()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/api/watch/stream",
        "raw_path": b"/api/watch/stream",
        "query_string": b"",
        "headers": [],
    }

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    task = asyncio.create_task(service.app(scope, receive, stream.send))
    try:
        yield stream
    finally:
        gone.set()
        stream.may_send.set()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_stream_begins_with_a_resync_and_tells_changes_by_any_replica():
    async with replicas(2) as fleet, listening(fleet.services[0]) as stream:
        assert await stream.next() == "event: resync"
        assert await stream.next() == "data: {}"
        await fleet.deposit(X, 5, on=1)
        assert await stream.next() == "event: change"
        expected = f'data: {{"accountId":"{X}","operation":"write","aggregateVersion":1}}'
        assert await stream.next() == expected


async def test_a_silent_stream_says_something_every_fifteen_seconds():
    async with replicas() as fleet, listening(fleet.services[0]) as stream:
        await stream.next(), await stream.next()
        loop = asyncio.get_running_loop()
        for _ in range(3):
            before = loop.time()
            assert (await stream.next()).startswith(":")
            assert loop.time() - before == pytest.approx(15, abs=0.01)


async def test_a_slow_listener_loses_intermediate_changes_but_not_the_last_of_an_account():
    async with replicas() as fleet, listening(fleet.services[0]) as stream:
        await stream.next(), await stream.next()
        stream.may_send.clear()
        for cents in range(1, 30):
            await fleet.deposit(X, cents)
        await fleet.deposit(Y, 5)
        await asyncio.sleep(10)
        stream.may_send.set()
        told = []
        while not told or str(Y) not in told[-1]:
            line = await stream.next()
            if line.startswith("data"):
                told.append(line)
        assert len(told) < 10
        assert any('"aggregateVersion":29}' in line and str(X) in line for line in told)


async def test_other_aggregates_of_the_log_are_nobodys_accounts():
    async with replicas() as fleet, listening(fleet.services[0]) as stream:
        await stream.next(), await stream.next()
        other = AggregateKey(uuid4(), uuid4(), X)
        event = Event.new(1, b"{}", client_seq=1, event_id=None)
        await fleet.log.write(Write.to(other, [event], client_id=uuid4(), expected_version=ANY))
        await fleet.deposit(Y, 5)
        assert await stream.next() == "event: change"
        assert str(Y) in await stream.next()
        assert len((await fleet.get("/api/accounts")).json()["accounts"]) == 1


async def test_a_feed_that_failed_goes_on_after_a_resync_and_misses_nothing():
    async with replicas() as fleet, listening(fleet.services[0]) as stream:
        await stream.next(), await stream.next()
        real, failed = fleet.log.feed, asyncio.Event()

        async def broken(*_arguments, **_options):
            failed.set()
            raise ReadFailedError("gone for a moment")

        fleet.log.feed = broken
        await failed.wait()
        await fleet.deposit(X, 5)
        fleet.log.feed = real
        assert await stream.next() == "event: resync"
        await stream.next()
        assert await stream.next() == "event: change"
        assert str(X) in await stream.next()


async def test_streams_end_when_the_service_stops():
    async with replicas() as fleet, listening(fleet.services[0]) as stream:
        await stream.next(), await stream.next()
        fleet.services[0].end_streams()
        # The block ends only when the stream's task has ended by itself.


async def test_a_listener_far_behind_is_told_to_fetch_everything_once():
    listener = Listener()
    await listener.take()
    for number in range(WAITING_ACCOUNTS_MAX + 1):
        listener.tell(Change(UUID(int=number), "write", 1))
    listener.tell(Change(X, "write", 2))
    must_resync, changes = await listener.take()
    assert must_resync
    assert changes == [Change(X, "write", 2)]


async def test_two_readers_of_one_page_tell_each_change_once():
    async with replicas() as fleet:
        for cents in (1, 2, 3):
            await fleet.deposit(X, cents)
        changes = Changes(fleet.log, names={})
        with changes.listening() as listener:
            told: list[Change] = []
            listener.tell = told.append
            await asyncio.gather(changes.accounts(), changes.accounts(), changes.accounts())
        assert [change.version for change in told] == [1, 2, 3]


async def test_history_shows_nothing_newer_than_the_balance_beside_it():
    async with replicas() as fleet:
        for cents in (1, 2, 3):
            await fleet.deposit(X, cents)
        history = await history_of(fleet.log, X, Seen(3, 2), from_version=1, limit=10)
        assert [event.aggregate_version for event in history.events] == [1, 2]
        assert (history.balance_cents, history.next_version) == (3, None)


async def test_streams_that_come_at_once_are_no_more_than_may_be(monkeypatch):
    monkeypatch.setattr(changes_room, "LISTENERS_MAX", 1)
    async with replicas() as fleet:
        service = fleet.services[0]
        async with listening(service) as one, listening(service) as other:
            await asyncio.sleep(1)
            told = one.lines.qsize(), other.lines.qsize()
        assert sorted(map(bool, told)) == [False, True]
