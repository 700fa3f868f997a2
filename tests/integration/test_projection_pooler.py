"""A shared projection behind pgbouncer in transaction mode: sessions are handed on, nothing leaks."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from landed.errors import ConfigurationError
from landed.projections.postgres import PostgresProjection
from tests.integration.test_postgres_pooler import PGBOUNCER, pooler
from tests.logs_on_postgres import DATABASE, Place
from tests.unit.projections.test_port import CLIENT, look, met, step

ROLE = "pooled_states"


@pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer here: apt-get install pgbouncer")
async def test_a_projection_behind_a_pooler_keeps_nothing_in_a_session(
    postgres_place: Place, tmp_path: Path
) -> None:
    with postgres_place.admin() as admin:
        admin.execute(f"CREATE ROLE {ROLE} LOGIN")  # type: ignore[arg-type]
        admin.execute(f"CREATE SCHEMA {ROLE} AUTHORIZATION {ROLE}")  # type: ignore[arg-type]
        admin.execute(f"ALTER ROLE {ROLE} SET search_path = {ROLE}")  # type: ignore[arg-type]
    options: dict[str, Any] = {"name": "p", "client_id": CLIENT, "state_type": int}
    with pooler(postgres_place, ROLE, tmp_path) as port:
        url = f"postgresql://{ROLE}@127.0.0.1:{port}/{DATABASE}"
        with pytest.raises(ConfigurationError, match=r"add \?prepare=off"):
            async with PostgresProjection(url, **options).running():
                raise AssertionError("it must not start")
        async with AsyncExitStack() as stack:
            both = [PostgresProjection(f"{url}?prepare=off", **options) for _ in range(2)]
            for one in both:
                await stack.enter_async_context(one.running())
                await met(one)
            for version in range(1, 31):
                one, other = both[version % 2], both[(version + 1) % 2]
                answers = ((version, 9e4),)
                await one.record([step(base=version - 1, version=version, answers=answers)])
                view = await look(other, event=version)
                assert (view.version, view.answered is not None) == (version, True)
            with psycopg.connect(
                f"host=127.0.0.1 port={port} user={ROLE} dbname={DATABASE}"
            ) as third:
                settings = third.execute(
                    "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),"
                    " current_setting('statement_timeout')"
                ).fetchone()
            assert settings == ("on", "0", "0")
