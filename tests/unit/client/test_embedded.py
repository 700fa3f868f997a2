"""A log in this process raises, waits and pages like one far away."""

import asyncio

import pytest

from landed.client.embedded import EmbeddedLog
from landed.client.log import for_decisions
from landed.engines.port import LogIdentity
from landed.errors import (
    AggregateMissingError,
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
    Deleted,
    Landed,
    Page,
    Read,
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
