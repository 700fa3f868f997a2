"""Folded states in PostgreSQL: one statement a step, and replicas that never lose each other's work."""

from __future__ import annotations

import asyncio
import re
import tempfile
from contextlib import AsyncExitStack
from typing import IO, Any
from uuid import UUID

import psycopg
import pytest

from landed.errors import ConfigurationError, StorageError, StorageForeignError
from landed.ids import ClientId
from landed.postgres.connections import Connections
from landed.postgres.dsn import parse_dsn
from landed.projections import Answered, Entry
from landed.projections.postgres import PostgresProjection, rebuild, store
from tests.unit.projections.test_port import CLIENT, DOMAIN, id_of, key, look, met, step

CONFIG = {"windowSeconds": 90.0}


def open_on(url: str, **options: Any) -> PostgresProjection[int]:
    return PostgresProjection(
        url, **{"name": "p", "client_id": CLIENT, "state_type": int, "config": CONFIG, **options}
    )


def admin(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(parse_dsn(url).conninfo, autocommit=True)


class Traced(Connections):
    """Counts what goes over the wire."""

    def __init__(self, url: str, file: IO[str]) -> None:
        super().__init__(parse_dsn(url).with_settings(store.SETTINGS), size=1)
        self.file = file

    def _try(self, work: Any, *rest: Any) -> Any:
        def traced(connection: psycopg.Connection[Any]) -> Any:
            connection.pgconn.trace(self.file.fileno())
            try:
                return work(connection)
            finally:
                connection.pgconn.untrace()

        return super()._try(traced, *rest)

    def statements(self) -> int:
        """Statements sent since the last look."""
        self.file.seek(0)
        sent = re.findall(r"\tF\t\d+\t(?:Query|Execute)\b", self.file.read())
        self.file.seek(0)
        self.file.truncate()
        return len(sent)


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-54")
async def test_every_step_is_one_statement(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115  # the stack's
        traced = Traced(postgres_url, file)
        projection = open_on(postgres_url, connections=traced)
        await stack.enter_async_context(projection.running())
        await met(projection)
        traced.statements()
        entries = tuple(Entry(id_of(n), Answered(1, 1, b"f"), 9e4) for n in range(100))
        for number in range(1, 8):  # past the point at which the driver prepares them
            await projection.load((key(number), key(99)), id_of(1), DOMAIN)
            assert traced.statements() == 1, "cursor and answer are one look"
            await projection.advance(step(number, entries=entries))
            assert traced.statements() == 1, "a fold with all its answers"
            await projection.record([step(number, base=1, version=2), step(99 - number)])
            assert traced.statements() == 1, "all legs"
            await projection.raise_floor(key(number), 5)
            assert traced.statements() == 1


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-54")
async def test_no_look_sees_a_cursor_past_an_event_without_its_answer(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        writer, reader = [open_on(postgres_url) for _ in range(2)]
        for one in (writer, reader):
            await stack.enter_async_context(one.running())
            await met(one)
        last = 150

        async def write() -> None:
            for version in range(1, last + 1):
                answers = ((version, 90_000.0),)
                await writer.record([step(base=version - 1, version=version, answers=answers)])

        async def watch() -> int:
            looks, version = 0, 0
            while version < last:
                view = await look(reader, event=version + 1)
                assert view.version <= version or view.answered is not None
                looks, version = looks + 1, max(version, view.version)
            return looks

        _, looks = await asyncio.gather(write(), watch())
        assert looks > 1


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-57")
async def test_replicas_that_fold_one_backlog_at_once_make_equal_rows_and_no_deadlock(
    postgres_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        replicas = [open_on(postgres_url) for _ in range(3)]
        for one in replicas:
            await stack.enter_async_context(one.running())
            await met(one)

        def page(base: int, version: int, order: int) -> Any:
            numbers = range(base + 1, version + 1)[::order]
            entries = tuple(Entry(id_of(n), Answered(n * 10, n, b"f"), 9e4) for n in numbers)
            return step(base=base, version=version, entries=entries)

        async def fold(one: Any, order: int) -> list[bool]:
            return [
                await one.advance(page(base, base + 1000, order)) for base in range(0, 4000, 1000)
            ]

        async def transfer(one: Any) -> None:
            for n in range(40):
                await one.record([step(2, base=n, version=n + 1), step(3, base=n, version=n + 1)])

        orders = (1, -1, 1)
        taken = await asyncio.gather(
            *[fold(one, order) for one, order in zip(replicas, orders, strict=True)],
            *[transfer(one) for one in replicas],
        )
        assert [True] * 12 == [is_taken for one in taken[:3] for is_taken in one or ()]
        for n in range(1, 4001, 40):
            view = await look(replicas[0], event=n)
            assert (view.version, view.answered) == (4000, Answered(n * 10, n, b"f"))
        assert (await look(replicas[0], 2)).version == 40


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-52")
@pytest.mark.parametrize("kind", ["record", "advance"])
async def test_a_step_that_waited_for_a_row_looks_at_what_it_is_now(
    postgres_url: str, kind: str
) -> None:
    projection = open_on(postgres_url)
    async with projection.running():
        await (await met(projection)).advance(step())
        late = step(base=1, version=2, answers=((2, 9e4),))
        with admin(postgres_url) as connection:
            with connection.transaction():
                connection.execute("UPDATE landed_views SET version = 5")
                take: Any = (
                    projection.record([late]) if kind == "record" else projection.advance(late)
                )
                task = asyncio.create_task(take)
                async with asyncio.timeout(10):
                    with admin(postgres_url) as other:
                        while not other.execute(
                            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                            " AND datname = current_database()"
                        ).fetchone():
                            await asyncio.sleep(0.005)
            await task
        view = await look(projection, event=2)
        assert (view.version, view.answered) == (5, Answered(20, 2, b"f"))


@pytest.mark.scenario("SWA-46")
async def test_a_sweep_takes_expired_answers_only_and_in_bounded_pieces(
    shared_states, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SWEEP_ROWS", 10)
    now = [1_000.0]
    projection = shared_states.projection(shared_states.name(), CLIENT, lambda: now[0])
    await met(projection)
    await projection.advance(step(answers=tuple((n, 50.0) for n in range(35))))
    now[0] += 60.0
    await projection.advance(step(version=2, answers=((7, 50.0), (99, 50.0))))
    assert await projection.sweep() >= 34
    ((left,),) = await projection._ask(
        "SELECT count(*) FROM landed_answers WHERE fold = %(fold)s", {"fold": projection._fold}
    )
    assert left == 2, "the renewed one stays"
    assert (await look(projection, event=7)).answered == Answered(20, 2, b"f")
    assert (await look(projection, event=99)).version == 2


@pytest.mark.real_loop
@pytest.mark.scenario("SWA-76")
async def test_replicas_that_disagree_do_not_run_on_one_database(postgres_url: str) -> None:
    async with open_on(postgres_url).running():
        other = open_on(postgres_url, config={"windowSeconds": 60.0})
        with pytest.raises(ConfigurationError, match=r"60\.0 here and 90\.0 there"):
            async with other.running():
                raise AssertionError("it must not start")
        accepted = open_on(postgres_url, config={"windowSeconds": 60.0}, is_config_accepted=True)
        async with accepted.running():
            pass
        with pytest.raises(ConfigurationError, match="90"):
            async with open_on(postgres_url).running():
                raise AssertionError("it must not start")
        async with open_on(postgres_url, name="another").running():
            pass


@pytest.mark.real_loop
async def test_another_client_id_or_a_rebuild_starts_from_nothing_and_disturbs_nobody(
    postgres_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        one = open_on(postgres_url)
        rotated = open_on(postgres_url, client_id=ClientId(UUID(int=78)))
        for it in (one, rotated):
            await stack.enter_async_context(it.running())
        await (await met(one)).advance(step())
        assert (await look(await met(rotated))).version == 0
        assert rebuild(postgres_url, "p") == 2
        assert (await look(one)).answered is not None, "a replica at work goes on"
        assert (await look(await met(one))).version == 0
        with pytest.raises(ConfigurationError, match="there are: p"):
            rebuild(postgres_url, "q")


async def test_housekeeping_never_turns_back_to_a_log_that_was_left(
    shared_states, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = shared_states.projection(shared_states.name(), CLIENT, lambda: 1_000.0)
    await (await met(projection, log=1)).advance(step())
    ask, go_on = projection._ask, asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        answer = await ask(*arguments, **options)
        await go_on.wait()
        return answer

    monkeypatch.setattr(projection, "_ask", slow)
    keeping = asyncio.create_task(projection._find_fold())
    await asyncio.sleep(1)
    monkeypatch.setattr(projection, "_ask", ask)
    await met(projection, log=2)
    go_on.set()
    await keeping
    assert (await look(projection)).version == 0
    assert (await look(await met(projection, log=1))).version == 1


@pytest.mark.real_loop
async def test_states_of_another_shape_are_named_and_not_taken(postgres_url: str) -> None:
    async with open_on(postgres_url).running() as _, AsyncExitStack() as stack:
        one: Any = open_on(postgres_url)
        other: Any = open_on(postgres_url, state_type=dict)
        for it in (one, other):
            await stack.enter_async_context(it.running())
            await met(it)
        await one.advance(step())
        with pytest.raises(StorageForeignError, match="landed projection rebuild"):
            await look(other)


@pytest.mark.real_loop
async def test_a_superseded_fold_is_swept_away_once_it_was_not_met_for_a_day(
    postgres_url: str,
) -> None:
    projection = open_on(postgres_url)
    async with projection.running():
        await (await met(projection)).advance(step())
        await (await met(projection, epoch=1)).advance(step())
        with admin(postgres_url) as connection:
            await asyncio.to_thread(_sweep_folds, connection)
            assert connection.execute("SELECT count(*) FROM landed_folds").fetchone() == (2,)
            connection.execute(
                "UPDATE landed_folds SET met_at = met_at - interval '2 days'"
                " WHERE restore_epoch = 0"
            )
            _sweep_folds(connection)
            _sweep_folds(connection)
            assert connection.execute("SELECT count(*) FROM landed_views").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM landed_folds").fetchone() == (1,)
        assert (await look(projection)).version == 1


def _sweep_folds(connection: psycopg.Connection[Any]) -> None:
    connection.execute(store.statements.SWEEP_FOLDS, {"limit": 100})


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ("UPDATE landed_schema SET number = 99", "newer version"),
        ("ALTER DATABASE {} SET default_transaction_read_only = on", "takes no writes"),
    ],
)
async def test_a_database_that_is_no_use_is_one_sentence(
    postgres_url: str, harm: str, word: str
) -> None:
    async with open_on(postgres_url).running():
        pass
    with admin(postgres_url) as connection:
        connection.execute(harm.format(connection.info.dbname))  # type: ignore[arg-type]
    with pytest.raises((ConfigurationError, StorageError), match=word):
        async with open_on(postgres_url).running():
            raise AssertionError("it must not start")


@pytest.mark.real_loop
async def test_a_role_without_rights_is_told_so(postgres_url: str) -> None:
    with admin(postgres_url) as connection:
        connection.execute("CREATE ROLE nobody_much LOGIN")
    try:
        weak = open_on(postgres_url.replace("postgres@", "nobody_much@"))
        with pytest.raises(StorageError, match="lacks a right"):
            async with weak.running():
                raise AssertionError("it must not start")
    finally:
        with admin(postgres_url) as connection:
            connection.execute("DROP ROLE nobody_much")


@pytest.mark.real_loop
async def test_a_row_that_is_locked_too_long_is_a_failure_that_may_be_tried_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {"statement_timeout": "200", "lock_timeout": "100"}
    monkeypatch.setattr(store, "SETTINGS", {**store.SETTINGS, **bounds})
    projection = open_on(postgres_url)
    async with projection.running():
        await (await met(projection)).advance(step())
        with admin(postgres_url) as connection, connection.transaction():
            connection.execute("SELECT * FROM landed_views FOR UPDATE")
            with pytest.raises(StorageError, match="lock was not to be had") as refused:
                await projection.record([step(base=1, version=2)])
            assert refused.value.is_outcome_known
        await projection.record([step(base=1, version=2)])
        assert (await look(projection)).version == 2
        # A statement that runs too long, whatever it waits for.
        with pytest.raises(StorageError, match="statement_timeout"):
            await projection._ask("SELECT pg_sleep(5)", {})


@pytest.mark.real_loop
async def test_a_session_that_was_ended_is_replaced_and_the_step_taken(postgres_url: str) -> None:
    projection = open_on(postgres_url)
    async with projection.running():
        await met(projection)
        for version in range(1, 4):
            with admin(postgres_url) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            await projection.record([step(base=version - 1, version=version)])
        assert (await look(projection)).version == 3
