"""Whose sequence it was: the log is asked, page after page, and a trim restarts it only once."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.accounts.domain import Accounts
from landed.commands.ownership import Ours, Sibling, Unwritten, find_request, who_owns
from landed.errors import AggregateMissingError, ReadFailedError, ReadTimeoutError, TrimmedError
from landed.ids import AggregateKey, ClientId, EventId
from landed.log import Batch, Event, Page, Read

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
SERVICE, FOREIGNER = ClientId(UUID(int=10)), ClientId(UUID(int=11))
MINE, THEIRS = EventId(UUID(int=20)), EventId(UUID(int=21))


def _batch(
    version: int, client_seq: int, event_id: EventId | None, *, by: ClientId = SERVICE
) -> Batch:
    event = Event.new(1, b'{"AmountCents":5}', client_seq=client_seq, event_id=event_id)
    return Batch(version, by, None, 1_000 * version, (event,))


class Script:
    """Answers each read with the next thing in line."""

    def __init__(self, *answers: Page | Exception) -> None:
        self._answers = list(answers)
        self.reads: list[Read] = []

    async def page(self, read: Read) -> Page:
        self.reads.append(read)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def owner(self, client_seq: int = 7) -> object:
        return await who_owns(
            self.page,
            KEY,
            client_seq=client_seq,
            client_id=SERVICE,
            event_id=MINE,
            domain=Accounts(),
        )

    def froms(self) -> list[int]:
        return [read.filters.from_version for read in self.reads]


def _page(*batches: Batch, then: int | None = None) -> Page:
    return Page(batches, then)


async def test_the_read_is_scoped_to_our_client_id_and_to_one_number() -> None:
    script = Script(_page())
    assert await script.owner() == Unwritten()
    filters = script.reads[0].filters
    assert (filters.include_client, filters.min_client_seq, filters.max_client_seq) == (
        SERVICE,
        7,
        7,
    )
    assert filters.from_version == 1


async def test_our_event_id_on_the_number_is_ours_with_its_version_and_wish() -> None:
    owner = await Script(_page(_batch(4, 7, MINE))).owner()
    assert isinstance(owner, Ours)
    assert owner.version == 4
    assert owner.fingerprint is not None


@pytest.mark.parametrize("event_id", [THEIRS, None])
async def test_any_other_event_id_or_none_on_the_number_is_a_siblings(
    event_id: EventId | None,
) -> None:
    assert await Script(_page(_batch(4, 7, event_id))).owner() == Sibling()


async def test_a_node_that_ignores_the_filters_changes_no_verdict() -> None:
    noise = [_batch(1, 7, THEIRS, by=FOREIGNER), _batch(2, 6, MINE), _batch(3, 8, THEIRS)]
    assert await Script(_page(*noise)).owner() == Unwritten()


@pytest.mark.scenario("BC-06")
async def test_pages_that_hold_nothing_are_followed_to_the_end() -> None:
    script = Script(_page(then=10), _page(then=20), _page(_batch(25, 7, MINE)))
    assert isinstance(await script.owner(), Ours)
    assert script.froms() == [1, 10, 20]


async def test_a_page_that_does_not_lead_on_is_a_failed_read_and_not_an_endless_one() -> None:
    with pytest.raises(ReadFailedError):
        await Script(_page(then=10), _page(then=10)).owner()


@pytest.mark.scenario("SWA-68")
async def test_a_trimmed_aggregate_is_read_again_from_the_first_version_left() -> None:
    script = Script(TrimmedError(requested=1, first_version=5), _page(_batch(7, 7, MINE)))
    assert isinstance(await script.owner(), Ours)
    assert script.froms() == [1, 5]


@pytest.mark.scenario("BC-06")
async def test_a_trim_that_runs_ahead_is_not_followed_a_second_time() -> None:
    script = Script(
        TrimmedError(requested=1, first_version=6), TrimmedError(requested=6, first_version=8)
    )
    assert await script.owner() == Unwritten()
    assert script.froms() == [1, 6]


async def test_a_trim_that_does_not_say_what_is_left_is_not_guessed_around() -> None:
    script = Script(TrimmedError(requested=1, first_version=None))
    assert await script.owner() == Unwritten()


@pytest.mark.scenario("BC-05")
async def test_a_deleted_aggregate_leaves_the_owner_unknown() -> None:
    assert await Script(AggregateMissingError(code=1001)).owner() == Unwritten()


async def test_a_failed_read_is_no_verdict() -> None:
    with pytest.raises(ReadTimeoutError):
        await Script(ReadTimeoutError()).owner()


@pytest.mark.scenario("SWA-74")
async def test_a_scan_is_bound_by_server_time_with_a_second_of_slack() -> None:
    script = Script(_page(_batch(3, 2, THEIRS), _batch(4, 3, MINE)))
    found = await find_request(
        script.page,
        KEY,
        client_id=SERVICE,
        event_id=MINE,
        since_ms=50_000,
        domain=Accounts(),
    )
    assert found is not None
    assert found.version == 4
    filters = script.reads[0].filters
    assert (filters.min_server_ms, filters.include_client) == (49_000, SERVICE)
