"""What a pool may be told, and what `connect` makes of a URL."""

import asyncio
import os
from random import Random

import pytest

import landed
from landed.client.embedded import EmbeddedLog
from landed.client.options import Address, Consistency, PoolOptions, parse_address
from landed.client.pool import Pool
from landed.connect import connect
from landed.errors import ConfigurationError
from tests.unit.client.node import HostileNode, read, running, scene

WRONG = [
    {"addresses": []},
    {"addresses": "a:1"},
    {"addresses": ["a:1", "A:1"]},
    {"addresses": ["a"]},
    {"addresses": ["a:0"]},
    {"addresses": ["a:65536"]},
    {"addresses": ["a b:1"]},
    {"addresses": ["[a]:1"]},
    {"addresses": ["::1:80"]},
    {"max_connections": 0},
    {"max_connections": -1},
    {"max_connections": 2.5},
    {"max_connections": True},
    {"max_concurrent_dials": 0},
    {"pipeline_depth": 0},
    {"acquire_timeout_s": 0},
    {"connect_timeout_s": -1},
    {"request_timeout_s": float("nan")},
    {"request_timeout_s": float("inf")},
    {"total_timeout_s": 0},
    {"max_connection_age_s": 0},
    {"idle_timeout_s": 30},
    {"busy_retries": -1},
    {"leader_search_timeout_s": -1},
    {"max_request_bytes": 0},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_cannot_work_is_refused_when_it_is_said(wrong):
    with pytest.raises(ConfigurationError):
        PoolOptions(**({"addresses": ["a:1"]} | wrong))


def test_a_long_idle_time_must_be_meant():
    options = PoolOptions(addresses=["a:1"], idle_timeout_s=90, allow_long_idle=True)
    assert options.idle_timeout_s == 90


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Node-1.Example.org:10000", Address("node-1.example.org", 10_000)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("[::1]:80", Address("::1", 80)),
        ("[0:0::1]:80", Address("::1", 80)),
    ],
)
def test_an_address_has_one_spelling(text, address):
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "file:///x",
        "mysql://x",
        "postgresql://u:secret@x/y",
        "landed+tls://a:1",
        "memory://x",
        "sqlite:x",
        "sqlite:///",
        "landed:a:1",
        "landed://",
        "landed://a:1/b",
        "landed://user@a:1",
        "landed://a:x",
        "landed://a:1?no_such_option=1",
        "landed://a:1?busy_retries=many",
        "landed://a:1?address_translator=f",
        "landed://a:1?addresses=b:1",
        "landed://a:1?busy_retries",
        "memory:?no_such_limit=1",
    ],
)
async def test_a_url_that_names_no_log_is_refused_with_what_is_possible(url):
    with pytest.raises(ConfigurationError) as raised:
        await connect(url)
    assert str(raised.value)


async def test_a_url_names_nodes_and_options():
    url = "landed://A,b:1?request_timeout_s=2.5&busy_retries=0&consistency=leader_strict"
    pool = await connect(url, max_connections=3, busy_retries=1)
    assert isinstance(pool, Pool)
    options = pool.options
    assert options.addresses == ("a:10000", "b:1")
    assert (options.request_timeout_s, options.max_connections) == (2.5, 3)
    assert (options.busy_retries, options.consistency) == (1, Consistency.LEADER_STRICT)
    await pool.close()


async def test_memory_is_a_log_in_this_process():
    async with await landed.connect("memory:?cached_heads_max=10") as log:
        assert isinstance(log, EmbeddedLog)
        assert (await log.info()).position == 0


@pytest.mark.real_loop
async def test_a_pool_belongs_to_one_loop():
    pool = Pool(PoolOptions(addresses=["127.0.0.1:1"]), jitter=Random(1))
    with pytest.raises(landed.NotSentError):
        await pool.read(read())

    def elsewhere():
        with pytest.raises(ConfigurationError):
            asyncio.run(pool.read(read()))

    await asyncio.to_thread(elsewhere)
    await pool.close()


async def test_a_pool_belongs_to_one_process(monkeypatch):
    node = HostileNode()
    async with scene(node) as pool:
        await pool.read(read())
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: -1)
            with pytest.raises(ConfigurationError):
                await pool.read(read())
        assert len(node.frames) == 1


async def test_two_names_for_one_address_are_one_node():
    node = HostileNode()
    async with running(node):
        pool = Pool(PoolOptions(addresses=["A:10000"]), jitter=Random(1))
        await pool.read(read())
        assert list(pool.stats()) == ["a:10000"]
        await pool.close()
