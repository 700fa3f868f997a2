"""Each invariant says yes to a history in order, and no to the one thing it is there for."""

from uuid import UUID

import pytest

from landed.accounts.decide import AccountAnswer
from landed.accounts.domain import Deposit, Kind, Movement, Transfer, account_key, encode
from landed.commands import Conflicted, Done, How, Reject, Rejected, Unresolved
from landed.commands.outcome import Applied
from landed.ids import ClientId, EventId
from landed.log import Batch, Delete, DeleteLeg, Event, FeedEntry, FeedKind, Leg, Write
from landed.sim.durable import Act
from landed.sim.filed import as_filed
from landed.sim.history import Call, Entry, History, Look, Request, Shipped, Tended
from landed.sim.invariants import INVARIANTS, OF_A_SUBJECT
from landed.sim.invariants.filed import the_file_holds_what_was_told
from landed.sim.stranger import CLIENT

SERVICE = ClientId(UUID(int=77))
A, B = UUID(int=1), UUID(int=2)
KEY_A, KEY_B = account_key(A), account_key(B)
ONE, TWO = EventId(UUID(int=101)), EventId(UUID(int=102))


def batch(version, movement, *, seq, event_id=ONE, client=SERVICE, event_seq=None, ms=1):
    event = Event(seq, event_seq or version, event_id, 0, movement.kind, 0, encode(movement), None)
    return Batch(version, ClientId(client), None, ms, (event,))


def deposited(cents):
    return Movement(Kind.DEPOSITED, cents)


def answer(account, balance, version):
    return AccountAnswer(account, balance, version)


@pytest.fixture
def history():
    """Two requests, three calls, two batches on A and one on B: all as it should be."""
    history = History(service=SERVICE, window_s=90.0, names={KEY_A: "A", KEY_B: "B"})
    one = Request(1, ONE, Deposit(A, 50), 1.0)
    two = Request(2, TWO, Transfer(A, B, 20), 2.0)
    history.requests = [one, two]
    history.truth.batches = {
        KEY_A: (
            batch(1, deposited(50), seq=1),
            batch(2, Movement(Kind.TRANSFERRED_OUT, 20, B), seq=2, event_id=TWO),
        ),
        KEY_B: (batch(1, Movement(Kind.TRANSFERRED_IN, 20, A), seq=1, event_id=TWO),),
    }
    done_one = Done((answer(A, 50, 1),), (1,), How.FRESH)
    again_one = Done((answer(A, 50, 1),), (1,), How.ORIGINAL)
    done_two = Done((answer(A, 30, 2), answer(B, 20, 1)), (2, 1), How.FRESH)
    calls = [
        Call(1, one, "replica-1", 1.0, 1.5, done_one),
        Call(2, two, "replica-2", 2.0, 2.5, done_two),
        Call(3, one, "replica-2", 3.0, 3.5, again_one),
    ]
    for call in calls:
        history.take(call)
    history.looks = [
        Look(KEY_A, "replica-1", 4.0, 4.1, 30, 2),
        Look(KEY_B, "replica-1", 0, 1, 0, 0),
    ]
    told_feed(history)
    return history


def told_feed(history):
    entries = [(key, each) for key, batches in history.truth.batches.items() for each in batches]
    history.truth.feed = tuple(
        FeedEntry(position, key, FeedKind.WRITTEN, each, each.version)
        for position, (key, each) in enumerate(entries, start=1)
    )


def broken(history) -> set[str]:
    return {invariant.__name__ for invariant in INVARIANTS if list(invariant(history))}


def test_a_history_in_order_breaks_nothing(history):
    assert set() == broken(history)


def test_an_event_that_landed_twice(history):
    twice = batch(3, deposited(50), seq=3)
    history.truth.batches[KEY_A] += (twice,)
    told_feed(history)
    assert {"a_request_lands_at_most_once"} == broken(history)


def test_a_strangers_event_under_the_same_id_is_nobodys_fault(history):
    history.truth.batches[KEY_A] += (batch(3, deposited(5), seq=1, client=CLIENT),)
    told_feed(history)
    assert set() == broken(history)


def test_half_a_transfer(history):
    history.truth.batches[KEY_B] = ()
    told_feed(history)
    assert "a_transfer_lands_whole" in broken(history)


def test_a_success_that_is_not_in_the_log(history):
    history.truth.batches[KEY_A] = history.truth.batches[KEY_A][1:]
    assert "every_success_is_in_the_log" in broken(history)


@pytest.mark.parametrize(
    "told",
    [
        Done((answer(A, 51, 1),), (1,), How.FRESH),
        Done((answer(A, 30, 2),), (2,), How.ORIGINAL),
        Done((answer(A, 50, 9),), (9,), How.FRESH),
    ],
)
def test_a_success_with_another_balance_or_version(history, told):
    history.calls[0].outcome = told
    assert "every_success_is_in_the_log" in broken(history)


def test_an_answer_older_than_its_event(history):
    history.calls[1].outcome = Done((answer(A, 50, 1), answer(B, 20, 1)), (1, 1), How.REBUILT)
    assert "every_success_is_in_the_log" in broken(history)


def test_a_retry_with_another_answer(history):
    history.calls[2].outcome = Done((answer(A, 30, 2),), (2,), How.REBUILT)
    assert {"a_retry_gets_the_original_answer"} == broken(history)


def test_a_rebuilt_answer_behind_the_window_is_what_was_promised(history):
    history.calls[2].outcome = Done((answer(A, 30, 2),), (2,), How.REBUILT)
    history.calls[2].ended_at = 100.0
    assert set() == broken(history)


def test_a_final_no_after_a_success(history):
    history.calls[2].outcome = Rejected(Reject("insufficient_funds"), (0,))
    assert {"a_retry_gets_the_original_answer"} == broken(history)


def test_an_event_of_which_everybody_was_told_that_it_was_not_applied(history):
    history.calls[0].outcome = history.calls[2].outcome = Conflicted()
    assert {"what_is_not_applied_has_no_event"} == broken(history)
    history.calls[2].outcome = Unresolved(Applied.UNKNOWN)
    assert set() == broken(history)
    history.calls[2].outcome = None
    assert set() == broken(history)


def test_a_call_told_not_applied_whose_own_write_landed(history):
    legs = ((KEY_A, 0, 1),)
    history.take(Call(4, history.requests[0], "replica-1", 0.9, 0.95, Conflicted()))
    history.entries = [Entry(0.9, "replica-1", "log.write", {**of(4), "legs": legs})]
    assert {"a_call_told_not_applied_did_not_land"} == broken(history)
    history.entries.append(Entry(1.2, "replica-1", "log.write", {**of(1), "legs": legs}))
    assert set() == broken(history), "it may be there on account of the other call"
    history.entries = [Entry(0.9, "replica-1", "log.write", {**of(4), "legs": ((KEY_A, 3, 1),)})]
    assert set() == broken(history), "another attempt of it landed"
    history.entries[0].fields["legs"] = (*legs, (KEY_B, 1, 2))
    assert set() == broken(history), "another attempt that shares a leg with it landed"


def of(call):
    return {"call": call, "event_id": ONE}


def test_a_balance_below_zero(history):
    history.truth.batches[KEY_B] += (
        batch(2, Movement(Kind.WITHDRAWN, 21), seq=2, event_id=EventId(UUID(int=9))),
    )
    told_feed(history)
    assert {"balances_fold_from_the_log"} == broken(history)


@pytest.mark.parametrize(("cents", "version"), [(31, 2), (0, 3)])
def test_a_look_that_shows_what_never_was(history, cents, version):
    history.looks.append(Look(KEY_A, "replica-1", 0.0, 0.1, cents, version))
    assert {"balances_fold_from_the_log"} == broken(history)


def test_a_look_that_misses_what_was_answered_before_it(history):
    history.looks.append(Look(KEY_A, "replica-1", 2.6, 2.7, 50, 1))
    assert {"a_look_sees_what_was_answered_before"} == broken(history)


@pytest.mark.parametrize(
    "wrong",
    [
        batch(4, deposited(1), seq=3, event_id=EventId(UUID(int=9)), event_seq=3),
        batch(3, deposited(1), seq=2, event_id=EventId(UUID(int=9))),
        batch(3, deposited(1), seq=3, event_id=EventId(UUID(int=9)), event_seq=7),
        batch(3, deposited(1), seq=3, event_id=EventId(UUID(int=9)), ms=0),
    ],
    ids=["version", "sequence", "event_seq", "stamp"],
)
def test_a_number_of_the_log_out_of_order(history, wrong):
    history.truth.batches[KEY_A] += (wrong,)
    told_feed(history)
    assert "versions_have_no_gap" in broken(history)


def test_a_feed_that_leaves_something_out_or_turns_it_round(history):
    history.truth.feed = history.truth.feed[:-1]
    assert {"the_feed_agrees_with_the_log"} == broken(history)
    told_feed(history)
    first, second, third = history.truth.feed
    history.truth.feed = (second._replace(position=1), first._replace(position=2), third)
    assert {"the_feed_agrees_with_the_log"} == broken(history)
    told_feed(history)
    history.truth.feed = (first, second._replace(position=1), third)
    assert {"the_feed_agrees_with_the_log"} == broken(history)


def test_a_file_that_lacks_what_the_engine_shows_or_what_was_told(history):
    filed = {
        key.packed: [as_filed(each) for each in batches]
        for key, batches in history.truth.batches.items()
    }
    history.truth.filed = filed
    assert set() == broken(history)
    filed[KEY_A.packed][0] = filed[KEY_A.packed][0]._replace(events=((1, 1, b"other"),))
    assert {"the_file_holds_what_was_told"} == broken(history)
    del filed[KEY_A.packed]
    assert len(list(the_file_holds_what_was_told(history))) == 4  # what is shown, and three calls


def tended(history, *parts, is_told=True):
    """A write of a gardener on these aggregates, and the acts it left on them."""
    event = Event.new(1, b"1", client_seq=1, event_id=ONE)
    legs = tuple(Leg(each, (event,), None, True, True) for each in (KEY_A, KEY_B))
    history.tended = [Tended(Write(CLIENT, legs), is_told)]
    made = Batch(1, ClientId(CLIENT), None, 1, (event._replace(event_seq=1),))
    history.truth.acts = [
        Act(at, each, FeedKind.WRITTEN, 1, made, 1) for at, each in enumerate(parts, start=1)
    ]


def test_what_a_gardener_wrote_that_is_half_there_lost_or_doubled(history):
    tended(history, KEY_A, KEY_B)
    assert set() == broken(history)
    tended(history, is_told=False)
    assert set() == broken(history)
    for parts in ((KEY_A,), (), (KEY_A, KEY_B, KEY_B)):
        tended(history, *parts)
        assert {"what_was_told_of_beds_is_kept"} == broken(history)


def test_what_a_gardener_was_told_to_be_deleted_and_never_ended(history):
    history.tended = [Tended(Delete(CLIENT, (DeleteLeg(KEY_A, None, True, True),)), is_told=True)]
    assert {"what_was_told_of_beds_is_kept"} == broken(history)
    history.truth.acts = [Act(1, KEY_A, FeedKind.DELETED, 1, None, 1)]
    assert set() == broken(history)


def test_a_write_that_reaches_the_engine_twice(history):
    legs = ((KEY_A, 0, 1),)
    handed = Entry(1.0, "replica-1", "log.write", {"call": 1, "legs": legs, "event_id": ONE})
    took = Entry(1.1, "server", "engine.took", {"legs": legs, "event_id": ONE})
    history.entries = [handed, took]
    assert set() == broken(history)
    history.entries = [handed, took, took]
    assert {"a_write_is_sent_at_most_once"} == broken(history)


def test_taken_said_to_a_writer_whose_guard_was_stale(history):
    def told(legs):
        fields = {"call": 1, "answer": "SequenceTaken", "legs": legs}
        return [Entry(1.0, "replica-1", "log.wrote", fields)]

    history.entries = told(((KEY_A, 2, 2),)) + told(((KEY_A, None, 2),))
    assert set() == broken(history)
    history.entries = told(((KEY_A, 1, 2),))
    assert {"taken_is_said_behind_the_guard"} == broken(history)


def test_an_unguarded_writer_whose_event_is_lost_or_doubled(history):
    event_id = EventId(UUID(int=9))
    history.shipped = [Shipped(KEY_A, 1, event_id, 5)]
    assert {"an_unguarded_writer_lands_once"} == broken(history)
    theirs = batch(3, deposited(5), seq=1, event_id=event_id, client=CLIENT)
    history.truth.batches[KEY_A] += (theirs,)
    told_feed(history)
    assert set() == broken(history)
    history.truth.batches[KEY_A] += (
        batch(4, deposited(5), seq=1, event_id=event_id, client=CLIENT),
    )
    told_feed(history)
    assert {"an_unguarded_writer_lands_once"} == broken(history)


def test_an_answer_rebuilt_behind_the_window_does_not_bind_the_ones_after_it(history):
    one = history.requests[0]
    history.calls[0].outcome = None
    rebuilt = Done((answer(A, 30, 2),), (2,), How.REBUILT)
    history.take(Call(4, one, "replica-1", 99.0, 100.0, rebuilt))
    found = Done((answer(A, 50, 1),), (1,), How.ORIGINAL)
    history.take(Call(5, one, "replica-2", 101.0, 102.0, found))
    assert set() == broken(history)


def test_a_request_that_is_not_answered_in_calm(history):
    history.calls[2].is_last = True
    assert set() == broken(history)
    history.calls[2].outcome = None
    assert "every_request_ends_in_calm" in broken(history)


def broken_of_a_subject(history) -> set[str]:
    return {invariant.__name__ for invariant in OF_A_SUBJECT if list(invariant(history))}


def test_a_subject_is_held_to_what_holds_of_any_domain(history):
    assert set() == broken_of_a_subject(history)
    history.truth.batches[KEY_B] = ()
    told_feed(history)
    assert {"a_command_lands_whole", "every_success_is_at_its_version"} == broken_of_a_subject(
        history
    )


def test_a_subject_says_itself_what_is_wrong(history):
    class Subject:
        def check(self, log):
            yield f"{len(log)} aggregates are too many"

    history.subject = Subject()
    assert {"the_subject_is_sound"} == broken_of_a_subject(history)
