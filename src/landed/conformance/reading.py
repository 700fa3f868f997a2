"""Obligations: pages, cursors, details (log rules R1 to R4, R8 to R12, N)."""

from __future__ import annotations

from uuid import UUID

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, B, Trial, delete, expect, key, write
from landed.ids import UserId
from landed.limits import MIB
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Delete,
    DeleteLeg,
    Details,
    GetDetails,
    Page,
    Read,
    ReadFilters,
    Trim,
)


def _range(low: int, high: int | None = None) -> Read:
    return Read(key(), ReadFilters(low, high))


@obligation("SC-45", "R1")
async def an_unknown_key_is_missing_for_every_request(trial: Trial) -> None:
    missing = AggregateMissing(key())
    assert await trial.ask(Read(key())) == missing
    assert await trial.ask(GetDetails(key())) == missing
    assert await trial.ask(delete(key())) == missing
    assert await trial.ask(Trim(key(), 1, A)) == missing
    await trial.land(write(key(), 1))
    assert await trial.ask(Read(key(org=2))) == AggregateMissing(key(org=2))


@obligation("SC-46", "R3")
async def a_range_is_cut_to_what_there_is(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq) for seq in range(1, 11))
    expected = {
        (3, 6): [3, 4, 5, 6],
        (8, 99): [8, 9, 10],
        (11, None): [],
        (6, 3): [],
        (10, 10): [10],
        (1, 0): [],
    }
    for (low, high), versions in expected.items():
        page = expect(Page, await trial.ask(_range(low, high)))
        assert [batch.version for batch in page.batches] == versions
        assert page.next_version is None


@obligation("SC-47", "R8", "R9", max_response_size=MIB)
async def pages_are_bounded_and_lose_nothing(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq, value=bytes(65_536)) for seq in range(1, 41))
    pages = await trial.pages(key(), ReadFilters())
    assert len(pages) > 1
    for page in pages:
        assert sum(len(event.value) for b in page.batches for event in b.events) <= MIB
        if page.next_version is not None:
            assert page.next_version > page.batches[-1].version
    assert [batch.version for page in pages for batch in page.batches] == list(range(1, 41))


@obligation("SC-48", "R8", max_response_size=1_000)
async def a_batch_above_the_page_budget_is_returned_alone(trial: Trial) -> None:
    for seq, size in enumerate((10, 5_000, 10), 1):
        await trial.land(write(key(), seq, value=bytes(size)))
    page = expect(Page, await trial.ask(_range(2)))
    assert [batch.version for batch in page.batches] == [2]
    assert page.next_version == 3
    first = expect(Page, await trial.ask(_range(1)))
    assert [batch.version for batch in first.batches] == [1]
    assert await trial.versions(key()) == [1, 2, 3]


@obligation("R9", max_response_size=1_000)
async def the_last_page_has_no_cursor(trial: Trial) -> None:
    for seq in (1, 2):
        await trial.land(write(key(), seq, value=bytes(5_000)))
    last = expect(Page, await trial.ask(_range(2)))
    assert last.next_version is None
    bounded = expect(Page, await trial.ask(_range(1, 1)))
    assert [batch.version for batch in bounded.batches] == [1]
    assert bounded.next_version is None


@obligation("SC-53", "R11", max_response_size=1_000)
async def paging_while_a_writer_appends_gives_a_prefix_without_a_gap(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq, value=bytes(300)) for seq in range(1, 21))
    seen: list[int] = []
    seq = 20
    version: int | None = 1
    while version is not None:
        page = expect(Page, await trial.ask(_range(version)))
        seen += [batch.version for batch in page.batches]
        version = page.next_version
        if seq < 26:
            seq += 1
            await trial.land(write(key(), seq, value=bytes(300)))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 20


@obligation("SC-54", "C2", "N5", levers=(Lever.HOLD,))
async def what_is_in_flight_is_not_visible(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    position = trial.engine.position
    before = await trial.details(key())
    trial.hold()
    pending = [
        trial.ask(write(key(), 2)),
        trial.ask(write(key(2), 1)),
        trial.ask(Trim(key(), 2, A)),
    ]
    assert await trial.versions(key()) == [1]
    assert await trial.details(key()) == before
    assert await trial.ask(Read(key(2))) == AggregateMissing(key(2))
    assert await trial.ask(GetDetails(key(2))) == AggregateMissing(key(2))
    assert trial.engine.position == position
    assert await trial.entries(position) == []
    trial.release()
    for answer in pending:
        await answer
    assert await trial.versions(key(), 2) == [2]
    assert await trial.versions(key(2)) == [1]


@obligation("SC-55", "R2")
async def version_zero_is_below_every_floor(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    assert await trial.ask(_range(0)) == BelowFloor(0, 1)


@obligation("N1", "N2")
async def details_of_a_live_aggregate(trial: Trial) -> None:
    user = UserId(UUID(int=8))
    await trial.land(write(key(), 1, 2))
    await trial.land(write(key(), 7, client=B, user=user))
    details = await trial.details(key())
    assert details._replace(last_server_ms=0) == Details(1, 2, 3, False, False, False, 0, B, user)
    (_, newest) = await trial.batches(key())
    assert details.last_server_ms == newest.server_ms


@obligation("N3", "SC-60")
async def details_of_a_deleted_aggregate(trial: Trial) -> None:
    user = UserId(UUID(int=8))
    await trial.land(write(key(), 1, 2))
    for n, flags in enumerate(((False, False), (False, True), (True, False), (True, True)), 2):
        await trial.land(write(key(n), 1, 2))
        await trial.ask(Delete(B, (DeleteLeg(key(n), None, *flags),), user))
        details = await trial.details(key(n))
        assert details._replace(last_server_ms=0) == Details(0, 1, 2, True, *flags, 0, B, user)


@obligation("N4", "X17", levers=(Lever.RESTART,))
async def the_newest_record_of_any_kind_is_the_last(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    await trial.land(write(key(), 2))
    user = UserId(UUID(int=9))
    await trial.ask(Trim(key(), 2, B, user))
    for _ in range(2):
        details = await trial.details(key())
        assert (details.last_client_id, details.last_user_id) == (B, user)
        await trial.restart()
    await trial.trim(key(), 1)
    assert (await trial.details(key())).last_client_id == B, "a trim without effect is no record"


@obligation("W15", "C11", levers=(Lever.RESTART,))
async def server_time_never_goes_back(trial: Trial) -> None:
    for seq in range(1, 6):
        await trial.land(write(key(), seq))
        await trial.restart()
    stamps = [batch.server_ms for batch in await trial.batches(key())]
    assert stamps == sorted(stamps)


@obligation("R12")
async def versions_keep_their_numbers_after_a_trim(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq) for seq in range(1, 7))
    await trial.trim(key(), 4)
    assert await trial.versions(key(), 4) == [4, 5, 6]
    assert await trial.ask(_range(3)) == BelowFloor(3, 4)
