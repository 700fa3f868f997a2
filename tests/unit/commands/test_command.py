"""A command is a value that says what is wished, and mistakes in it are told at once."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.commands import Accept, Command, Done, NewEvent, Reject, Rejected
from landed.ids import AggregateKey
from tests.stories.fleet import X, fleet, key

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
EVENT = NewEvent(1, b'{"AmountCents":5}')


def _on(decision: object, **changes: object) -> Command[int, int]:
    made: dict[str, object] = {
        "event_id": key("K1"),
        "fingerprint": b"f",
        "decide": lambda _state: decision,
        "respond": lambda state, version: (state, version),
        **changes,
    }
    return Command.on(KEY, **made)


@pytest.mark.parametrize("decision", [EVENT, [EVENT], (event for event in [EVENT])])
def test_a_decision_on_one_aggregate_is_an_event_or_several(decision: object) -> None:
    assert _on(decision).decide((0,)) == Accept(((EVENT,),))


def test_a_rejection_is_passed_on() -> None:
    assert _on(Reject("no")).decide((0,)) == Reject("no")


def test_a_command_without_a_target_or_with_the_nil_key_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="nil UUID"):
        _on(EVENT, event_id=UUID(int=0))
    with pytest.raises(ValueError, match="at least one target"):
        Command(
            event_id=key("K1"),
            fingerprint=b"",
            targets=(),
            decide=lambda _states: Accept(()),
            respond=lambda *_: None,
        )


async def test_several_events_of_one_command_are_one_batch_with_rising_sequences() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        command = Command.on(
            a.key_of(X),
            event_id=key("K1"),
            fingerprint=b"two",
            decide=lambda _balance: [EVENT, EVENT, EVENT],
            respond=lambda balance, version: (balance, version),
        )
        it.expired.add(key("K1"))  # three events of one request are meant to be there
        first = await a.loop.execute(command)
        assert isinstance(first, Done)
        assert first.result == (115, 2), "the answer is computed after the last of them"
        (batch,) = (await it.history(X))[1:]
        assert [event.client_seq for event in batch.events] == [2, 3, 4]
        assert {event.event_id for event in batch.events} == {key("K1")}
        same_wish = Command.on(
            a.key_of(X),
            event_id=key("K1"),
            fingerprint=it.domain.fingerprint_of(batch.events[0], a.key_of(X)),
            decide=lambda _balance: EVENT,
            respond=lambda balance, version: (balance, version),
        )
        again = await b.loop.execute(same_wish)
        assert isinstance(again, Done)
        assert again.result == (115, 2)
        done = await a.deposit(X, 1, key("K2"))
        assert isinstance(done, Done)
        assert a.sent_seqs() == [2, 5]


async def test_a_decision_without_events_is_a_mistake_and_nothing_is_sent() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        with pytest.raises(ValueError, match="at least one each"):
            await a.loop.execute(_on([]))
        assert a.log.writes == []


@pytest.mark.scenario("SWA-80")
@pytest.mark.parametrize("cents", [0, -1, 2_147_483_648])
async def test_a_malformed_wish_is_rejected_without_a_read_or_a_write(cents: int) -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        outcome = await a.deposit(X, cents, key("K1"))
        assert isinstance(outcome, Rejected)
        assert (a.log.reads, a.log.writes) == ([], [])


@pytest.mark.scenario("SWA-67")
async def test_one_target_named_twice_is_rejected_before_anything_is_read() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        command: Command[int, int] = Command(
            event_id=key("K1"),
            fingerprint=b"f",
            targets=(a.key_of(X), a.key_of(X)),
            decide=lambda _states: Accept(((EVENT,), (EVENT,))),
            respond=lambda _key, balance, _version: balance,
        )
        outcome = await a.loop.execute(command)
        assert isinstance(outcome, Rejected)
        assert outcome.reason.code == "same_target"
        assert (a.log.reads, a.log.writes) == ([], [])


async def test_a_mistake_in_a_rule_is_raised_before_anything_is_sent() -> None:
    def decide(_balance: int) -> NewEvent:
        raise ZeroDivisionError

    async with fleet(1) as it:
        (a,) = it.replicas
        command = Command.on(
            a.key_of(X),
            event_id=key("K1"),
            fingerprint=b"",
            decide=decide,
            respond=lambda balance, _version: balance,
        )
        with pytest.raises(ZeroDivisionError):
            await a.loop.execute(command)
        assert a.log.writes == []
