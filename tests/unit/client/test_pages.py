"""Reading on and on: every batch once, in order, whatever breaks between the pages."""

import asyncio

import pytest

from landed.client.pages import RESUMES_MAX
from landed.errors import (
    AggregateMissingError,
    ConnectionLostError,
    RemoteProtocolError,
    TrimmedError,
)
from landed.log import BelowFloor, Landed, Page, Read
from tests.unit.client.node import (
    HostileNode,
    batch,
    error,
    fin,
    key,
    read,
    reply,
    rst,
    scene,
    stats,
    truncate,
    write,
)

PAGE = 3
LAST = 5 * PAGE


def paged(line, received):
    """Fifteen batches, three a page."""
    request = received.request
    if not isinstance(request, Read):
        return reply()(line, received)
    start = request.filters.from_version
    batches = tuple(batch(v, b"x") for v in range(start, min(start + PAGE, LAST + 1)))
    next_version = start + PAGE if start + PAGE <= LAST else None
    return reply(Page(batches, next_version))(line, received)


async def versions(batches):
    return [batch.version async for batch in batches]


@pytest.mark.scenario("CPA-48")
async def test_a_pool_of_one_connection_writes_while_it_reads_on():
    node = HostileNode(default=paged)
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        seen = []
        async for each in pool.read_all(Read(key(1))):
            seen.append(each.version)
            if each.version % PAGE == 0:
                assert await pool.write(write()) == Landed((1,))
        assert seen == list(range(1, LAST + 1))
        assert (node.writes, node.peak) == (5, 1)


@pytest.mark.scenario("CPA-49")
@pytest.mark.parametrize("step", [truncate(60, fin()), truncate(60, rst()), fin()])
async def test_a_connection_cut_in_the_middle_of_a_page_loses_and_doubles_nothing(step):
    cuts = [2, 4]

    def cutting(line, received):
        page = (received.request.filters.from_version - 1) // PAGE
        if page in cuts:
            cuts.remove(page)
            return step(line, received)
        return paged(line, received)

    node = HostileNode(default=cutting)
    async with scene(node) as pool:
        assert await versions(pool.read_all(Read(key(1)))) == list(range(1, LAST + 1))
        assert (len(node.lines), cuts) == (3, [])


async def test_a_node_that_breaks_every_connection_is_reported_in_the_end():
    node = HostileNode(default=fin())
    async with scene(node) as pool:
        with pytest.raises(ConnectionLostError):
            await versions(pool.read_all(Read(key(1))))
        assert len(node.frames) == RESUMES_MAX + 1


@pytest.mark.scenario("CPA-50")
async def test_an_empty_page_with_a_cursor_goes_on():
    pages = [Page((), 7), Page((batch(7, b"x"), batch(8, b"x")), None)]
    node = HostileNode(script=[[reply(page) for page in pages]])
    async with scene(node) as pool:
        assert await versions(pool.read_all(Read(key(1)))) == [7, 8]
        assert [frame.request.filters.from_version for frame in node.frames] == [1, 7]


@pytest.mark.scenario("CPA-50")
@pytest.mark.parametrize("cursor", [4, 3])
async def test_a_cursor_that_does_not_advance_is_the_nodes_fault(cursor):
    node = HostileNode(default=reply(Page((), cursor)))
    async with scene(node) as pool:
        with pytest.raises(RemoteProtocolError):
            await versions(pool.read_all(read(1, from_version=4)))
        assert len(node.frames) == 1


async def test_batches_seen_before_are_dropped():
    pages = [
        Page((batch(1, b"x"), batch(2, b"x")), 2),
        Page((batch(2, b"x"), batch(3, b"x")), None),
    ]
    node = HostileNode(script=[[reply(page) for page in pages]])
    async with scene(node) as pool:
        assert await versions(pool.read_all(Read(key(1)))) == [1, 2, 3]


@pytest.mark.scenario("CPA-51")
async def test_history_trimmed_ahead_of_the_cursor_is_never_skipped_silently():
    first = Page((batch(1, b"x"), batch(2, b"x")), 3)
    node = HostileNode(script=[[reply(first), reply(BelowFloor(3, 6))]])
    async with scene(node) as pool:
        batches = pool.read_all(Read(key(1)))
        assert [(await anext(batches)).version for _ in range(2)] == [1, 2]
        with pytest.raises(TrimmedError) as raised:
            await anext(batches)
        assert raised.value.first_version == 6


async def test_refusals_come_through():
    node = HostileNode(default=error(1001))
    async with scene(node) as pool:
        with pytest.raises(AggregateMissingError):
            await versions(pool.read_all(Read(key(1))))


async def test_leaving_early_holds_nothing():
    node = HostileNode(default=paged)
    async with scene(node) as pool:
        batches = pool.read_all(Read(key(1)))
        assert (await anext(batches)).version == 1
        assert (stats(pool).busy, stats(pool).idle) == (0, 1)
        await batches.aclose()
        async for _each in pool.read_all(Read(key(1))):
            break
        await asyncio.sleep(0)
        assert (stats(pool).busy, stats(pool).waiting) == (0, 0)


async def test_version_zero_means_the_first_one():
    node = HostileNode(default=paged)
    async with scene(node) as pool:
        assert await versions(pool.read_all(read(1, from_version=0))) == list(range(1, LAST + 1))
        await pool.read(read(1, from_version=0))
        assert {frame.request.filters.from_version for frame in node.frames} == {1, 4, 7, 10, 13}
