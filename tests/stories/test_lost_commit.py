"""The connection to the disk breaks around COMMIT, and nobody can say what the file holds.

The engine neither runs the change again by itself nor calls it a failure: it stops, the caller is
told that nobody knows, and the same request sent again after a restart finds out.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit, account_key
from landed.client.embedded import EmbeddedLog
from landed.clock import SystemClock
from landed.commands import Done, How, Policy, SafeLoop, ServiceIdentity, Unresolved
from landed.engines.sqlite import SqliteStore, open_sqlite
from landed.errors import StorageError
from landed.limits import Limits
from landed.log import Read

IDENTITY = ServiceIdentity.from_config("0d9e9cd1-0000-4000-8000-000000000014")
ACCOUNT = UUID(int=14)
OPENING, KEY = UUID(int=1), UUID(int=2)


async def deposit(engine, cents: int, key: UUID):
    loop = SafeLoop(
        EmbeddedLog(engine), identity=IDENTITY, domain=Accounts(), policy=Policy(attempts_max=2)
    )
    return await loop.execute(command_of(Deposit(ACCOUNT, cents), key))


@pytest.mark.scenario("BC-14")
@pytest.mark.parametrize("is_written", [True, False], ids=["committed", "not committed"])
async def test_a_commit_whose_answer_is_lost_is_settled_by_the_same_key(
    tmp_path, monkeypatch, is_written: bool
):
    path = tmp_path / "log.sqlite"
    commits = []
    commit = SqliteStore.commit

    def lose_the_answer(store, group):
        commits.append(len(group))
        if is_written:
            commit(store, group)
        raise StorageError("the answer to COMMIT is lost", is_outcome_known=False)

    engine = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    assert isinstance(await deposit(engine, 100_000, OPENING), Done)
    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "commit", lose_the_answer)
        outcome = await deposit(engine, 50_000, KEY)
        assert isinstance(outcome, Unresolved), "neither a success nor a failure"
        assert [1] == commits, "nothing was run again behind the caller's back"
        assert engine.is_stopped
    await engine.close()

    engine = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    again = await deposit(engine, 50_000, KEY)
    assert isinstance(again, Done)
    assert (How.ORIGINAL if is_written else How.FRESH) is again.how
    assert 150_000 == again.result.balance_cents
    batches = [batch async for batch in EmbeddedLog(engine).read_all(Read(account_key(ACCOUNT)))]
    assert [OPENING, KEY] == [event.event_id for batch in batches for event in batch.events]
    await engine.close()
