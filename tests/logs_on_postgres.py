"""Logs on a real PostgreSQL for tests: one server a process, one schema a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from landed.engines.postgres import OPTIONS
from landed.postgres.dsn import Dsn, parse_dsn
from tests.handling.postgres import Cluster

DATABASE = "logs"


@dataclass
class Place:
    """A running server with a database for logs."""

    cluster: Cluster
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    def on(cls, cluster: Cluster) -> Place:
        """Make the database. Nothing works in the background: what a test sees, a test did."""
        cluster.execute(sql.SQL("ALTER SYSTEM SET autovacuum = off"))
        cluster.execute(sql.SQL("SELECT pg_reload_conf()"))
        cluster.create(name=DATABASE)
        return cls(cluster)

    def new_log(self) -> str:
        """Make room for a log of its own; returns its URL."""
        schema = f"log{next(self._numbers)}"
        with self.admin() as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return self.url(options=f"-csearch_path={schema}")

    def url(self, *, user: str = "postgres", database: str = DATABASE, **options: str) -> str:
        """The URL of a database of this server."""
        query = "".join(f"&{name}={quote(value)}" for name, value in options.items())
        return f"postgresql://{user}@/{database}?host={quote(str(self.cluster.sockets))}{query}"

    def admin(self) -> psycopg.Connection[Any]:
        """A connection of the superuser, on autocommit."""
        return psycopg.connect(self.cluster.conninfo(DATABASE), autocommit=True)


def dsn(url: str) -> Dsn:
    """A URL as an engine takes it."""
    return parse_dsn(url, own=OPTIONS)


def look_into(url: str) -> psycopg.Connection[Any]:
    """A foreign connection to a log's tables, on autocommit."""
    return psycopg.connect(dsn(url).conninfo, autocommit=True)
