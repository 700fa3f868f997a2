"""What "saved" means: on the disk, numbered for good, bounded, and owned by one process."""

import asyncio
import sqlite3
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.errors import (
    ConfigurationError,
    EventIdReusedError,
    MalformedWriteError,
    QueueError,
    QueueFullError,
    RequestTooLargeError,
    StorageForeignError,
    StorageInUseError,
)
from landed.offline import Queue, QueueLimits, status_of
from landed.offline.store import Store
from tests.unit.offline.devices import CLIENT, NOTES, OTHERS, landed, world


def test_event_and_number_are_one_transaction_with_the_application_s_own_tables(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        queue.save(lambda saving: saving.execute("CREATE TABLE view (text TEXT)"))

        def fail(saving):
            saving.enqueue(NOTES, 1, b"lost")
            saving.execute("INSERT INTO view VALUES ('lost')")
            raise KeyError("before commit")

        with pytest.raises(KeyError):
            queue.save(fail)

        def work(saving):
            saved = saving.enqueue(NOTES, 1, b"kept")
            saving.execute("INSERT INTO view VALUES ('kept')")
            return saved

        assert queue.save(work).client_seq == 1, "a number that was rolled back was never given"
        rows = queue.save(lambda saving: saving.execute("SELECT text FROM view").fetchall())
        assert rows == [("kept",)]
        assert [entry.value for _, entry in queue.pending()] == [b"kept"]


def test_every_commit_is_flushed(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        sql = queue._store._sql
        assert sql.execute("PRAGMA synchronous").fetchone() == (2,)
        assert sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_identity_is_made_once_and_kept(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        first = queue.client_id
        assert first.int
    with Queue.open(tmp_path / "q.db") as queue:
        assert queue.client_id == first
    with pytest.raises(ConfigurationError, match="belongs to client id"):
        Queue.open(tmp_path / "q.db", client_id=CLIENT)
    with pytest.raises(ConfigurationError, match="nil"):
        Queue.open(tmp_path / "other.db", client_id=UUID(int=0))


def test_the_counter_cannot_go_back(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue(NOTES, 1, b"a")
        for statement in ("UPDATE counter SET next_seq = 1", "DELETE FROM counter"):
            with pytest.raises(sqlite3.IntegrityError):
                queue.save(lambda saving, s=statement: saving.execute(s))
        assert queue.status().next_seq == 2


@pytest.mark.scenario("SWA-91")
async def test_after_pruning_everything_a_new_number_is_above_all_earlier_ones():
    async with world() as (device, log):
        await device.put("a", "b", "c")
        await device.queue.sync(log)
        assert await device.queue.prune() == 3
        device.start()
        status = await device.queue.status()
        assert (status.synced, status.queued, status.pruned_seq) == (0, 0, 3)
        assert status.client_id == CLIENT
        assert await device.put("d") == [4]
        await device.queue.sync(log)
        assert await landed(log) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


async def test_synced_events_go_by_themselves_beyond_the_kept_ones():
    async with world(limits=QueueLimits(synced_kept=4, run_events_max=2)) as (device, log):
        await device.put(*"abcdefghij")
        await device.queue.sync(log)
        status = await device.queue.status()
        assert status.synced <= 4
        assert status.pruned_seq >= 6


def test_the_same_event_id_again_changes_nothing_and_with_other_content_is_refused(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        one = UUID(int=7)
        assert queue.enqueue(NOTES, 1, b"a", event_id=one) == queue.enqueue(
            NOTES, 1, b"a", event_id=one
        )
        for key, value in ((NOTES, b"b"), (OTHERS, b"a")):
            with pytest.raises(EventIdReusedError):
                queue.enqueue(key, 1, value, event_id=one)
        assert (queue.status().queued, queue.status().next_seq) == (1, 2)


def test_what_no_log_would_take_is_refused_before_it_is_saved(tmp_path):
    with Queue.open(tmp_path / "q.db", limits=QueueLimits(event_bytes_max=10)) as queue:
        with pytest.raises(RequestTooLargeError):
            queue.enqueue(NOTES, 1, b"x" * 11)
        with pytest.raises(MalformedWriteError):
            queue.enqueue(NOTES, 0, b"x")
        with pytest.raises(MalformedWriteError):
            queue.enqueue(NOTES, 1, b"x", event_id=UUID(int=0))
        assert queue.status().next_seq == 1


async def test_a_full_store_refuses_in_one_sentence_and_has_room_again_after_a_sync():
    limits = QueueLimits(disk_bytes_max=512 * 1024)
    async with world(limits=limits) as (device, log):
        saved = 0
        while not (await device.queue.status()).used_bytes > limits.disk_bytes_max - 4_200:
            await device.queue.enqueue(NOTES, 1, b"x" * 4_000)
            saved += 1
        with pytest.raises(QueueFullError, match="nothing was saved"):
            await device.queue.enqueue(NOTES, 1, b"x" * 4_000)
        assert 50 < saved < 140
        status = await device.queue.status()
        assert status.queued == saved
        assert status.used_bytes <= limits.disk_bytes_max
        synced = await device.queue.sync(log)
        assert (synced.landed, synced.left) == (saved, 0)
        assert (await device.queue.enqueue(NOTES, 1, b"x" * 4_000)).client_seq == saved + 1


def test_a_save_that_fills_the_disk_beyond_the_limit_is_undone_whole(tmp_path):
    with Queue.open(tmp_path / "q.db", limits=QueueLimits(disk_bytes_max=512 * 1024)) as queue:
        queue.save(lambda saving: saving.execute("CREATE TABLE view (blob BLOB)"))

        def work(saving):
            saving.enqueue(NOTES, 1, b"a")
            for _ in range(100):
                saving.execute("INSERT INTO view VALUES (zeroblob(10000))")

        with pytest.raises(QueueFullError):
            queue.save(work)
        assert queue.status().queued == 0
        assert queue.enqueue(NOTES, 1, b"b").client_seq == 1


def test_one_process_owns_a_store_and_the_second_hears_whose_it_is(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue(NOTES, 1, b"a")
        with pytest.raises(StorageInUseError, match="in use by pid"):
            Queue.open(tmp_path / "q.db")
        assert status_of(tmp_path / "q.db").queued == 1, "looking is allowed"
    Queue.open(tmp_path / "q.db").close()


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    path = tmp_path / "q.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StorageForeignError):
        Queue.open(path)
    assert path.read_bytes() == before
    (tmp_path / "text.db").write_text("hello " * 100)
    with pytest.raises(StorageForeignError):
        Queue.open(tmp_path / "text.db")
    with pytest.raises(ConfigurationError, match="no queue at"):
        status_of(tmp_path / "none.db")


@pytest.mark.scenario("BC-10")
@pytest.mark.real_loop
async def test_saves_of_twenty_tasks_are_whole_or_absent_beside_housekeeping(tmp_path):
    from landed.offline import AsyncQueue

    queue = await AsyncQueue.open(tmp_path / "q.db")

    def work(number):
        def save(saving):
            saving.enqueue(NOTES, 1, f"{number}".encode())
            if number % 2:
                raise KeyError(number)
            saving.enqueue(OTHERS, 1, f"{number}".encode())

        return save

    async with queue:
        results = await asyncio.gather(
            *[queue.save(work(number)) for number in range(20)],
            *[queue.prune() for _ in range(5)],
            *[queue.status() for _ in range(5)],
            return_exceptions=True,
        )
        failed = [one for one in results if isinstance(one, Exception)]
        assert all(isinstance(one, KeyError) for one in failed)
        assert len(failed) == 10
        here, there = [
            [int(entry.value) for _, entry in await queue.pending(key)] for key in (NOTES, OTHERS)
        ]
        assert here == there
        assert len(here) == 10


def test_a_save_cannot_end_or_nest_its_transaction_nor_wait(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:
        with pytest.raises(QueueError, match="already within a save"):
            queue.save(lambda saving: queue.enqueue(NOTES, 1, b"a"))
        with pytest.raises(QueueError, match="not by a statement"):
            queue.save(lambda saving: saving.execute("COMMIT"))

        async def wait(saving):
            pass

        with pytest.raises(ConfigurationError, match="plain function"):
            queue.save(wait)
        kept = queue.save(lambda saving: saving)
        with pytest.raises(QueueError, match="over"):
            kept.enqueue(NOTES, 1, b"a")


@pytest.mark.scenario("BC-09")
@pytest.mark.real_loop
async def test_writers_in_several_threads_queue_and_no_lock_error_reaches_them(tmp_path):
    with Queue.open(tmp_path / "q.db") as queue:

        def write(thread):
            for number in range(50):
                queue.save(
                    lambda saving: (
                        saving.execute("SELECT count(*) FROM events").fetchone(),
                        saving.enqueue(NOTES, 1, f"{thread}/{number}".encode()),  # noqa: B023
                    )
                )
                status_of(tmp_path / "q.db")

        await asyncio.gather(*[asyncio.to_thread(write, thread) for thread in range(4)])
        assert [entry.client_seq for _, entry in queue.pending()] == list(range(1, 201))


@pytest.mark.real_loop
def test_the_face_without_asyncio_syncs_too(tmp_path):
    import landed as product

    url = f"sqlite:///{tmp_path}/log.db"
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue(NOTES, 1, b"a")
        synced = queue.sync(lambda: product.connect(url))
        assert (synced.landed, synced.left) == (1, 0)
        assert queue.status().synced == 1


@pytest.mark.scenario("SWA-86")
@pytest.mark.parametrize("point", ["before commit", "after commit", "after send", "after ack"])
async def test_a_death_at_a_point_loses_and_renumbers_nothing(point):
    """ "After mark" is any later start; the kills of a real process are in tests/integration."""
    async with world() as (device, log):
        saved = await device.put("1", "2")
        if point == "before commit":

            def work(saving):
                saving.enqueue(NOTES, 1, b"never saved")
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                device.store.save(work)
        elif point == "after send":
            pause = log.pause("after_send")
            syncing = asyncio.create_task(device.queue.sync(log))
            await pause.reached.wait()
            syncing.cancel()
            await asyncio.wait([syncing])
        elif point == "after ack":
            store, take = device.store, device.store.take
            calls = []

            def die(settled, **options):
                calls.append(settled)
                if settled is not None:
                    raise SystemError("dead")
                return take(settled, **options)

            store.take = die
            with pytest.raises(SystemError):
                await device.queue.sync(log)
            assert calls[-1] is not None
        device.start()
        assert [entry.client_seq for _, entry in await device.queue.pending()] == saved
        saved += await device.put("3")
        await device.queue.sync(log)
        device.start()
        await device.queue.sync(log)
        assert await landed(log) == [(1, "1"), (2, "2"), (3, "3")]
        assert saved == [1, 2, 3]


async def test_a_run_is_marked_as_attempted_before_it_leaves():
    async with world() as (device, log):
        await device.put("1")
        pause = log.pause("before_send")
        syncing = asyncio.create_task(device.queue.sync(log))
        await pause.reached.wait()
        assert (await device.queue.status()).attempted == 1
        pause.go_on()
        await syncing


def test_a_store_survives_being_opened_by_a_second_life(tmp_path):
    clock = SystemClock()
    store = Store.open(tmp_path / "q.db", clock=clock)
    store.close()
    store.close()
    with pytest.raises(QueueError, match="closed"):
        store.status()
