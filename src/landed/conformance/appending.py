"""Obligations: what a write appends, and which numbers it gets (log rules W10 to W15)."""

from __future__ import annotations

import asyncio
import hashlib
from uuid import UUID

from landed.conformance.registry import obligation
from landed.conformance.trial import (
    A,
    B,
    Trial,
    count,
    events,
    expect,
    key,
    leg,
    write,
)
from landed.ids import EventId, UserId
from landed.log import (
    ANY,
    Answer,
    Details,
    Event,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    SequenceTaken,
    Write,
)


@obligation("SC-01")
async def a_first_write_is_read_back_unchanged(trial: Trial) -> None:
    sent = Event(7, 0, EventId(UUID(int=99)), 4242, 3, 5, b"payload\x00\xff", b"iv-of-12byte")
    write = Write(A, (Leg(key(), (sent,), ANY, True, True),), UserId(UUID(int=5)))
    assert await trial.land(write) == 1
    (batch,) = await trial.batches(key())
    assert batch.version == 1
    assert (batch.client_id, batch.user_id) == (A, UserId(UUID(int=5)))
    assert batch.events == (sent._replace(event_seq=1),)
    assert batch.server_ms > 0


@obligation("SC-02")
async def versions_follow_one_another(trial: Trial) -> None:
    for seq in range(1, 26):
        await trial.land(write(key(), seq, value=b"%d" % seq))
    batches = await trial.batches(key())
    assert [batch.version for batch in batches] == list(range(1, 26))
    assert [batch.events[0].value for batch in batches] == [b"%d" % n for n in range(1, 26)]


@obligation("SC-03")
async def one_write_is_one_version_however_many_events(trial: Trial) -> None:
    await trial.land(write(key(), 3, 1, 2))
    assert await trial.land(write(key(), 4)) == 2
    first, second = await trial.batches(key())
    assert [(e.client_seq, e.event_seq) for e in first.events] == [(3, 1), (1, 2), (2, 3)]
    assert [e.event_seq for e in second.events] == [4]


@obligation("SC-04")
async def the_log_numbers_events_whatever_the_writer_says(trial: Trial) -> None:
    nonsense = tuple(event._replace(event_seq=77) for event in events(1, 2))
    await trial.land(Write(A, (Leg(key(), nonsense, ANY, True, True),)))
    (batch,) = await trial.batches(key())
    assert [event.event_seq for event in batch.events] == [1, 2]


@obligation("SC-05")
async def a_write_learns_the_version_of_each_leg(trial: Trial) -> None:
    await trial.land(write(key(1), 1))
    answer = await trial.ask(Write(A, (leg(key(1), 2), leg(key(2), 1))))
    assert answer == Landed((2, 1))


@obligation("SC-06")
async def unguarded_writers_leave_no_gap(trial: Trial) -> None:
    writers = [UUID(int=100 + n) for n in range(50)]
    answers = await trial.ask_all(
        Write.to(key(), events(1), client_id=writer, expected_version=ANY) for writer in writers
    )
    assert sorted(expect(Landed, answer).versions[0] for answer in answers) == list(range(1, 51))
    assert await trial.versions(key()) == list(range(1, 51))


@obligation("SC-07", num_shards=8)
async def many_aggregates_do_not_mix(trial: Trial) -> None:
    keys = [key(n) for n in range(24)]
    answers = await trial.ask_all(
        write(each, version + 1, at=version, value=b"%d" % n)
        for version in range(10)
        for n, each in enumerate(keys)
    )
    assert count(Landed, answers) == 240
    for n, each in enumerate(keys):
        batches = await trial.batches(each)
        assert [batch.version for batch in batches] == list(range(1, 11))
        assert {batch.events[0].value for batch in batches} == {b"%d" % n}


@obligation("SC-08")
async def large_payloads_come_back_byte_for_byte(trial: Trial) -> None:
    values = [hashlib.shake_128(b"%d" % n).digest(65_536) for n in range(60)]
    for seq, value in enumerate(values, 1):
        await trial.land(write(key(), seq, value=value))
    batches = await trial.batches(key())
    assert [batch.events[0].value for batch in batches] == values


@obligation("W14")
async def an_event_id_is_opaque_and_need_not_be_unique(trial: Trial) -> None:
    same = Event.new(1, b"", client_seq=1, event_id=UUID(int=9))
    without = Event.new(1, b"", client_seq=3, event_id=None)
    for seq, event in enumerate((same, same._replace(client_seq=2), without)):
        write = Write.to(key(), (event,), client_id=A, expected_version=seq)
        await trial.land(write)
    ids = [event.event_id for batch in await trial.batches(key()) for event in batch.events]
    assert ids == [UUID(int=9), UUID(int=9), None]


@obligation("W13")
async def the_largest_numbers_survive(trial: Trial) -> None:
    top = 2**64 - 1
    event = Event(top, 0, None, top, 2**32 - 1, 2**32 - 1, b"")
    unenforced = Write(A, (Leg(key(), (event,), ANY, True, False),))
    await trial.land(unenforced)
    (batch,) = await trial.batches(key(), min_client_seq=top, max_client_seq=top)
    assert batch.events == (event._replace(event_seq=1),)


@obligation("SC-45", "G1")
async def all_three_parts_of_a_key_tell_aggregates_apart(trial: Trial) -> None:
    keys = [key(), key(org=9), key(type=9), key(9), key(0, type=0, org=0)]
    for n, each in enumerate(keys, 1):
        await trial.land(write(each, n, client=B, value=b"%d" % n))
    for n, each in enumerate(keys, 1):
        (batch,) = await trial.batches(each)
        assert batch.events[0].value == b"%d" % n


@obligation("SC-54", "C2")
async def a_read_after_the_answer_sees_the_write(trial: Trial) -> None:
    for seq in range(1, 21):
        version = await trial.land(write(key(), seq))
        page = await trial.ask(Read(key()))
        assert [batch.version for batch in page.batches][-1] == version  # type: ignore[union-attr]


@obligation("C1", "C2", "SC-54")
async def whatever_is_asked_from_within_the_answer_sees_the_write(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    seen: list[asyncio.Future[Answer]] = []

    def answered(answer: Answer) -> None:
        assert answer == Landed((2,))
        seen.append(trial.ask(GetDetails(key())))
        seen.append(trial.ask(Read(key(), ReadFilters(2))))
        seen.append(trial.ask(write(key(), 2)))
        seen.append(trial.ask(FeedRead(trial.engine.position - 1)))

    trial.engine.submit(write(key(), 2), answered)
    await trial.land(write(key(2), 1))
    details, page, again, feed = [await answer for answer in seen]
    assert expect(Details, details).version == 2
    assert [batch.version for batch in expect(Page, page).batches] == [2]
    assert again == SequenceTaken(key(), 2, 2)
    assert expect(FeedPage, feed).entries != ()
