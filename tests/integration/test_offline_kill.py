"""``kill -9`` of a device that saves and syncs: what it said is saved lands once, in order.

The audit reads both files themselves: the queue's, before anything may repair it, and the log's.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from uuid import UUID

import pytest

from landed import connect
from landed.ids import AggregateKey
from landed.offline import AsyncQueue, status_of
from tests.integration.engine_audit import audit
from tests.integration.process import Serving, run_to_end

ROOT = Path(__file__).parents[2]


def run_and_kill(
    store: Path, port: int, promised: dict[int, tuple[UUID, str]], *, saves: int, seed: int
) -> UUID:
    """Run the device until it said so often that something is saved; kill it. Returns who it is."""
    errors = store.with_name("errors.txt")
    arguments = (str(store), str(port), str(seed))
    with (
        errors.open("w") as to_file,
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.offline_device", *arguments],
            stdout=subprocess.PIPE,
            stderr=to_file,
            text=True,
            cwd=ROOT,
        ) as process,
    ):
        assert process.stdout is not None
        client: UUID | None = None
        heard = 0

        def hear(line: str) -> None:
            nonlocal client, heard
            word, *rest = line.split()
            if word == "client":
                client = UUID(rest[0])
            else:
                number, event_id, key = rest
                assert int(number) not in promised, "a number was given twice"
                promised[int(number)] = (UUID(event_id), key)
                heard += 1

        for line in process.stdout:
            hear(line)
            if heard >= saves:
                break
        process.kill()
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                hear(line)
        assert heard >= saves, errors.read_text()[-4_000:]
        assert client is not None
        return client


def audit_store(store: Path, promised: dict[int, tuple[UUID, str]]) -> None:
    """What lies in the file right after a kill: every promise is there, or was pruned as synced."""
    copy = store.with_name("copy.db")
    for suffix in ("", "-wal"):
        part = Path(f"{store}{suffix}")
        Path(f"{copy}{suffix}").write_bytes(part.read_bytes() if part.exists() else b"")
    sql = sqlite3.connect(copy)
    rows = {
        seq: (UUID(bytes=event_id), str(AggregateKey.from_packed(key)))
        for seq, event_id, key in sql.execute(
            "SELECT e.client_seq, e.event_id, a.key FROM events e "
            "JOIN aggregates a ON a.id = e.aggregate"
        )
    }
    (pruned,) = sql.execute("SELECT pruned_seq FROM device").fetchone()
    (next_seq,) = sql.execute("SELECT next_seq FROM counter").fetchone()
    assert sql.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    sql.close()
    for number, promise in promised.items():
        assert rows.get(number, promise if number <= pruned else None) == promise
    assert next_seq > max(promised)
    promised.update(rows)  # saved, and killed before it could say so


def audit_log(path: Path, client: UUID, promised: dict[int, tuple[UUID, str]]) -> None:
    """Every promise once, under its number, in order; nothing else."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in audit(path).events:
        assert event.client == client.bytes
        found[str(AggregateKey.from_packed(event.key))].append(event.client_seq)
    expected: dict[str, list[int]] = defaultdict(list)
    for number, (_, key) in sorted(promised.items()):
        expected[key].append(number)
    assert found == expected


def rounds(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    store, log = folder / "queue.db", folder / "log.db"
    promised: dict[int, tuple[UUID, str]] = {}
    clients = set()
    with Serving(f"sqlite:///{log}") as serving:
        for number in range(count):
            saves = rng.randrange(5, 60)
            seeded = seed * 1_000 + number
            clients.add(run_and_kill(store, serving.port, promised, saves=saves, seed=seeded))
            audit_store(store, promised)
        url = f"landed://127.0.0.1:{serving.port}"
        done = run_to_end("offline", "sync", str(store), "--log", url, "--json")
        assert done.returncode == 0, done.stderr
        serving.stop()
    (client,) = clients
    status = status_of(store)
    assert (status.queued, status.blocked, status.fault) == (0, (), None)
    audit_log(log, client, promised)


@pytest.mark.scenario("SWA-86")
def test_what_a_device_said_is_saved_survives_four_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 4, 1)


@pytest.mark.long
@pytest.mark.scenario("SWA-86")
def test_what_a_device_said_is_saved_survives_fifty_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 50, 2)


@pytest.mark.scenario("SWA-89", "BC-18")
async def test_of_two_processes_only_one_drains(tmp_path: Path) -> None:
    store, log = tmp_path / "queue.db", tmp_path / "log.db"
    key = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
    async with await AsyncQueue.open(store) as queue:
        for number in range(3):
            await queue.enqueue(key, 1, f"{number}".encode())
        sync = ("offline", "sync", str(store), "--log", f"sqlite:///{log}")
        second = await asyncio.to_thread(run_to_end, *sync)
        assert second.returncode == 1
        assert "in use by pid" in second.stderr
        shown = await asyncio.to_thread(run_to_end, "offline", "status", str(store))
        assert "3 queued" in shown.stdout
        async with await connect(f"sqlite:///{log}") as opened:
            assert (await queue.sync(opened)).landed == 3
    second = await asyncio.to_thread(run_to_end, *sync)
    assert (second.returncode, second.stdout) == (0, "0 landed, 0 left\n")
    assert [event.client_seq for event in audit(log).events] == [1, 2, 3]
