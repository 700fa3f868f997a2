"""Which node a request goes to: the walk, redirects, busy nodes, the guess at the leader."""

import asyncio
from random import Random

import pytest

from landed.client.assign import BreakerState
from landed.client.log import for_decisions
from landed.client.options import Consistency, parse_address
from landed.client.pool import Pool
from landed.client.walk import DISCOVERED_MAX, VISITS_MAX, AddressBook, Walk
from landed.errors import (
    BusyError,
    ConnectFailedError,
    ConnectionLostError,
    ConnectTimeoutError,
    LandedError,
    LeaderNotFoundError,
    NoFeedError,
    NotLeaderError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    PoolUnavailableError,
    ReadTimeoutError,
    VersionConflictError,
)
from landed.log import FeedRead, Landed
from tests.unit.client.node import (
    HostileNode,
    after,
    deaf,
    error,
    farewell,
    fin,
    now,
    pool_of,
    read,
    reply,
    rst,
    running,
    scene,
    silence,
    stats,
    until,
    value_of,
    write,
)

NOT_LEADER = (2011, 3005, 4006, 2027)


def redirect(node, code=2011):
    return error(code, leader_address=node if isinstance(node, str) else node.address)


def leader_of(pool):
    return str(pool._cluster.book.leader)


# --- the walk -------------------------------------------------------------------------------------


@pytest.mark.scenario("CPA-28")
async def test_a_redirect_is_followed_and_remembered():
    b = HostileNode("b")
    a = HostileNode("a", default=redirect(b))
    async with running(a, b), pool_of(a) as pool:
        assert await pool.write(write(1)) == Landed((1,))
        assert (a.writes, b.writes) == (1, 1)
        assert a.frames[0].correlation != b.frames[0].correlation
        assert a.frames[0].request == b.frames[0].request
        await pool.write(write(2))
        assert (a.writes, b.writes) == (1, 2)
        assert [(n.idle, n.discards) for n in pool.stats().values()] == [(1, {}), (1, {})]


@pytest.mark.scenario("CPA-35")
@pytest.mark.parametrize("code", NOT_LEADER)
async def test_every_not_leader_code_redirects(code):
    b = HostileNode("b")
    a = HostileNode("a", default=redirect(b, code))
    async with running(a, b), pool_of(a) as pool:
        assert await pool.write(write()) == Landed((1,))


@pytest.mark.scenario("CPA-29")
async def test_without_an_address_the_next_known_node_is_asked():
    a, c = HostileNode("a", default=error(2011)), HostileNode("c")
    async with running(a, c), pool_of(a, "b:10000", c) as pool:
        assert await pool.write(write()) == Landed((1,))
        assert (a.writes, c.writes, leader_of(pool)) == (1, 1, c.address)
        assert list(pool.stats()) == [a.address, "b:10000", c.address]


@pytest.mark.scenario("CPA-30")
async def test_two_nodes_that_point_at_each_other_come_to_an_end():
    a, b = HostileNode("a"), HostileNode("b")
    a.default, b.default = redirect(b), redirect(a)
    async with running(a, b), pool_of(a) as pool:
        with pytest.raises(LeaderNotFoundError) as raised:
            await pool.write(write())
        assert 2 <= a.writes + b.writes <= 2 * VISITS_MAX
        assert raised.value.outcome is Outcome.NOT_SENT
        assert raised.value.attempts == a.writes + b.writes


@pytest.mark.scenario("CPA-31")
async def test_when_nobody_can_be_reached_the_error_lists_everybody():
    async with pool_of("a:1", "b:2") as pool:
        with pytest.raises(LeaderNotFoundError) as raised:
            await pool.write(write())
        assert [address for address, _error in raised.value.tried] == ["a:1", "b:2"]
        assert raised.value.__cause__ is raised.value.tried[1][1]
        assert isinstance(raised.value.__cause__, ConnectFailedError)
        assert (raised.value.outcome, raised.value.attempts) == (Outcome.NOT_SENT, 0)


async def test_the_only_node_that_is_not_the_leader_is_not_a_leader_found():
    async with scene(HostileNode(default=error(2011))) as pool:
        with pytest.raises(LeaderNotFoundError) as raised:
            await pool.write(write())
        assert isinstance(raised.value.__cause__, NotLeaderError)


@pytest.mark.scenario("CPA-32", "BC-13")
async def test_after_a_reset_nobody_else_is_asked():
    a, b = HostileNode("a", default=rst()), HostileNode("b")
    async with scene(a, b) as pool:
        with pytest.raises(OutcomeUnknownError):
            await pool.write(write())
        assert (a.writes, b.lines) == (1, [])


@pytest.mark.scenario("CPA-33")
async def test_after_a_redirect_and_a_timeout_nobody_else_is_asked():
    b, c = HostileNode("b", default=silence()), HostileNode("c")
    a = HostileNode("a", default=redirect(b))
    async with scene(a, b, c, request_timeout_s=1.0) as pool:
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(write())
        assert (raised.value.reason, raised.value.served_by) == ("timeout", b.address)
        assert (a.writes, b.writes, c.lines) == (1, 1, [])


@pytest.mark.scenario("CPA-34")
async def test_a_slow_failure_on_the_old_leader_does_not_erase_a_newer_discovery():
    a, b, c = HostileNode("a"), HostileNode("b"), HostileNode("c")
    async with scene(a, c, b, connect_timeout_s=1.0) as pool:
        with deaf("a"):
            slow = asyncio.create_task(pool.write(write(1)))
            await until(pool.stats)
            pool._cluster.book.redirected(parse_address(b.address))
            await pool.write(write(2))
            assert leader_of(pool) == b.address
            assert await slow == Landed((1,))
        assert leader_of(pool) == b.address


@pytest.mark.scenario("CPA-36")
async def test_a_search_goes_on_until_there_is_a_leader():
    def until_it_leads(line, received):
        is_leading = line.node.name == "b" and now() >= line.node.leads_at
        (reply() if is_leading else error(2011))(line, received)

    a, b = (HostileNode(name, default=until_it_leads) for name in "ab")
    b.leads_at = now() + 0.7
    async with running(a, b):
        async with pool_of(a, b) as hasty:
            with pytest.raises(LeaderNotFoundError):
                await hasty.write(write())
            assert (a.writes, b.writes) == (1, 1)
        async with pool_of(a, b, leader_search_timeout_s=2.0) as patient:
            assert await patient.write(write()) == Landed((1,))
        assert a.writes < 20


async def test_a_search_ends_in_time():
    a = HostileNode("a", default=error(2011))
    async with scene(a, leader_search_timeout_s=2.0) as pool:
        began = now()
        with pytest.raises(LeaderNotFoundError):
            await pool.write(write())
        assert now() - began == pytest.approx(2.0, abs=0.01)
        began = now()
        with pytest.raises(NotSentError):
            await pool.write(write(), timeout_s=0.5)
        assert now() - began == pytest.approx(0.5, abs=0.01)


async def test_no_node_is_asked_without_time_for_it():
    a, b = HostileNode("a"), HostileNode("b")
    async with scene(a, b) as pool:
        with deaf("a"), pytest.raises(ConnectTimeoutError):
            await pool.write(write(), timeout_s=1.0)
        assert b.lines == []
        assert b.address not in pool.stats()


@pytest.mark.scenario("CPA-37")
async def test_when_every_node_failed_a_moment_ago_nobody_is_dialled():
    async with pool_of("a:1", "b:2") as pool:
        with pytest.raises(LeaderNotFoundError):
            await pool.write(write())
        dials = [node.dials for node in pool.stats().values()]
        with pytest.raises(PoolUnavailableError) as raised:
            await pool.write(write())
        assert raised.value.outcome is Outcome.NOT_SENT
        assert [node.dials for node in pool.stats().values()] == dials == [1, 1]


@pytest.mark.scenario("CPA-11")
async def test_a_node_that_refuses_is_left_alone_and_then_tried_once():
    async with pool_of("a:10000", max_concurrent_dials=4, pipeline_depth=1) as pool:
        calls = [pool.write(write(n)) for n in range(50)]
        began = now()
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert {failure.outcome for failure in failures} == {Outcome.NOT_SENT}
        assert now() - began < 0.01
        assert stats(pool).dials <= 4
        assert stats(pool).breaker is BreakerState.OPEN
        await asyncio.sleep(2.0)
        assert stats(pool).breaker is BreakerState.TRIAL
        dials = stats(pool).dials
        await asyncio.gather(*(pool.write(write(n)) for n in range(50)), return_exceptions=True)
        assert stats(pool).dials == dials + 1
        await asyncio.sleep(2.0)
        node = HostileNode()
        async with running(node):
            assert await pool.write(write()) == Landed((1,))
            assert stats(pool).breaker is BreakerState.CLOSED


async def test_links_that_stand_serve_on_while_the_breaker_is_open():
    node = HostileNode(default=after(0.5, reply()))
    async with scene(node, pipeline_depth=1) as pool:
        await pool.read(read(1))
        node.stop_listening()
        both = await asyncio.gather(pool.read(read(2)), pool.read(read(3)))
        assert [value_of(page) for page in both] == [b"2", b"3"]
        assert stats(pool).breaker is BreakerState.OPEN
        assert len(node.lines) == 1


async def test_an_advertised_address_may_be_translated():
    b = HostileNode("b")
    a = HostileNode("a", default=redirect("0.0.0.0:10000"))
    async with running(a, b), pool_of(a, address_translator=lambda _text: b.address) as pool:
        assert await pool.write(write()) == Landed((1,))


async def test_an_advertised_address_that_is_none_counts_as_not_said():
    b = HostileNode("b")
    a = HostileNode("a", default=redirect("no address at all"))
    async with scene(a, b) as pool:
        assert await pool.write(write()) == Landed((1,))


def test_a_walk_ends_whatever_the_nodes_say():
    addresses = [parse_address(f"{name}:1") for name in "abc"]
    for seed in range(500):
        rng = Random(seed)
        book = AddressBook(addresses[: rng.randint(1, 3)])
        walk = Walk(book, book.leader)
        visits = []
        address = walk.first
        while address is not None:
            visits.append(address)
            if rng.random() < 0.7:
                walk.redirected(parse_address(f"n{rng.randint(0, 5)}:1"))
            else:
                book.doubted(address)
            address = walk.next()
        assert max(visits.count(address) for address in visits) <= VISITS_MAX
        assert len(visits) <= 2 * len(book.known) + 1
        assert set(book.known) >= set(visits)


def test_a_book_learns_a_bounded_number_of_addresses_and_forgets_the_oldest():
    first = parse_address("a:1")
    book = AddressBook([first])
    for number in range(100):
        book.redirected(parse_address(f"n{number}:1"))
    assert len(book.known) == DISCOVERED_MAX + 1
    assert book.known[0] == first
    assert str(book.known[-1]) == "n99:1"
    assert book.in_order()[0] == book.leader == book.known[-1]


async def test_redirects_to_ever_new_addresses_do_not_add_up():
    ports = iter(range(1, 10_000))

    def elsewhere(line, received):
        redirect(f"nowhere:{next(ports)}")(line, received)

    a = HostileNode("a", default=elsewhere)
    async with scene(a, breaker_cooldown_s=0.01) as pool:
        for _ in range(50):
            with pytest.raises(LeaderNotFoundError):
                await pool.write(write())
            await asyncio.sleep(0.02)
        assert next(ports) > 50
        assert len(pool.stats()) <= 1 + DISCOVERED_MAX + 1


def test_a_late_success_does_not_overrule_what_was_learned_since():
    a, b = parse_address("a:1"), parse_address("b:1")
    book = AddressBook([a, b])
    book.redirected(b)
    book.confirmed(a, guess=a)
    assert book.leader == b
    book.doubted(a)
    assert book.leader == b
    book.doubted(b)
    assert book.leader == a


# --- busy -----------------------------------------------------------------------------------------


@pytest.mark.scenario("CPA-41")
@pytest.mark.parametrize("code", [2012, 11000])
async def test_a_busy_node_is_asked_again_and_nobody_else(code):
    a = HostileNode("a", script=[[error(code), error(code)]])
    b = HostileNode("b")
    async with scene(a, b) as pool:
        assert await pool.write(write()) == Landed((1,))
        assert (a.writes, b.lines, len(a.lines)) == (3, [], 1)
        assert len({frame.at for frame in a.frames}) == 3


@pytest.mark.scenario("CPA-41")
async def test_a_busy_node_is_told_at_once_where_nobody_waits_it_out():
    node = HostileNode(default=error(11000))
    async with scene(node) as pool:
        with pytest.raises(BusyError) as raised:
            await for_decisions(pool).write(write())
        assert (node.writes, raised.value.attempts) == (1, 1)
        assert (raised.value.outcome, raised.value.retry_after_s) == (Outcome.REJECTED, 0.025)
        with pytest.raises(BusyError) as raised:
            await pool.write(write())
        assert (node.writes, raised.value.attempts) == (4, 3)
        assert raised.value.retry_after_s == 0.1


async def test_waiting_for_a_busy_node_stays_within_the_time_of_the_call():
    node = HostileNode(default=error(11000))
    async with scene(node, busy_retries=1_000) as pool:
        began = now()
        with pytest.raises(BusyError):
            await pool.write(write(), timeout_s=1.0)
        assert now() - began < 1.0


async def test_no_other_refusal_is_sent_again():
    node = HostileNode(default=error(2003, expected_version=1, current_aggregate_version=2))
    async with scene(node, leader_search_timeout_s=5.0) as pool:
        with pytest.raises(VersionConflictError):
            await pool.write(write())
        assert node.writes == 1


# --- reads ----------------------------------------------------------------------------------------


@pytest.mark.scenario("CPA-38")
async def test_a_read_that_the_leader_is_too_busy_for_is_not_taken_elsewhere():
    a, b = HostileNode("a", default=error(11000)), HostileNode("b")
    async with scene(a, b) as pool:
        with pytest.raises(BusyError):
            await pool.read(read())
        assert (len(a.frames), b.lines) == (1, [])


async def test_a_read_that_the_leader_does_not_answer_in_time_is_not_taken_elsewhere():
    a, b = HostileNode("a", default=silence()), HostileNode("b")
    async with scene(a, b, request_timeout_s=1.0) as pool:
        with pytest.raises(ReadTimeoutError):
            await pool.read(read())
        assert b.lines == []


async def test_a_read_whose_leader_is_gone_is_answered_by_another():
    a, b = HostileNode("a", default=rst()), HostileNode("b")
    async with scene(a, b) as pool:
        assert value_of(await pool.read(read(5))) == b"5"
        a.stop_listening()
        assert value_of(await pool.read(read(6))) == b"6"


@pytest.mark.scenario("CPA-40")
@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_strict_read_asks_the_leader_or_nobody(is_gone):
    a, b = HostileNode("a", default=rst()), HostileNode("b")
    async with scene(a, b) as pool:
        if is_gone:
            a.stop_listening()
        strict = for_decisions(pool)
        with pytest.raises(ConnectFailedError if is_gone else ConnectionLostError):
            await strict.read(read())
        assert b.lines == []
    async with scene(a, b, consistency=Consistency.LEADER_STRICT) as pool:
        with pytest.raises(ConnectionLostError):
            await pool.details(read().key)
        assert b.lines == []


async def test_whoever_decides_finds_a_new_leader_after_the_old_one_is_gone():
    b = HostileNode("b")
    async with running(b), pool_of("a:10000", b) as pool:
        strict = for_decisions(pool)
        with pytest.raises(ConnectFailedError):
            await strict.read(read())
        assert value_of(await strict.read(read(3))) == b"3"


# --- extensions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [farewell(), fin()])
async def test_a_node_without_the_feed_says_so(step):
    node = HostileNode(default=step)
    async with scene(node) as pool:
        for ask in (pool.info, lambda: pool.feed(FeedRead(0))):
            with pytest.raises(NoFeedError):
                await ask()
        assert len(node.frames) <= 4


async def test_a_node_with_the_feed_that_breaks_is_not_taken_for_one_without():
    node = HostileNode(script=[[reply(), fin()], [fin()]])
    async with scene(node) as pool:
        assert (await pool.info()).position == 0
        with pytest.raises(ConnectionLostError):
            await pool.feed(FeedRead(0))


async def test_waiting_for_the_feed_is_not_cut_short_and_delays_nobody():
    node = HostileNode(script=[[after(20.0, reply())]])
    async with scene(node, request_timeout_s=5.0) as pool:
        feed = asyncio.create_task(pool.feed(FeedRead(3, wait_ms=20_000)))
        await until(lambda: node.frames)
        began = now()
        assert value_of(await pool.read(read(5))) == b"5"
        assert now() - began < 0.01
        assert (await feed).next_after == 3


# --- home -----------------------------------------------------------------------------------------


async def test_errors_say_who_answered_and_after_how_many_tries():
    b = HostileNode("b", default=error(2005))
    a = HostileNode("a", default=redirect(b))
    async with scene(a, b) as pool:
        with pytest.raises(LandedError) as raised:
            await pool.write(write())
        assert (raised.value.served_by, raised.value.attempts) == (b.address, 2)


async def test_every_request_has_a_correlation_id_of_its_own():
    node = HostileNode()
    async with running(node), pool_of(node, seed=1) as one, pool_of(node, seed=2) as other:
        for _ in range(20):
            await one.read(read())
            await other.read(read())
    ids = [frame.correlation for frame in node.frames]
    assert len(set(ids)) == 40
    assert {len(id) for id in ids} == {16}


async def test_a_pool_is_a_log_and_its_narrow_face_shares_its_connections():
    node = HostileNode()
    async with scene(node) as pool:
        strict = for_decisions(pool)
        assert isinstance(strict, Pool)
        await pool.read(read())
        await strict.read(read())
        assert len(node.lines) == 1
