"""``landed serve`` and ``landed.connect`` on PostgreSQL."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

import landed
from landed.conformance.trial import key, write
from landed.errors import ConfigurationError, SequenceTakenError
from landed.log import FeedRead, Read
from tests.integration.process import Serving, run_to_end
from tests.logs_on_postgres import Place


async def test_two_servers_and_an_embedded_log_share_one_log(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    with Serving(url) as first, Serving(url) as second:
        servers = [first, second]
        async with (
            await landed.connect(f"landed://127.0.0.1:{servers[0].port}") as one,
            await landed.connect(f"landed://127.0.0.1:{servers[1].port}") as two,
            await landed.connect(url, feed_poll_s=0.01) as here,
        ):
            assert (await one.info()).log_id == (await here.info()).log_id
            for seq in range(1, 10, 3):
                for at, log in enumerate((one, two, here)):
                    landed_at = await log.write(write(key(), seq + at, at=seq + at - 1))
                    assert landed_at.versions == (seq + at,)
            with pytest.raises(SequenceTakenError):
                await two.write(write(key(), 9, at=9))
            for log in (one, two, here):
                assert len((await log.read(Read(key()))).batches) == 9
            waiting = asyncio.ensure_future(
                two.feed(FeedRead((await here.info()).position, wait_ms=20_000))
            )
            await here.write(write(key(2), 1))
            assert [entry.key for entry in (await waiting).entries] == [key(2)]
        for server in servers:
            code, errors = server.stop()
            assert code == 0
            assert "not the loss of its disk" in errors, "what an acknowledgement means is told"


def test_a_server_that_cannot_begin_says_why_in_one_line(postgres_place: Place) -> None:
    ended = run_to_end("serve", "--engine", postgres_place.url(database="nowhere"))
    assert ended.returncode == 1
    assert "does not exist" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


async def test_options_of_a_url_are_read_in_one_place(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    for wrong in ("nonsense=1", "lock_wait_s=soon", "accept_data_loss=perhaps"):
        with pytest.raises(ConfigurationError):
            await landed.connect(f"{url}&{wrong}")
    async with await landed.connect(
        f"{url}&lock_wait_s=0.5&application_name={quote('a shop')}"
    ) as log:
        assert (await log.write(write(key(), 1))).versions == (1,)
        with postgres_place.admin() as admin:
            named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a shop'"
            assert admin.execute(named).fetchone() != (0,)
