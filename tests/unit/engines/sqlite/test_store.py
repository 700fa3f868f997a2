"""What is committed is what is read back: batches, heads, marks, floors and the feed."""

from pathlib import Path
from uuid import UUID

import pytest

from landed.engines.group import Group
from landed.engines.sqlite.pack import Opened, whole_packs
from landed.engines.sqlite.page import EXAMINED_MAX
from landed.engines.sqlite.schema import ANCHOR_EVERY
from landed.ids import ClientId, EventId, UserId
from landed.log import (
    ANY,
    AggregateMissing,
    BelowFloor,
    Event,
    FeedKind,
    FeedRead,
    Leg,
    Life,
    Page,
    Read,
    ReadFilters,
    Write,
)
from tests.unit.engines.sqlite.logfile import BUDGET, NOW_MS, A, B, LogFile, event, key, opened, raw

MAX = 2**64 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.mark.scenario("SC-01", "SC-71")
def test_every_field_comes_back_after_a_restart_up_to_the_largest_number(path: Path) -> None:
    first = Event(MAX, 0, EventId(UUID(int=MAX << 64)), MAX, 2**32 - 1, MAX, b"\x00\xff", bytes(12))
    second = Event(MAX - 1, 0, None, 0, 1, 0, b"", None)
    user = UserId(UUID(int=0))
    with opened(path) as log:
        log.commit(Write(A, (Leg(key(1), (first, second), ANY, True, True),), user))
        written = log.batches(key(1))
        assert written[0].events == (first._replace(event_seq=1), second._replace(event_seq=2))
        assert (written[0].version, written[0].client_id, written[0].user_id) == (1, A, user)
    with opened(path) as log:
        assert written == log.batches(key(1))
        assert log.stored_mark(key(1)) == MAX
        assert (log.position, log.last_ms) == (1, NOW_MS + 1)


def test_a_user_of_all_zeros_is_not_the_absence_of_a_user(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1, user=UUID(int=0))
        log.write(key(1), 2)
    with opened(path) as log:
        assert [UUID(int=0), None] == [batch.user_id for batch in log.batches(key(1))]
        assert log.head(key(1)).last_user is None


def test_a_group_holds_several_batches_of_one_aggregate(path: Path) -> None:
    with opened(path) as log:
        group = Group()
        for seq in (1, 2, 3):
            for number in (1, 2):
                log.stage(group, Write(A, (Leg(key(number), (event(seq),), ANY, True, True),)))
        log.store.commit(group.staged)
        assert [1, 2, 3] == log.versions(key(1)) == log.versions(key(2))
        assert [1, 2, 3, 4, 5, 6] == [entry.position for entry in log.feed()]


def test_aggregates_are_created_one_after_another_and_after_a_restart(path: Path) -> None:
    for first in (0, 5):
        with opened(path) as log:
            for number in range(first, first + 5):
                log.write(key(number), number)
            for number in range(first + 5):
                assert [number] == [one.client_seq for one in log.batches(key(number))[0].events]


def test_positions_go_on_after_a_restart(path: Path) -> None:
    for round in range(1, 4):
        with opened(path) as log:
            log.write(key(round), 1)
            assert round == log.position
    with opened(path) as log:
        assert [1, 2, 3] == [entry.position for entry in log.feed()]


def test_positions_are_not_used_again_after_the_newest_batch_was_reclaimed(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        log.delete(key(1))
        while log.store.reclaim():
            pass
    with opened(path) as log:
        assert log.position == 2
        log.write(key(2), 1)
        assert [(2, FeedKind.DELETED), (3, FeedKind.WRITTEN)] == [
            (entry.position, entry.kind) for entry in log.feed()
        ]


# --- marks


@pytest.mark.scenario("SC-19", "SC-34")
def test_every_pair_has_its_mark_however_the_writers_alternate(path: Path) -> None:
    clients = [ClientId(UUID(int=number)) for number in range(40)]
    with opened(path) as log:
        for seq in (1, 2, 3):
            log.fill(key(1), seqs=[seq] * 40, clients=tuple(clients))
    with opened(path) as log:
        pairs = [(key(1), client) for client in clients]
        assert dict.fromkeys(pairs, 3) == log.store.load([], pairs).marks


@pytest.mark.scenario("SC-21")
def test_a_batch_with_lower_sequences_never_lowers_a_mark(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 10)
        log.write(key(1), 4, enforce=False)
        assert log.stored_mark(key(1)) == 10
        log.write(key(1), 7, client=B)
        log.write(key(1), 2, enforce=False)
        log.write(key(1), 1, client=B, enforce=False)
        assert (log.stored_mark(key(1)), log.stored_mark(key(1), B)) == (10, 7)
    with opened(path) as log:
        assert (log.stored_mark(key(1)), log.stored_mark(key(1), B)) == (10, 7)


def test_writers_that_alternate_inside_one_group_keep_their_marks(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 9)
        group = Group()
        for client, seq in ((B, 5), (A, 3), (B, 4), (A, 2)):
            log.stage(group, Write(client, (Leg(key(1), (event(seq),), ANY, True, False),)))
        log.store.commit(group.staged)
        assert (log.stored_mark(key(1)), log.stored_mark(key(1), B)) == (9, 5)


def test_sequence_0_leaves_no_mark(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 0)
        assert {} == log.store.load([], [(key(1), A)]).marks


@pytest.mark.scenario("SC-30", "SC-31", "SC-35")
def test_marks_survive_trim_delete_recreate_reclaim_and_restart(path: Path) -> None:
    with opened(path) as log:
        for seq in (1, 2, 3):
            log.write(key(1), seq)
            log.write(key(1), seq, client=B)
        log.trim(key(1), 5)
        log.delete(key(1), go_on=True)
        while log.store.reclaim():
            pass
        log.write(key(1), 1, client=ClientId(UUID(int=0xC)))
    with opened(path) as log:
        assert (log.stored_mark(key(1)), log.stored_mark(key(1), B)) == (3, 3)


def test_a_lookup_touches_the_same_few_pages_however_long_the_history(path: Path) -> None:
    """Log rules I17 and I18: the instructions SQLite runs are counted, not the time."""

    def steps(log: LogFile) -> int:
        connection = log.store._borrow()
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        connection.set_progress_handler(tick, 1)
        log.store._give_back(connection)
        log.store.load([key(1)], [(key(1), A), (key(1), B), (key(1), ClientId(UUID(int=0xC)))])
        connection.set_progress_handler(None, 1)
        return count

    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 11), clients=(A, B))
    with opened(path) as log:  # nothing is owed, so all of it is looked up in the file
        young = steps(log)
        log.fill(key(1), seqs=range(11, 2_000), clients=(A, B))
        assert 0 < steps(log) < young, "its head is owed, and found without a look at the file"
    with opened(path) as log:
        assert young == steps(log)


# --- pages


@pytest.mark.scenario("SC-46")
@pytest.mark.parametrize("count", [1, ANCHOR_EVERY - 1, ANCHOR_EVERY, 3 * ANCHOR_EVERY + 5])
def test_any_stretch_of_a_history_is_found_along_the_links(path: Path, count: int) -> None:
    with opened(path) as log:
        log.fill(key(1), key(2), seqs=range(1, count + 1))
        for low in {1, 2, ANCHOR_EVERY, ANCHOR_EVERY + 1, 2 * ANCHOR_EVERY, count, count + 1}:
            for high in {low - 1, low, low + 70, None}:
                page = log.page(key(1), ReadFilters(low, high))
                end = count if high is None else min(high, count)
                assert list(range(low, end + 1)) == [batch.version for batch in page.batches]
                assert page.next_version is None


@pytest.mark.scenario("SC-47", "SC-48")
def test_pages_are_bounded_by_bytes_and_follow_on_without_loss(path: Path) -> None:
    with opened(path) as log:
        for seq in range(1, 41):
            log.write(key(1), seq, value=bytes(200_000 if seq == 7 else 10_000))
        seen: list[int] = []
        cursor: int | None = 1
        while cursor is not None:
            page = log.page(key(1), ReadFilters(cursor), budget=64_000)
            assert len(page.batches) <= 6
            seen += [batch.version for batch in page.batches]
            assert page.next_version is None or page.next_version == seen[-1] + 1
            cursor = page.next_version
        assert list(range(1, 41)) == seen


def test_a_filter_that_matches_nothing_ends_its_page_with_a_cursor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landed.engines.sqlite.page.EXAMINED_MAX", 100)
    assert EXAMINED_MAX > 1_000
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 251))
        cursors: list[int | None] = []
        cursor: int | None = 1
        while cursor is not None:
            page = log.page(key(1), ReadFilters(cursor, min_client_seq=999))
            assert page.batches == ()
            cursor = page.next_version
            cursors.append(cursor)
        assert [101, 201, None] == cursors


@pytest.mark.scenario("SC-52")
def test_a_point_lookup_reads_no_other_payload(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 101), clients=(B,))
        log.fill(key(1), seqs=range(1, 101), value=b"mine")
        with raw(path) as connection:
            for first, blob, bodies in list(whole_packs(connection, 0)):
                kept = [
                    (body if entry.version == 150 else bytes(entry.size))
                    for entry, body in Opened((first, blob, bodies)).after(0)
                ]
                connection.execute(
                    "UPDATE packs SET bodies = ? WHERE position = ?", (b"".join(kept), first)
                )
        wanted = ReadFilters(1, min_client_seq=50, max_client_seq=50, include_client=A)
        (batch,) = log.page(key(1), wanted).batches
        assert (batch.version, batch.client_id, batch.events[0].value) == (150, A, b"mine")


@pytest.mark.scenario("SC-51", "SC-50")
def test_what_is_filtered_by_metadata_is_what_is_filtered_by_events(path: Path) -> None:
    with opened(path) as log:
        for at in range(1, 31):
            log.write(key(1), 2 * at, 2 * at + 1, client=(A, B)[at % 2])
        everything = log.batches(key(1))
        for filters in (
            ReadFilters(1, min_client_seq=20, max_client_seq=31),
            ReadFilters(1, min_event_seq=7, max_event_seq=12),
            ReadFilters(1, min_event_seq=60),
            ReadFilters(1, max_event_seq=1),
            ReadFilters(1, include_client=A, min_server_ms=NOW_MS + 5, max_server_ms=NOW_MS + 9),
            ReadFilters(1, exclude_client=A),
        ):
            expected = [
                (batch.version, one.client_seq)
                for batch in everything
                for one in batch.events
                if filters.include_client in {None, batch.client_id}
                and filters.exclude_client != batch.client_id
                and (filters.min_server_ms or 0) <= batch.server_ms
                and batch.server_ms <= (filters.max_server_ms or MAX)
                and (filters.min_client_seq or 0) <= one.client_seq
                and one.client_seq <= (filters.max_client_seq or MAX)
                and (filters.min_event_seq or 0) <= one.event_seq
                and one.event_seq <= (filters.max_event_seq or MAX)
            ]
            found = [
                (batch.version, one.client_seq)
                for batch in log.page(key(1), filters).batches
                for one in batch.events
            ]
            assert expected == found
            assert found


def test_a_page_shows_nothing_above_the_head_it_was_asked_for(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        head = log.head(key(1))
        log.write(key(1), 2)
        answer = log.store.read(Read(key(1)), head, BUDGET)
        assert isinstance(answer, Page)
        assert [1] == [batch.version for batch in answer.batches]


@pytest.mark.scenario("SC-59")
def test_a_read_that_a_trim_or_delete_overtook_is_refused_not_shortened(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), key(2), key(3), seqs=range(1, 11))
        heads = {number: log.head(key(number)) for number in (1, 2, 3)}
        log.trim(key(1), 6)
        log.delete(key(2))
        log.delete(key(3))
        log.write(key(3), 11)
        for number, head in heads.items():
            before = log.store.read(Read(key(number)), head, BUDGET)
            assert isinstance(before, Page)
            assert len(before.batches) == 10
        while log.store.reclaim():
            pass
        answers = [log.store.read(Read(key(at)), head, BUDGET) for at, head in heads.items()]
        assert [BelowFloor(1, 6), AggregateMissing(key(2)), AggregateMissing(key(3))] == answers


# --- lives


@pytest.mark.scenario("SC-63", "SC-64", "SC-65", "SC-66")
def test_only_the_present_life_is_readable_and_its_numbers_are_right(path: Path) -> None:
    with opened(path) as log:
        for life in range(3):
            log.fill(key(1), key(2), seqs=range(100 * life + 1, 100 * life + 101))
            log.delete(key(1), go_on=True)
            log.delete(key(2))
        log.write(key(1), 301)
        log.write(key(2), 301, 302)
    for is_reclaimed in (False, True):
        with opened(path) as log:
            while is_reclaimed and log.store.reclaim():
                pass
            assert [301] == log.versions(key(1))
            assert [1] == log.versions(key(2))
            assert log.batches(key(1))[0].events[0].event_seq == 301
            assert log.batches(key(2))[0].events[1].event_seq == 2


@pytest.mark.scenario("SC-62", "SC-60")
def test_a_tombstone_and_its_flags_survive_a_restart(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        log.delete(key(1), recreate=False, go_on=True)
        tombstone = log.head(key(1))
        assert (tombstone.life, tombstone.allow_recreate) == (Life.DELETED, False)
    with opened(path) as log:
        assert tombstone == log.head(key(1))


@pytest.mark.scenario("SC-58")
def test_a_floor_survives_later_writes_and_a_restart(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 11))
        log.trim(key(1), 5)
    with opened(path) as log:
        assert log.head(key(1)).floor == 5
        log.write(key(1), 11)
    with opened(path) as log:
        assert list(range(5, 12)) == log.versions(key(1))


# --- the feed


def test_the_feed_tells_what_is_readable_and_every_trim_and_delete_in_order(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), key(2), seqs=(1, 2, 3))
        log.trim(key(1), 3)
        log.delete(key(2))
        log.write(key(2), 4)
        expected = [
            (5, key(1), FeedKind.WRITTEN, 3),
            (7, key(1), FeedKind.TRIMMED, 3),
            (8, key(2), FeedKind.DELETED, 3),
            (9, key(2), FeedKind.WRITTEN, 1),
        ]
        for _ in range(2):
            assert expected == [
                (entry.position, entry.key, entry.kind, entry.version) for entry in log.feed()
            ]
            while log.store.reclaim():
                pass


def test_feed_pages_are_bounded_by_entries_bytes_and_work(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 31), value=bytes(1_000))
        log.trim(key(1), 21)
        page = log.store.feed(FeedRead(0, limit=3), BUDGET)
        assert [21, 22, 23] == [entry.position for entry in page.entries]
        assert (page.next_after, page.is_at_end) == (23, False)
        page = log.store.feed(FeedRead(23, limit=100), 2_500)
        assert [24, 25] == [entry.position for entry in page.entries]
        assert (page.next_after, page.is_at_end) == (25, False)
        monkeypatch.setattr("landed.engines.sqlite.page.EXAMINED_MAX", 10)
        page = log.store.feed(FeedRead(0), BUDGET)
        assert (page.entries, page.next_after, page.is_at_end) == ((), 10, False)
        page = log.store.feed(FeedRead(30), BUDGET)
        assert [31] == [entry.position for entry in page.entries]
        assert (page.next_after, page.is_at_end) == (31, True)
