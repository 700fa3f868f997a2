"""A log in this process raises, waits and pages like one far away."""

import asyncio
import os
import threading

import pytest

import landed
from landed.client.embedded import EmbeddedLog
from landed.client.log import for_decisions
from landed.engines.port import LogIdentity
from landed.errors import (
    AggregateMissingError,
    ConfigurationError,
    LocalProtocolError,
    MalformedWriteError,
    Outcome,
    OutcomeUnknownError,
    PoolClosedError,
    ReadTimeoutError,
    SequenceInFlightError,
    SequenceTakenError,
    TrimmedError,
    VersionConflictError,
)
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Delete,
    Deleted,
    DeleteLeg,
    FeedRead,
    Landed,
    Page,
    Read,
    ReadFilters,
    SequenceInFlight,
    SequenceTaken,
    Trim,
    Trimmed,
    Unknown,
    VersionConflict,
    Write,
)
from tests.unit.client.node import CLIENT, batch, key, now, read, write


class ScriptedEngine:
    """An engine that answers what it is told to; None: never."""

    identity = LogIdentity(CLIENT, 3)
    position = 8
    is_stopped = False

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.closed = 0

    def submit(self, request, done, /):
        self.requests.append(request)
        answer = self.answers.pop(0)
        if answer is not None:
            done(answer)

    async def close(self):
        self.closed += 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (VersionConflict(None, 3, 5), VersionConflictError),
        (SequenceTaken(None, 9, 4), SequenceTakenError),
        (SequenceInFlight(None, 9, 4), SequenceInFlightError),
        (AggregateMissing(None), AggregateMissingError),
        (Unknown("the flush failed"), OutcomeUnknownError),
    ],
)
async def test_a_value_becomes_the_error_of_the_same_meaning(answer, error):
    log = EmbeddedLog(ScriptedEngine(answer))
    with pytest.raises(error):
        await log.write(write())


async def test_success_is_returned():
    log = EmbeddedLog(ScriptedEngine(Landed((4,)), Trimmed(), Deleted()))
    assert await log.write(write()) == Landed((4,))
    assert await log.trim(Trim(key(1), 2, CLIENT)) is None
    assert await log.info() == (CLIENT, 3, 8)


async def test_a_change_that_is_not_durable_in_time_is_unknown_and_a_read_is_not_answered():
    log = EmbeddedLog(ScriptedEngine(None, None))
    began = now()
    with pytest.raises(OutcomeUnknownError) as raised:
        await log.write(write(), timeout_s=0.5)
    assert raised.value.reason == "timeout"
    with pytest.raises(ReadTimeoutError):
        await log.read(read(), timeout_s=0.5)
    assert now() - began == pytest.approx(1.0, abs=0.01)


async def test_what_cannot_be_meant_is_refused_before_the_engine_sees_it():
    engine = ScriptedEngine()
    log = EmbeddedLog(engine)
    no_event = Write.to(key(1), [], client_id=CLIENT, expected_version=None)
    for bad in (write()._replace(legs=()), no_event):
        with pytest.raises(MalformedWriteError) as raised:
            await log.write(bad)
        assert raised.value.outcome is Outcome.NOT_SENT
    with pytest.raises(LocalProtocolError):
        await log.write(write()._replace(legs=write().legs * 2))
    assert engine.requests == []


def _event(**changes):
    (leg,) = write().legs
    return write()._replace(legs=(leg._replace(events=(leg.events[0]._replace(**changes),)),))


def _leg(**changes):
    (leg,) = write().legs
    return write()._replace(legs=(leg._replace(**changes),))


UNSAYABLE = {
    "a negative sequence": _event(client_seq=-1),
    "a sequence beyond 64 bits": _event(client_seq=2**64),
    "no sequence": _event(client_seq=None),
    "a boolean sequence": _event(client_seq=True),
    "a fraction": _event(event_ms=1.5),
    "a negative time": _event(event_ms=-1),
    "a type beyond 64 bits": _event(type_major=2**64),
    "text for a value": _event(value="x"),
    "no value": _event(value=None),
    "a value that may still change": _event(value=bytearray(b"x")),
    "a short iv": _event(iv=b"12345"),
    "text for an event id": _event(event_id="x"),
    "text for a version": _leg(expected_version="1"),
    "text for a key": _leg(key="k"),
    "text for a client": write()._replace(client_id="me"),
    "text for a user": write()._replace(user_id="me"),
    "a negative trim": Trim(key(1), -1, CLIENT),
    "a delete of text": Delete(CLIENT, (DeleteLeg("k", None, False, False),)),
    "a read up to text": Read(key(1), ReadFilters(to_version="9")),
    "a read of a huge type": Read(key(1), ReadFilters(include_types=(2**64,))),
    "a feed from before the start": FeedRead(-1),
}


@pytest.mark.parametrize("request_", UNSAYABLE.values(), ids=UNSAYABLE)
async def test_one_callers_impossible_value_harms_nobody_else(request_):
    """Found in the commit, it would stop the engine; kept, it could never be read over a wire."""
    async with await landed.connect("memory:") as log:
        verbs = {Write: log.write, Trim: log.trim, Delete: log.delete, Read: log.read}
        verb = verbs.get(type(request_), log.feed)
        answers = await asyncio.gather(
            log.write(write(1)), verb(request_), log.write(write(2)), return_exceptions=True
        )
        assert isinstance(answers[1], LocalProtocolError)
        assert answers[1].outcome is Outcome.NOT_SENT
        assert [type(answer) for answer in answers[::2]] == [Landed, Landed]


async def test_another_event_loop_is_refused_instead_of_kept_waiting(monkeypatch):
    engine = ScriptedEngine(Landed((1,)))
    log = EmbeddedLog(engine)
    await log.write(write())
    told = []

    def elsewhere():
        with pytest.raises(ConfigurationError) as raised:
            asyncio.run(log.write(write()))
        told.append(str(raised.value))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert told == ["this log belongs to another event loop; open one a loop"]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ConfigurationError, match="parent process"):
        await log.read(read())
    assert engine.requests == [write()]


async def test_it_reads_page_after_page():
    pages = [Page((batch(1, b"a"),), 2), Page((), 5), Page((batch(5, b"b"),), None)]
    log = EmbeddedLog(ScriptedEngine(*pages, BelowFloor(1, 4)))
    assert [each.version async for each in log.read_all(Read(key(1)))] == [1, 5]
    with pytest.raises(TrimmedError) as raised:
        await anext(log.read_all(Read(key(1))))
    assert raised.value.first_version == 4


async def test_closing_closes_the_engine_and_refuses_what_comes_after():
    engine = ScriptedEngine()
    async with EmbeddedLog(engine) as log:
        assert for_decisions(log) is log
        assert "at 8" in repr(log)
    assert engine.closed == 1
    assert "closed" in repr(log)
    for ask in (log.info, lambda: log.write(write()), lambda: log.read(read())):
        with pytest.raises(PoolClosedError):
            await ask()


async def test_a_cancelled_caller_leaves_the_engine_to_finish():
    class Slow(ScriptedEngine):
        def submit(self, request, done, /):
            self.requests.append(request)
            asyncio.get_running_loop().call_later(0.1, done, Landed((1,)))

    log = EmbeddedLog(Slow())
    task = asyncio.create_task(log.write(write()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
