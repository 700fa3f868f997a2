"""A fold moves the cursor and carries the answers it passed, in one value."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.accounts.domain import Accounts, Deposit, account_key, fingerprint_of
from landed.errors import UndecodableEventError
from landed.ids import ClientId, EventId
from landed.log import Batch, Event
from landed.projections import Folded, Gap, Ours, View, fold_page, from_snapshot
from tests.stories.snapshots import SNAPSHOT, SnapshotAccounts

ACCOUNT = UUID(int=3)
KEY = account_key(ACCOUNT)
SERVICE, OLD, FOREIGNER = (ClientId(UUID(int=n)) for n in (10, 11, 12))
OURS = Ours(SERVICE, frozenset({SERVICE, OLD}), life_ms=100_000)
FRESH = View(KEY, 0, 0, 0, 0, 0, None)


def _id(number: int) -> EventId:
    return EventId(UUID(int=100 + number))


def _batch(
    version: int, *, by: ClientId = SERVICE, seq: int | None = None, ms: int = 0, cents: int = 5
) -> Batch:
    event = Event.new(
        1,
        b'{"AmountCents":%d}' % cents,
        client_seq=version if seq is None else seq,
        event_id=_id(version),
    )
    return Batch(version, by, None, ms, (event,))


def _fold(
    batches: list[Batch], view: View[int] = FRESH, event_id: EventId | None = None
) -> Folded[int]:
    folded = fold_page(view, batches, domain=Accounts(), ours=OURS, event_id=event_id)
    assert isinstance(folded, Folded)
    return folded


def test_state_cursor_and_answers_move_together() -> None:
    step = _fold([_batch(1, cents=5), _batch(2, cents=7)]).step
    assert (step.base, step.version, step.state, step.client_seq) == (0, 2, 12, 2)
    assert [(e.event_id, e.answered.state, e.answered.version) for e in step.entries] == [
        (_id(1), 5, 1),
        (_id(2), 12, 2),
    ]
    assert step.entries[0].answered.fingerprint == fingerprint_of(Deposit(ACCOUNT, 5))


def test_only_our_own_batches_raise_the_sequence() -> None:
    batches = [_batch(1, seq=3), _batch(2, by=FOREIGNER, seq=900), _batch(3, by=OLD, seq=800)]
    assert _fold(batches).step.client_seq == 3


def test_only_our_own_batches_and_our_predecessors_give_answers() -> None:
    batches = [_batch(1), _batch(2, by=FOREIGNER), _batch(3, by=OLD)]
    assert [entry.event_id for entry in _fold(batches).step.entries] == [_id(1), _id(3)]
    assert _fold(batches, event_id=_id(2)).view.answered is None


def test_the_life_of_an_answer_is_what_its_event_has_left_in_server_time() -> None:
    batches = [_batch(1, ms=0), _batch(2, ms=60_000), _batch(3, ms=99_999), _batch(4, ms=100_000)]
    lives = {e.event_id: e.life_ms for e in _fold(batches).step.entries}
    assert lives == {_id(2): 60_000, _id(3): 99_999, _id(4): 100_000}


def test_the_newest_time_known_counts_even_if_it_was_read_earlier() -> None:
    view = FRESH._replace(newest_ms=70_000)
    (entry,) = _fold([_batch(1, ms=10_000)], view).step.entries
    assert entry.life_ms == 40_000


@pytest.mark.scenario("SWA-45")
def test_stamps_that_step_back_give_no_negative_age() -> None:
    batches = [_batch(1, ms=100_400), _batch(2, ms=100_000)]
    lives = [entry.life_ms for entry in _fold(batches).step.entries]
    assert lives == [100_000, 99_600]
    alone = _fold([_batch(1, ms=400)], FRESH._replace(newest_ms=0)).step.entries[0]
    assert alone.life_ms == 100_000


def test_a_request_that_is_looked_for_is_found_whatever_its_age() -> None:
    batches = [_batch(1, ms=0), _batch(2, ms=10**9)]
    folded = _fold(batches, event_id=_id(1))
    assert folded.view.answered is not None
    assert folded.view.answered.state == 5
    assert [entry.event_id for entry in folded.step.entries] == [_id(2)]


@pytest.mark.parametrize("versions", [[2], [1, 3], [1, 1], [1, 2, 4]])
def test_a_gap_is_told_and_nothing_is_folded_over_it(versions: list[int]) -> None:
    batches = [_batch(version) for version in versions]
    assert isinstance(fold_page(FRESH, batches, domain=Accounts(), ours=OURS, event_id=None), Gap)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"AmountCents":0}', b'{"AmountCents":"5"}'])
def test_an_event_that_is_not_understood_is_never_skipped(value: bytes) -> None:
    event = Event.new(1, value, client_seq=1, event_id=None)
    with pytest.raises(UndecodableEventError):
        _fold([Batch(1, SERVICE, None, 0, (event,))])


def test_the_answer_of_several_events_is_the_state_after_the_last_of_them() -> None:
    one, two = _batch(1).events[0], _batch(1, cents=7).events[0]
    other = _batch(2).events[0]
    folded = _fold([Batch(1, SERVICE, None, 0, (one, two, other))])
    assert [(e.event_id, e.answered.state) for e in folded.step.entries] == [
        (_id(1), 12),
        (_id(2), 17),
    ]


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=30), st.data())
def test_a_fold_in_two_parts_is_the_fold_of_the_whole(
    stamps: list[int], data: st.DataObject
) -> None:
    batches = [_batch(n, ms=ms, cents=n) for n, ms in enumerate(stamps, 1)]
    cut = data.draw(st.integers(0, len(batches)))
    whole = _fold(batches)
    first = _fold(batches[:cut])
    second = _fold(batches[cut:], first.view)
    assert second.view._replace(answered=None) == whole.view._replace(answered=None)
    # Page by page an answer may live longer, never shorter (SW-5, SW-51).
    longest = {e.event_id: e for e in (*first.step.entries, *second.step.entries)}
    for entry in whole.step.entries:
        assert longest[entry.event_id].life_ms >= entry.life_ms
        assert longest[entry.event_id].answered == entry.answered


def _snapshot(version: int, balance: int) -> Batch:
    event = Event.new(SNAPSHOT, b"%d" % balance, client_seq=1, event_id=None)
    return Batch(version, FOREIGNER, None, 0, (event,))


def test_a_fold_after_a_trim_starts_at_a_snapshot_and_only_there() -> None:
    view = FRESH._replace(version=2, state=99, client_seq=2)
    start = from_snapshot(view, [_snapshot(7, 50)], domain=SnapshotAccounts())
    assert start == view._replace(version=6, state=0)
    assert from_snapshot(view, [_batch(7)], domain=SnapshotAccounts()) is None
    assert from_snapshot(view, [_snapshot(7, 50)], domain=Accounts()) is None
    assert from_snapshot(view, [], domain=SnapshotAccounts()) is None
