"""Projections in PostgreSQL for tests in virtual time: the database's clock follows the simulation.

``now()`` is found by name, so a schema before ``pg_catalog`` in the search path can answer it. What is
tested is the production statements, on a clock that stories can move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest

from landed.ids import ClientId
from landed.postgres.connections import Connections
from landed.postgres.dsn import parse_dsn
from landed.postgres.migrate import migrate
from landed.projections.postgres import PostgresProjection, statements
from landed.projections.postgres.store import SETTINGS
from tests.handling.postgres import Cluster

_CLOCK = """
CREATE SCHEMA hands;
CREATE FUNCTION hands.now() RETURNS timestamptz STABLE LANGUAGE sql AS
    $$ SELECT to_timestamp(current_setting('hands.ms')::float8 / 1000) $$;
"""


class TimedConnections(Connections):
    """Tells the database what time it is before each piece of work; outlives its projections."""

    now_ms: Callable[[], float]

    def _try(self, work: Any, *rest: Any) -> Any:
        def timed(connection: psycopg.Connection[Any]) -> Any:
            connection.execute("SELECT set_config('hands.ms', %s, false)", (str(self.now_ms()),))
            return work(connection)

        return super()._try(timed, *rest)

    def close(self) -> None:
        """It is shared."""

    def close_at_last(self) -> None:
        super().close()


class SharedStates:
    """One database for all projections of a test session; each fleet's has a name of its own."""

    def __init__(self, cluster: Cluster) -> None:
        url = cluster.landed_url(cluster.create())
        self._admin = psycopg.connect(parse_dsn(url).conninfo, autocommit=True)
        self._admin.execute(_CLOCK)
        migrate(self._admin, statements.PART, statements.STEPS)
        self.url = f"{url}&options=-csearch_path%3Dhands,public,pg_catalog"
        self.connections = TimedConnections(parse_dsn(self.url).with_settings(SETTINGS))
        self._names = count(1)

    def name(self) -> str:
        """A projection that no test used before."""
        name = f"story {next(self._names)}"
        self._admin.execute("INSERT INTO landed_projections VALUES (%s, '{}')", (name,))
        return name

    def close(self) -> None:
        self.connections.close_at_last()
        self._admin.close()

    def projection(
        self, name: str, client_id: ClientId, now_ms: Callable[[], float], **options: Any
    ) -> PostgresProjection[Any]:
        self.connections.now_ms = now_ms
        return PostgresProjection(
            self.url,
            name=name,
            client_id=client_id,
            connections=self.connections,
            **{"state_type": int, **options},
        )


@pytest.fixture(scope="session")
def shared_states(postgres_cluster: Cluster) -> Iterator[SharedStates]:
    """A database for projections in virtual time."""
    states = SharedStates(postgres_cluster)
    yield states
    states.close()
