"""``landed copy``: a whole log goes from engine to engine, and nothing that can be noticed is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

import landed.engines.postgres.copying
from landed.cli import app as door
from landed.clock import SystemClock
from landed.conformance.trial import A, B, C, Trial, key, leg, write
from landed.connect import open_engine
from landed.engines.postgres.copying import TablesSource
from landed.engines.sqlite.check import verify
from landed.engines.sqlite.copying import FileTarget
from landed.engines.sqlite.file import heads_until, read_meta
from landed.engines.sqlite.pack import Opened, whole_packs
from landed.errors import StorageError
from landed.ids import AggregateKey, ClientId, UserId
from landed.limits import Limits
from landed.log import Busy, Details, GetDetails, SequenceTaken, Write
from tests.integration.accounts_process import CLIENT_ID, Process
from tests.logs_on_postgres import Place, dsn, look_into
from tests.unit.engines.sqlite.logfile import raw

CLIENTS = (A, B, C)
KEYS = [key(n) for n in range(1, 61)]
LONG, TRIMMED, GONE, AGAIN, ON, SHARED = KEYS[:6]
NewLog = Callable[[str], str]


@pytest.fixture
def new_log(tmp_path: Path, request: pytest.FixtureRequest) -> NewLog:
    """A place of this kind where no log is yet."""
    made: list[str] = []

    def new(kind: str) -> str:
        made.append(kind)
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'log{len(made)}.db'}"
        place: Place = request.getfixturevalue("postgres_place")
        return place.new_log()

    return new


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def opened(url: str) -> Trial:
    async def open_again(limits: Limits) -> Any:
        return await open_engine(url, limits=limits, clock=SystemClock())

    trial = Trial(open_again, Limits())
    await trial.start()
    return trial


async def filled(url: str) -> None:
    """A log in which everything has happened that can happen to an aggregate."""
    trial = await opened(url)
    user = UserId(UUID(int=7))
    for seq in range(1, 131):
        await trial.land(write(LONG, seq, client=CLIENTS[seq % 3], user=user if seq % 2 else None))
    for each in (TRIMMED, GONE, AGAIN, ON):
        for seq in (1, 2, 3, 5_900 + each.id.int):
            await trial.land(write(each, seq, seq, value=b"x" * seq))
    await trial.trim(TRIMMED, 4)
    await trial.delete(GONE)
    for again, go_on in ((AGAIN, False), (ON, True)):
        await trial.delete(again, recreate=True, go_on=go_on)
        await trial.land(write(again, 2**30, client=B))
        await trial.land(write(again, 2**63 + 5, client=C, enforce=False))
    for seq in (5, 6):
        for client in CLIENTS:
            await trial.land(write(SHARED, seq, client=client))
    await trial.land(write(SHARED, 2**31, client=B))
    for each in KEYS[6:]:
        await trial.land(write(each, 1, 2, value=b""))
    await trial.close()


async def told(trial: Trial) -> dict[str, Any]:
    """All that a reader, and a writer who retries, can learn of a log."""
    found: dict[str, Any] = {"feed": await trial.entries()}
    for each in KEYS:
        details = await trial.ask(GetDetails(each))
        found[f"details {each}"] = details
        if isinstance(details, Details) and not details.is_deleted:
            found[f"batches {each}"] = await trial.batches(each, details.first_version)
        for client in CLIENTS:
            found[f"mark {each} {client}"] = await mark_of(trial, each, client)
    return found


async def mark_of(trial: Trial, each: AggregateKey, client: ClientId) -> int | None:
    """What a write that repeats the first sequence is told; changes nothing."""
    impossible = leg(key(999), 1, at=2**40)
    answer = await trial.ask(Write(client, (leg(each, 1), impossible)))
    return answer.highest_seq if isinstance(answer, SequenceTaken) else 0


async def look(url: str) -> dict[str, Any]:
    trial = await opened(url)
    try:
        return await told(trial)
    finally:
        await trial.close()


def copy(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = door.run(["copy", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    "kinds",
    [("sqlite", "sqlite"), ("sqlite", "postgres", "sqlite"), ("postgres", "postgres", "sqlite")],
    ids="-".join,
)
def test_a_copy_tells_what_its_original_tells_and_goes_on_from_there(kinds, new_log, capsys):
    urls = [new_log(kind) for kind in kinds]
    asyncio.run(filled(urls[0]))
    original = asyncio.run(look(urls[0]))
    assert original[f"mark {SHARED} {B}"] == 2**31
    assert original[f"mark {TRIMMED} {A}"] == 5902
    identities = []
    for source, target in pairwise(urls):
        code, out, err = copy(capsys, source, target, "--json")
        assert (0, "") == (code, err)
        found = json.loads(out)
        identities.append(found["identity"])
        assert found["differences"] == []
        assert found["position"] == original["feed"][-1].position
        assert found["entries"] == len(original["feed"])
        assert found["aggregates"] == len(KEYS)
        if target.startswith("sqlite"):
            assert verify(path_of(target)).findings == []
            with raw(path_of(target)) as file:
                until = heads_until(file, read_meta(file, path_of(target)), path_of(target))
                anchors = file.execute("SELECT version FROM anchors ORDER BY version").fetchall()
            assert until == found["position"], "nothing is told anew when it is opened"
            assert anchors == [(64,), (128,)], "no walk to a version is long"
    assert asyncio.run(look(urls[-1])) == original

    async def go_on() -> None:
        trial = await opened(urls[-1])
        identity = trial.engine.identity
        assert {"log_id": str(identity.log_id), "restore_epoch": identity.restore_epoch} == (
            identities[-1]
        )
        assert await trial.land(write(LONG, 500, client=B)) == 131
        assert await trial.land(write(ON, 2**30 + 1, client=B)) == 7
        await trial.trim(LONG, 100)
        later = await trial.entries(after=original["feed"][-1].position)
        assert [entry.key for entry in later] == [LONG, ON, LONG]
        await trial.reclaim()
        await trial.restart()
        assert await trial.versions(LONG, 100) == list(range(100, 132))
        assert await mark_of(trial, LONG, B) == 500
        await trial.close()

    asyncio.run(go_on())
    assert [one["restore_epoch"] for one in identities] == list(range(1, len(kinds)))
    assert len({one["log_id"] for one in identities}) == 1
    if urls[-1].startswith("sqlite"):
        assert verify(path_of(urls[-1])).findings == []


@pytest.mark.parametrize("kinds", [("sqlite", "postgres"), ("postgres", "sqlite")], ids="-".join)
def test_a_copy_that_is_killed_goes_on_and_is_no_log_before(kinds, new_log, capsys):
    source, target = map(new_log, kinds)
    asyncio.run(filled(source))
    reached = []
    for steps in (4, 22, 14, 24):
        arguments = [sys.executable, "-m", "tests.integration.copy_child", str(steps)]
        done = subprocess.run(
            [*arguments, source, target], capture_output=True, timeout=60, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        if kinds[1] == "sqlite":
            assert not path_of(target).exists()
        else:
            with pytest.raises(Exception, match="unfinished copy of log"):
                asyncio.run(opened(target))
            with look_into(target) as connection:
                row = connection.execute("SELECT count(*) FROM landed_log_entries").fetchone()
            reached.append(row[0])
    assert reached == sorted(reached)
    before = asyncio.run(look(source))
    code, out, _ = copy(capsys, source, target)
    assert code == 0
    assert "gone on with behind position" in out
    assert asyncio.run(look(target)) == before


def test_a_copy_that_is_cut_off_at_its_very_end_is_whole(new_log, capsys, monkeypatch):
    source = new_log("sqlite")
    asyncio.run(filled(source))
    before = asyncio.run(look(source))

    def cut(*_: object) -> None:
        raise StorageError("cut off")

    for kind, where, name in (
        ("sqlite", Path, "rename"),
        ("postgres", landed.engines.postgres.copying, "settle_place"),
    ):
        target = new_log(kind)
        with monkeypatch.context() as cutting:
            cutting.setattr(where, name, cut)
            assert copy(capsys, source, target)[0] == 1
        code, out, err = copy(capsys, source, target, "--json")
        if kind == "sqlite":
            assert json.loads(out)["identity"]["restore_epoch"] == 1
        else:
            assert code == 2
            assert "there is a log in" in err
        assert asyncio.run(look(target)) == before


def test_what_dies_in_the_source_between_two_attempts_is_dead_in_the_copy(new_log, capsys):
    source, target = new_log("postgres"), new_log("sqlite")
    asyncio.run(filled(source))
    arguments = [sys.executable, "-m", "tests.integration.copy_child", "12", source, target]
    assert subprocess.run(arguments, timeout=60, check=False).returncode == -signal.SIGKILL

    async def go_on() -> None:
        trial = await opened(source)
        await trial.trim(LONG, 120)
        await trial.reclaim()
        await trial.close()

    asyncio.run(go_on())
    assert copy(capsys, source, target)[0] == 0
    assert verify(path_of(target)).findings == []
    kept = asyncio.run(look(target))
    assert kept == asyncio.run(look(source))
    with raw(path_of(target)) as file:
        packs = [Opened(row) for row in whole_packs(file, 0)]
    assert sum(len(list(pack.entries())) for pack in packs) == len(kept["feed"])


def test_a_difference_is_told_with_its_place_and_no_log_is_made(new_log, capsys, monkeypatch):
    source, target = new_log("sqlite"), new_log("sqlite")
    asyncio.run(filled(source))
    add = FileTarget.add_entries

    def wrong(self, entries):
        changed = [
            entry._replace(server_ms=entry.server_ms + 1) if entry.position == 50 else entry
            for entry in entries
            if entry.position != 60
        ]
        add(self, changed)

    monkeypatch.setattr(FileTarget, "add_entries", wrong)
    lost = FileTarget.add_marks
    monkeypatch.setattr(FileTarget, "add_marks", lambda self, marks: lost(self, marks[:-1]))
    code, out, _ = copy(capsys, source, target)
    assert code == 1
    assert "the entry at position 50 is another one in the copy" in out
    assert "the entry at position 60 is missing in the copy" in out
    assert f"a mark of aggregate number {len(KEYS)} is missing in the copy" in out
    assert not path_of(target).exists()


def test_nothing_is_copied_over_a_log_or_into_the_copy_of_another(new_log, capsys):
    one, two = new_log("sqlite"), new_log("sqlite")
    there, here = new_log("postgres"), new_log("postgres")
    asyncio.run(filled(one))
    asyncio.run(filled(two))
    asyncio.run(filled(there))
    for target in (two, there):
        code, _, err = copy(capsys, one, target)
        assert code == 2
        assert "nothing is copied over a log" in err
    arguments = [sys.executable, "-m", "tests.integration.copy_child", "3", one, here]
    assert subprocess.run(arguments, timeout=60, check=False).returncode == -signal.SIGKILL
    code, _, err = copy(capsys, two, here)
    assert code == 2
    assert "the unfinished copy of another log" in err
    code, _, err = copy(capsys, here, new_log("sqlite"))
    assert code == 2
    assert "only the unfinished copy" in err


def test_a_file_in_use_is_not_copied_and_a_database_s_writers_are_told_busy(
    new_log, capsys, monkeypatch
):
    source = new_log("sqlite")

    async def held() -> None:
        trial = await opened(source)
        code, _, err = copy(capsys, source, new_log("sqlite"))
        assert code == 1
        assert "stop that process first" in err
        await trial.close()

    asyncio.run(held())
    url = new_log("postgres")
    asyncio.run(filled(url))

    async def busy() -> None:
        async def open_again(limits: Limits) -> Any:
            quick = "&lock_wait_s=0.05"
            return await open_engine(url + quick, limits=limits, clock=SystemClock())

        trial = Trial(open_again, Limits())
        await trial.start()
        tables = TablesSource(dsn(url))
        try:
            assert await trial.ask(write(LONG, 1000)) == Busy()
        finally:
            tables.close()
        assert await trial.land(write(LONG, 1000)) == 131
        await trial.close()

    asyncio.run(busy())


def test_what_is_no_place_for_a_copy_is_one_line(new_log, capsys, tmp_path):
    source = new_log("sqlite")
    asyncio.run(filled(source))
    for arguments, text in (
        ((source, source), "are the same"),
        ((source, "memory:"), "a log is copied from and to"),
        ((source, "landed://host"), "a log is copied from and to"),
        ((f"sqlite:///{tmp_path}/none.db", new_log("sqlite")), "there is no log"),
        ((new_log("postgres"), new_log("sqlite")), "there is no log"),
    ):
        code, out, err = copy(capsys, *arguments)
        assert (2, "") == (code, out)
        assert text in err
        assert err.count("\n") == 1


def test_a_request_repeated_after_the_move_gets_its_original_answer(new_log, capsys, postgres_url):
    """One process on each log, and a shared projection that remembers the log as it was."""
    places = [new_log("sqlite"), new_log("postgres")]
    answers = []
    for at, url in enumerate(places):
        with Process(
            *("accounts", "--listen", "127.0.0.1:0", "--log", url, "--client-id", CLIENT_ID),
            *("--projection", postgres_url),
            ready="landed accounts: listening on http://127.0.0.1:",
        ) as service:
            if at:
                answers.append(deposit(service.url, "first"))
                answers.append(deposit(service.url, "third"))
            else:
                answers += [deposit(service.url, "first"), deposit(service.url, "second")]
            assert service.stop()[0] == 0
        if not at:
            assert copy(capsys, *places)[0] == 0
    assert answers == [5, 10, 5, 15]


def deposit(service: str, key: str) -> int:
    """Deposit 5 cents; the balance that is told."""
    answer = httpx.post(
        f"{service}/api/accounts/{UUID(int=1)}/deposit",
        json={"amountCents": 5},
        headers={"Idempotency-Key": key},
    )
    assert answer.status_code == 200, answer.text
    return int(answer.json()["balanceCents"])
