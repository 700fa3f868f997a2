"""Obligations: what filters select, and that a cursor carries over what they leave out (R5 to R10)."""

from __future__ import annotations

from uuid import UUID

from landed.conformance.registry import obligation
from landed.conformance.trial import A, B, C, Trial, key, leg, write
from landed.ids import UserId
from landed.log import ANY, Batch, Event, Leg, ReadFilters, Write


def _numbers(batches: list[Batch]) -> list[tuple[int, list[int]]]:
    return [(batch.version, [event.event_seq for event in batch.events]) for batch in batches]


def _typed(seq: int, *types: tuple[int, int]) -> Write:
    events = tuple(
        Event.new(major, b"", client_seq=seq + n, event_id=None, type_minor=minor)
        for n, (major, minor) in enumerate(types)
    )
    return Write(A, (Leg(key(), events, ANY, True, True),))


@obligation("SC-49", "R5")
async def types_select_single_events_by_major_type(trial: Trial) -> None:
    await trial.land(_typed(1, (1, 0)))
    await trial.land(_typed(2, (2, 0)))
    await trial.land(_typed(3, (1, 1), (2, 0), (3, 0), (1, 2)))
    assert _numbers(await trial.batches(key(), include_types=(1,))) == [(1, [1]), (3, [3, 6])]
    assert _numbers(await trial.batches(key(), include_types=(3, 2))) == [(2, [2]), (3, [4, 5])]
    assert await trial.batches(key(), include_types=(9,)) == []
    assert len(await trial.batches(key(), include_types=())) == 3


@obligation("SC-50", "R5")
async def included_and_excluded_clients_are_complements(trial: Trial) -> None:
    for seq in (1, 2):
        for client in (A, B, C):
            await trial.land(write(key(), seq, client=client))
    included = await trial.batches(key(), include_client=B)
    excluded = await trial.batches(key(), exclude_client=B)
    assert [batch.version for batch in included] == [2, 5]
    assert [batch.version for batch in excluded] == [1, 3, 4, 6]


@obligation("R5")
async def a_batch_without_user_is_never_included_and_never_excluded(trial: Trial) -> None:
    one, two = UserId(UUID(int=1)), UserId(UUID(int=2))
    for seq, user in enumerate((one, two, None), 1):
        await trial.land(write(key(), seq, user=user))
    assert [b.version for b in await trial.batches(key(), include_user=one)] == [1]
    assert [b.version for b in await trial.batches(key(), exclude_user=one)] == [2, 3]


@obligation("SC-51", "X1")
async def every_range_includes_both_ends(trial: Trial) -> None:
    for n in range(5):
        event = Event(10 + n, 0, None, 1000 + 10 * n, 1, 0, b"")
        await trial.land(Write(A, (Leg(key(), (event,), ANY, True, True),)))
    middle = [2, 3, 4]

    async def chosen(**filters: int) -> list[int]:
        return [batch.version for batch in await trial.batches(key(), **filters)]

    assert await chosen(min_event_ms=1010, max_event_ms=1030) == middle
    assert await chosen(min_event_seq=2, max_event_seq=4) == middle
    assert await chosen(min_client_seq=11, max_client_seq=13) == middle
    stamps = [batch.server_ms for batch in await trial.batches(key())]
    between = [n for n, ms in enumerate(stamps, 1) if stamps[1] <= ms <= stamps[3]]
    assert await chosen(min_server_ms=stamps[1], max_server_ms=stamps[3]) == between
    assert await chosen(min_server_ms=stamps[4] + 1) == []


@obligation("R6")
async def an_event_must_satisfy_every_condition_itself(trial: Trial) -> None:
    low_early = Event(1, 0, None, 2_000, 1, 0, b"")
    high_late = Event(9, 0, None, 1_000, 1, 0, b"")
    await trial.land(Write(A, (Leg(key(), (low_early, high_late), ANY, True, True),)))
    assert await trial.batches(key(), max_client_seq=5, max_event_ms=1_500) == []
    (batch,) = await trial.batches(key(), max_client_seq=5, max_event_ms=2_000)
    assert [event.client_seq for event in batch.events] == [1]


@obligation("SC-52", "R7")
async def a_point_lookup_finds_the_clients_own_event(trial: Trial) -> None:
    for seq in (1, 2, 3):
        await trial.land(write(key(), seq, client=B, value=b"B"))
    await trial.land(write(key(), 1, 3, 2, value=b"A"))
    (batch,) = await trial.batches(key(), include_client=A, min_client_seq=2, max_client_seq=2)
    assert (batch.version, batch.client_id) == (4, A)
    assert [(event.client_seq, event.value) for event in batch.events] == [(2, b"A")]


@obligation("R5")
async def all_conditions_are_combined(trial: Trial) -> None:
    user = UserId(UUID(int=1))
    for seq in range(1, 7):
        client = A if seq % 2 else B
        await trial.land(write(key(), seq, client=client, user=user if seq > 2 else None))
    batches = await trial.batches(
        key(),
        2,
        to_version=5,
        include_client=A,
        include_user=user,
        exclude_client=B,
        include_types=(1,),
        min_client_seq=4,
    )
    assert [batch.version for batch in batches] == [5]


@obligation("BC-06", "R9", "R10", max_response_size=2_000)
async def filters_that_match_late_are_reached_by_the_cursor(trial: Trial) -> None:
    for seq in range(1, 31):
        await trial.land(write(key(), seq, value=bytes(500)))
    rare = Event.new(9, b"rare", client_seq=31, event_id=None)
    await trial.land(Write(A, (Leg(key(), (rare,), ANY, True, True),)))
    pages = await trial.pages(key(), ReadFilters(include_types=(9,)))
    found = [batch.version for page in pages for batch in page.batches]
    assert found == [31]
    cursors = [page.next_version for page in pages[:-1]]
    assert cursors == sorted(set(cursors), key=lambda cursor: cursor or 0), "each one moves on"


@obligation("R9", max_response_size=1_000)
async def the_same_filters_page_by_page_lose_and_repeat_nothing(trial: Trial) -> None:
    for seq in range(1, 31):
        to = write(key(), seq, client=A if seq % 3 else B, value=bytes(200))
        await trial.land(to._replace(legs=(*to.legs, leg(key(2), seq))))
    pages = await trial.pages(key(), ReadFilters(2, 29, include_client=A))
    found = [batch.version for page in pages for batch in page.batches]
    assert found == [n for n in range(2, 30) if n % 3]
    assert len(pages) > 1
