"""What was written is what is read, or it is an error: never altered bytes, never a lost mark."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from landed.engines.sqlite.check import verify
from landed.engines.sqlite.pack import Opened, drop, whole_packs
from landed.errors import StorageDamagedError, StorageError
from landed.ids import AggregateKey, ClientId
from landed.log import FeedPage, FeedRead, Life, Read, ReadFilters
from tests.unit.engines.sqlite.logfile import BUDGET, A, B, LogFile, key, opened, raw

NOBODY = ClientId(key(9).id)
KEYS = [key(number) for number in range(1, 7)]
PAIRS = [(one, client) for one in [*KEYS, key(99)] for client in (A, B, NOBODY)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log with every kind of row in it."""
    path = tmp_path / "log.db"
    with opened(path) as log:
        for at, one in enumerate(KEYS):
            log.fill(one, seqs=range(1, 4 + at), clients=(A, B), value=b"%d" % at * 40)
        log.trim(key(2), 3)
        log.delete(key(3), go_on=True)
        log.write(key(3), 9)
        log.delete(key(4))
        # So much more, that the check at open does not come to what is damaged below.
        log.fill(key(50), seqs=range(1, 301))
    return path


def looks(log: LogFile) -> Iterator[Any]:
    """Everything that can be asked of a log, one answer at a time."""
    for one in [*KEYS, key(50), key(99)]:
        yield lambda one=one: log.store.load([one], []).heads
        yield lambda one=one: read(log, one)
    for pair in PAIRS:
        yield lambda pair=pair: log.store.load([], [pair]).marks
    for after in range(0, log.position, 4):
        yield lambda after=after: log.store.feed(FeedRead(after, limit=4), BUDGET)


def read(log: LogFile, one: AggregateKey) -> object:
    head = log.head(one)
    if head.life is not Life.LIVE:
        return head.life
    return log.store.read(Read(one, ReadFilters(head.floor)), head, BUDGET)


def answers(path: Path) -> list[Any] | None:
    """Every answer, or None in place of an error; None if it does not even open."""
    found: list[Any] = []
    try:
        with opened(path) as log:
            for look in looks(log):
                try:
                    found.append(look())
                except StorageError:
                    found.append(None)
    except StorageError:
        return None
    return found


def disagreements(sound: list[Any], found: list[Any] | None) -> list[tuple[Any, Any]]:
    """Answers that are neither right nor an error. A feed page may end before what is damaged."""
    return [
        (right, told)
        for right, told in zip(sound, found or [], strict=False)
        if told is not None
        and right != told
        and not (isinstance(told, FeedPage) and ends_early(right, told))
    ]


def ends_early(right: FeedPage, told: FeedPage) -> bool:
    return (
        not told.is_at_end
        and told.next_after < right.next_after
        and told.entries == right.entries[: len(told.entries)]
        and all(entry.position > told.next_after for entry in right.entries[len(told.entries) :])
    )


def damage(path: Path, table: str, column: str, where: str, at: int = 0) -> None:
    """Flip a bit of a number, or of one byte of the others."""
    with raw(path) as connection:
        (value,) = connection.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
        if isinstance(value, bytes):
            at %= len(value)
            value = value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :]
        else:
            value ^= 4
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("at", [0, 5, 11, 40, 60, -5, -4, -1])
@pytest.mark.parametrize("column", ["entries", "bodies"])
def test_a_change_to_any_byte_of_a_pack_is_detected_and_others_are_served(
    path: Path, column: str, at: int
) -> None:
    sound = answers(path)
    assert sound is not None
    damage(path, "packs", column, "position = 1", at)
    found = answers(path)
    assert found is not None
    assert [] == disagreements(sound, found)
    differing = [at for at, right in enumerate(sound) if found[at] != right]
    assert len(differing) == 2, "its aggregate's page and its feed page; all others are served"
    assert differing[0] == 1
    assert not verify(path).is_sound


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("at", [*range(0, 40, 3), -4, -1])
def test_a_change_to_any_byte_of_a_head_is_detected_and_others_are_served(
    path: Path, at: int
) -> None:
    sound = answers(path)
    assert sound is not None
    damage(path, "aggregates", "state", "number = 1", at)
    found = answers(path)
    assert found is not None
    assert [] == disagreements(sound, found)
    assert found[0] is None
    assert found[2:10] == sound[2:10]
    assert not verify(path).is_sound


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("column", ["mark", "row_check"])
def test_a_change_to_a_mark_is_detected_and_others_are_served(path: Path, column: str) -> None:
    sound = answers(path)
    assert sound is not None
    # Of client A on aggregate 2, where B wrote last.
    first = "SELECT min(pair) FROM marks WHERE pair > x'0000000000000002'"
    damage(path, "marks", column, f"pair = ({first})")
    found = answers(path)
    assert found is not None
    assert [] == disagreements(sound, found)
    assert found.count(None) in {1, 2, 3}, "the pair, and pairs that would have been beside it"
    assert not verify(path).is_sound


PLACES = ["packs", "aggregates", "sqlite_autoindex_aggregates_1", "marks", "anchors", "meta"]


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("place", PLACES)
def test_a_flipped_bit_in_a_record_never_changes_an_answer(path: Path, place: str) -> None:
    flip(path, place, 12, random.Random(place))


@pytest.mark.long
@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("place", PLACES)
def test_many_flipped_bits_in_records_never_change_an_answer(
    path: Path, place: str, seed: int
) -> None:
    flip(path, place, 200, random.Random(f"{place}/{seed}"))


def leaves(path: Path, place: str) -> list[int]:
    with raw(path) as connection:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (place,)
        )
        return [page for (page,) in found]


def records(content: bytes, page: int) -> Iterator[int]:
    """Where the records of a leaf page lie: behind its header, its row pointers and its free space.

    Damage to a header or a pointer can hide whole rows; SQLite finds some of it and the full check
    finds all, but no checksum of a row can.
    """
    start = (page - 1) * 4096
    assert content[start] in {0x0A, 0x0D}, "a leaf"
    rows = int.from_bytes(content[start + 3 : start + 5])
    pointers = [start + 8 + 2 * at for at in range(rows)]
    cells = sorted(start + int.from_bytes(content[at : at + 2]) for at in pointers)
    for cell, end in zip(cells, [*cells[1:], start + 4096], strict=True):
        yield from range(cell, end)


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("bit", [3, 5, 7])
def test_a_pack_that_moved_leads_no_feed_astray(path: Path, bit: int) -> None:
    """A position is no column; where it is damaged, searches for its neighbours go wrong."""
    sound = answers(path)
    content = path.read_bytes()
    assert sound is not None
    for at in row_numbers(content, leaves(path, "packs")[0]):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        copy = path.with_name("copy.db")
        copy.write_bytes(damaged)
        assert [] == disagreements(sound, answers(copy)), f"position {content[at]}"
        for file in path.parent.glob("copy.db*"):
            file.unlink()


def row_numbers(content: bytes, page: int) -> list[int]:
    """Where the numbers of the rows stand in a leaf page of a table, those that are one byte long."""
    start = (page - 1) * 4096
    rows = int.from_bytes(content[start + 3 : start + 5])
    found = []
    for at in range(rows):
        pointer = start + 8 + 2 * at
        cell = start + int.from_bytes(content[pointer : pointer + 2])
        found.append(cell + (2 if content[cell] & 0x80 else 1))
    return [at for at in found if not content[at] & 0x80]


def flip(path: Path, place: str, count: int, generator: random.Random) -> None:
    """Flip one bit at a time in the records of a table or index, and ask everything each time."""
    sound = answers(path)
    assert sound is not None
    content = path.read_bytes()
    used = [at for page in leaves(path, place) for at in records(content, page)]
    detected = 0
    for at in generator.sample(used, min(count, len(used))):
        damaged = bytearray(content)
        damaged[at] ^= 1 << generator.randrange(8)
        copy = path.with_name("copy.db")
        copy.write_bytes(damaged)
        found = answers(copy)
        assert [] == disagreements(sound, found), f"byte {at % 4096} of page {at // 4096 + 1}"
        detected += found is None or None in found
        for file in path.parent.glob("copy.db*"):
            file.unlink()
    assert detected or place == "anchors"


@pytest.mark.scenario("SC-72")
def test_garbage_behind_the_end_of_the_file_is_harmless(path: Path) -> None:
    sound = answers(path)
    with path.open("ab") as file:
        file.write(random.Random(1).randbytes(10_000))
    with opened(path) as log:
        assert sound == [look() for look in looks(log)]
        log.fill(key(1), seqs=range(100, 140))
    with opened(path) as log:
        assert len(log.batches(key(1))) == 43


@pytest.mark.scenario("SC-72")
@pytest.mark.parametrize("garbage", [b"\x00" * 9_000, random.Random(2).randbytes(9_000), b"x"])
def test_garbage_behind_the_end_of_the_write_ahead_log_is_harmless(
    path: Path, garbage: bytes
) -> None:
    """As after a kill: the files are copied while the log is open."""
    with opened(path) as log:
        log.fill(key(1), seqs=range(100, 103))
        sound = [look() for look in looks(log)]
        killed = path.with_name("killed.db")
        shutil.copy(path, killed)
        shutil.copy(f"{path}-wal", f"{killed}-wal")
        # Frames of an earlier round behind the end, too: their salt is not this round's.
        frames = Path(f"{killed}-wal").read_bytes()
    with Path(f"{killed}-wal").open("ab") as file:
        file.write(garbage + frames[32:])
    with opened(killed) as log:
        assert sound == [look() for look in looks(log)]
        log.write(key(1), 103)
    with opened(killed) as log:
        assert 103 == log.batches(key(1))[-1].events[0].client_seq


@pytest.mark.scenario("SC-72")
def test_a_torn_last_commit_is_absent_as_a_whole(path: Path) -> None:
    """The write-ahead log is cut at every length inside the last group: all of it, or nothing."""
    with opened(path) as log:
        log.write(key(1), 100)
        before = Path(f"{path}-wal").stat().st_size
        log.fill(*KEYS[:2], key(50), seqs=[400])
        after = Path(f"{path}-wal").stat().st_size
        killed = path.with_name("killed.db")
        wal = Path(f"{path}-wal").read_bytes()
        content = path.read_bytes()
    assert after > before
    for cut in {*range(before, after, 1_000), after - 1, after}:
        killed.write_bytes(content)
        Path(f"{killed}-wal").write_bytes(wal[:cut])
        with opened(killed) as log:
            found = [log.batches(one)[-1].events[0].client_seq == 400 for one in (KEYS[0], key(50))]
            assert [cut == after] * 2 == found
            assert (log.mark(key(1), A) == 400) == (cut == after)


@pytest.mark.scenario("SC-73")
def test_a_flipped_bit_in_the_write_ahead_log_takes_no_later_commit_with_it(path: Path) -> None:
    """SQLite alone would open the file without what was acknowledged after the flipped bit."""
    with opened(path) as log:
        log.write(key(1), 101)
        sizes = [Path(f"{path}-wal").stat().st_size]
        for seq in range(102, 106):
            log.write(key(1), seq)
            sizes.append(Path(f"{path}-wal").stat().st_size)
        content, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    killed = path.with_name("killed.db")
    for at in {*range(sizes[0], sizes[-1], 997), sizes[0] + 9, sizes[-2] - 1}:
        flipped = bytearray(wal)
        flipped[at] ^= 1
        Path(f"{killed}-shm").unlink(missing_ok=True)
        killed.write_bytes(content)
        Path(f"{killed}-wal").write_bytes(flipped)
        if at < sizes[-2]:
            for _ in range(2):  # what shows the damage is still there after a refusal
                with pytest.raises(StorageDamagedError, match="-wal is damaged"), opened(killed):
                    pass
            with pytest.raises(StorageDamagedError, match="-wal is damaged"):
                verify(killed)
            assert bytes(flipped) == Path(f"{killed}-wal").read_bytes()
        else:  # the last commit: what a power cut leaves looks the same
            with opened(killed) as log:
                assert 104 == log.batches(key(1))[-1].events[0].client_seq


def test_a_damaged_pack_ends_the_feed_page_before_it(path: Path) -> None:
    damage(path, "packs", "entries", "position = 4")
    with opened(path) as log:
        page = log.store.feed(FeedRead(0), BUDGET)
        assert page.next_after == 3
        assert not page.is_at_end
        with pytest.raises(StorageError, match="position 4"):
            log.store.feed(FeedRead(3), BUDGET)


def test_a_damaged_payload_ends_the_feed_page_before_it(path: Path) -> None:
    damage(path, "packs", "bodies", "position = 4", -1)
    with opened(path) as log:
        page = log.store.feed(FeedRead(3), BUDGET)
        assert ([6], 6) == ([entry.position for entry in page.entries], page.next_after)
        assert not page.is_at_end
        with pytest.raises(StorageError, match="position 7"):
            log.store.feed(FeedRead(6), BUDGET)


def test_links_in_a_circle_end_in_an_error(path: Path) -> None:
    """Rows with right checksums but wrong links, as only a bug could write them."""
    with raw(path) as connection:
        entries = [one for row in whole_packs(connection, 0) for one in Opened(row).entries()]
        chain = [one for one in entries if one.aggregate == 6]
        assert [one.position for one in chain[:-1]] == [one.previous for one in chain[1:]]
        drop(connection, [chain[2].position])
    with opened(path) as log, pytest.raises(StorageError, match="is gone"):
        log.batches(key(6))
    assert not verify(path).is_sound
