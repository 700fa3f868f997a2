"""A pooler in transaction mode between the log and its server: pgbouncer.

Without prepared statements, and with them although this one hands sessions on without keeping any (it
would from version 1.21 on, if told to): the engine notices and does without.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from landed.clock import SystemClock
from landed.conformance.trial import expect, key, write
from landed.engines.ask import ask, ask_all
from landed.engines.postgres import open_postgres
from landed.limits import Limits
from landed.log import Busy, FeedPage, FeedRead, Landed, Read
from tests.handling.postgres import NOBODY
from tests.logs_on_postgres import DATABASE, Place, dsn

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooler(place: Place, role: str, path: Path) -> Iterator[int]:
    """pgbouncer on a free port, with two server connections for everybody."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    (path / "users").write_text(f'"{role}" ""\n')
    (path / "pgbouncer.ini").write_text(
        f"[databases]\n{DATABASE} = host={place.cluster.sockets} dbname={DATABASE} user={role}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\n"
        f"auth_file = {path / 'users'}\npool_mode = transaction\ndefault_pool_size = 2\n"
        f"unix_socket_dir =\nlogfile = {path / 'log'}\nignore_startup_parameters = extra_float_digits\n",
    )
    path.chmod(0o777)
    for parent in path.parents:
        if parent != Path("/tmp") and str(parent).startswith("/tmp"):
            parent.chmod(0o755)
    user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
    assert PGBOUNCER is not None
    process = subprocess.Popen([PGBOUNCER, "-q", str(path / "pgbouncer.ini")], **user)  # type: ignore[call-overload]
    try:
        conninfo = f"host=127.0.0.1 port={port} user={role} dbname={DATABASE}"
        for _ in range(200):
            try:
                psycopg.connect(conninfo).close()
            except psycopg.OperationalError:
                assert process.poll() is None, (path / "log").read_text()
            else:
                break
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer here: apt-get install pgbouncer")
@pytest.mark.parametrize("prepare", ["off", "on"])
async def test_a_log_behind_a_pooler_keeps_its_promises(
    postgres_place: Place, tmp_path: Path, prepare: str
) -> None:
    role = f"pooled_{prepare}"
    with postgres_place.admin() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")  # type: ignore[arg-type]
        admin.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")  # type: ignore[arg-type]
        admin.execute(f"ALTER ROLE {role} SET search_path = {role}")  # type: ignore[arg-type]
    limits = replace(Limits(), lock_wait_s=0.2)
    with pooler(postgres_place, role, tmp_path) as port:
        url = f"postgresql://{role}@127.0.0.1:{port}/{DATABASE}?prepare={prepare}"
        one = await open_postgres(dsn(url), limits=limits, clock=SystemClock())
        two = await open_postgres(dsn(url), limits=limits, clock=SystemClock())
        for seq in range(1, 11):
            answers = [ask(engine, write(key(n), seq)) for engine in (one, two) for n in (1, 2)]
            told = await asyncio.gather(*answers)
            if any(isinstance(answer, Busy) for answer in told):
                assert prepare == "on", "only a statement that got lost may make it busy"
                told += [await ask(one, write(key(n), seq)) for n in (1, 2)]
            assert sum(isinstance(answer, Landed) for answer in told) == 2, told
        page = await ask(one, Read(key(1)))
        assert [batch.version for batch in page.batches] == list(range(1, 11))  # type: ignore[union-attr]
        assert len(expect(FeedPage, await ask(two, FeedRead(0))).entries) == 20
        with postgres_place.admin() as foreign:
            foreign.execute("SELECT pg_advisory_lock(%s)", (one._committer._lock_of(key(1)),))
            told = await ask_all(one, [write(key(1), 11), write(key(2), 11)])
            assert told == [Busy(), Landed((11,))], "timeouts hold behind it as well"
        await one.close()
        await two.close()
