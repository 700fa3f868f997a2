"""Asking an engine: one request, or many behind one future."""

from __future__ import annotations

from landed.conformance.trial import key, write
from landed.engines.ask import ask, ask_all
from landed.log import AggregateMissing, GetDetails, Landed
from tests.unit.engines.scripted import open_scripted


async def test_answers_come_in_the_order_of_the_requests_whatever_order_they_were_given_in() -> (
    None
):
    lane, _ = await open_scripted()
    answers = await ask_all(lane, [write(key(1), 1), GetDetails(key(2)), write(key(1), 2)])
    assert answers == [Landed((1,)), AggregateMissing(key(2)), Landed((2,))]
    await lane.close()


async def test_no_requests_are_answered_at_once() -> None:
    lane, _ = await open_scripted()
    assert await ask_all(lane, []) == []
    await lane.close()


async def test_a_cancelled_wait_takes_nothing_back() -> None:
    lane, _ = await open_scripted()
    ask(lane, write(key(1), 1)).cancel()
    ask_all(lane, [write(key(1), 2)]).cancel()
    assert await ask(lane, write(key(1), 3)) == Landed((3,))
    await lane.close()
