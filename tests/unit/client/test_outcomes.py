"""What a failure means: not sent, refused, or nobody knows. One node."""

import asyncio
import tracemalloc

import pytest

from landed.errors import (
    BusyError,
    ConnectFailedError,
    ConnectionLostError,
    ConnectTimeoutError,
    LandedError,
    LocalProtocolError,
    MalformedWriteError,
    Move,
    NodeFailedError,
    Outcome,
    OutcomeUnknownError,
    PoolExhaustedError,
    ReadTimeoutError,
    RefusedError,
    RemoteProtocolError,
    RequestTooLargeError,
    SequenceTakenError,
)
from landed.log import Delete, DeleteLeg, Landed, Trim, Write
from landed.wire.codes import TABLE, CodeClass
from tests.unit.client.node import (
    CLIENT,
    HostileNode,
    after,
    both,
    deaf,
    drip,
    error,
    farewell,
    fin,
    garbage,
    half_close,
    key,
    no_correlation,
    now,
    oversize,
    pool_of,
    read,
    rst,
    scene,
    silence,
    stats,
    truncate,
    undecodable,
    until,
    value_of,
    write,
    wrong_correlation,
    wrong_type,
)

HANG_UPS = {
    "CPA-14 read whole, then closed": (fin(), "eof"),
    "CPA-15 read whole, then reset": (rst(), "reset"),
    "CPA-16 read whole, then silent": (silence(), "timeout"),
    "CPA-17 half a header, then closed": (truncate(9, fin()), "eof"),
    "CPA-18 half a body, then half closed": (truncate(-6, half_close()), "eof"),
    "CPA-20 another's correlation id": (wrong_correlation(), "protocol"),
    "no correlation id": (no_correlation(), "protocol"),
    "CPA-22 a page in answer to a write": (wrong_type(), "protocol"),
    "CPA-23 too large": (oversize(2**31), "protocol"),
    "undecodable": (undecodable(), "protocol"),
    "garbage": (garbage(40), "protocol"),
}


@pytest.mark.scenario(
    "CPA-14", "CPA-15", "CPA-16", "CPA-17", "CPA-18", "CPA-20", "CPA-22", "CPA-23"
)
@pytest.mark.parametrize("name", HANG_UPS)
async def test_a_change_without_a_trustworthy_answer_is_unknown_and_never_sent_again(name):
    step, reason = HANG_UPS[name]
    node = HostileNode(script=[[step]])
    other = HostileNode("b")
    async with scene(node, other, request_timeout_s=3.0) as pool:
        began = now()
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(write())
        unknown = raised.value
        assert (unknown.reason, unknown.outcome) == (reason, Outcome.UNKNOWN)
        assert (unknown.move, unknown.attempts, unknown.served_by) == (Move.HOLD, 1, node.address)
        assert (now() - began == pytest.approx(3.0, abs=0.01)) is (reason == "timeout")
        assert isinstance(unknown.__cause__, RemoteProtocolError) is (reason == "protocol")
        await until(lambda: not node.up)
        assert node.writes + other.writes == 1
        assert await pool.write(write(2)) == Landed((1,))
        assert [frame.connection for frame in node.frames] == [0, 1]


@pytest.mark.scenario("CPA-14", "CPA-16", "CPA-20", "CPA-23")
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (fin(), ConnectionLostError),
        (rst(), ConnectionLostError),
        (silence(), ReadTimeoutError),
        (wrong_correlation(), RemoteProtocolError),
        (oversize(2**31), RemoteProtocolError),
    ],
)
async def test_a_read_says_what_broke_it(step, kind):
    node = HostileNode(script=[[step]])
    async with scene(node, request_timeout_s=3.0) as pool:
        with pytest.raises(kind) as raised:
            await pool.read(read(1))
        assert raised.value.served_by == node.address
        assert value_of(await pool.read(read(2))) == b"2"


@pytest.mark.parametrize(
    "change",
    [
        lambda pool: pool.trim(Trim(key(1), 2, CLIENT)),
        lambda pool: pool.delete(Delete(CLIENT, (DeleteLeg(key(1), None, True, False),))),
    ],
)
async def test_trims_and_deletes_are_changes_too(change):
    node = HostileNode(script=[[fin()]])
    async with scene(node) as pool:
        with pytest.raises(OutcomeUnknownError):
            await change(pool)
        assert await change(pool) is None
        assert len(node.frames) == 2


@pytest.mark.scenario("CPA-19")
async def test_a_dripping_answer_does_not_extend_the_limit():
    node = HostileNode(script=[[drip(0.1)]])
    async with scene(node, request_timeout_s=0.5) as pool:
        began = now()
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(write())
        assert raised.value.reason == "timeout"
        assert now() - began == pytest.approx(0.5, abs=0.05)
        assert stats(pool).discards == {} or stats(pool).discards == {"timeout": 1}


async def test_a_dripping_answer_that_is_in_time_is_an_answer():
    node = HostileNode(script=[[drip(0.01)]])
    async with scene(node, request_timeout_s=5.0) as pool:
        assert await pool.write(write()) == Landed((1,))


@pytest.mark.scenario("CPA-23")
async def test_a_huge_answer_is_refused_by_its_header_without_room_for_it():
    node = HostileNode(script=[[both(oversize(2_000_000), garbage(100))]])
    async with scene(node, max_response_bytes=1_000_000) as pool:
        tracemalloc.start()
        try:
            with pytest.raises(RemoteProtocolError):
                await pool.read(read())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1_000_000


@pytest.mark.scenario("CPA-24")
@pytest.mark.parametrize("code", [2007, 2008, 2029, 2026, 2028, 3002, 3003, 4004, 4005, 2999, 77])
async def test_a_failed_flush_and_a_number_nobody_knows_are_unknown_and_keep_the_connection(code):
    node = HostileNode(script=[[error(code)]])
    async with scene(node) as pool:
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(write())
        assert (raised.value.reason, raised.value.code) == ("server", code)
        await pool.write(write(2))
        assert [frame.connection for frame in node.frames] == [0, 0]


@pytest.mark.scenario("CPA-25")
async def test_a_node_that_could_not_read_a_change_did_not_apply_it():
    node = HostileNode(script=[[farewell()]])
    async with scene(node) as pool:
        with pytest.raises(RefusedError) as raised:
            await pool.write(write())
        assert raised.value.outcome is Outcome.REJECTED
        await until(lambda: not node.up)
        await pool.write(write(2))
        assert [frame.connection for frame in node.frames] == [0, 1]


@pytest.mark.scenario("CPA-26")
async def test_what_this_process_refuses_needs_no_connection():
    node = HostileNode()
    async with scene(node, max_request_bytes=1_000) as pool:
        twice = Write(CLIENT, write().legs * 2)
        refused = {
            RequestTooLargeError: write(value=b"x" * 1_000),
            MalformedWriteError: write()._replace(legs=()),
            LocalProtocolError: twice,
        }
        for kind, bad in refused.items():
            with pytest.raises(kind) as raised:
                await pool.write(bad)
            assert raised.value.outcome is Outcome.NOT_SENT
        with pytest.raises(MalformedWriteError):
            await pool.write(Write.to(key(1), [], client_id=CLIENT, expected_version=None))
        assert node.lines == []


@pytest.mark.scenario("CPA-27")
async def test_a_node_that_refuses_connections_was_sent_nothing():
    async with pool_of("a:10000") as pool:
        with pytest.raises(ConnectFailedError) as raised:
            await pool.write(write())
        assert (raised.value.outcome, raised.value.attempts) == (Outcome.NOT_SENT, 0)


@pytest.mark.scenario("CPA-27", "BC-13")
@pytest.mark.parametrize("step", [fin(), rst()])
async def test_a_connection_that_ends_at_once_is_reported_as_the_node_saw_it(step):
    outcomes = set()
    for delay_ms in range(40):
        node = HostileNode(greeting=after(delay_ms / 20_000, step))
        async with scene(node) as pool:
            (end,) = await asyncio.gather(pool.write(write()), return_exceptions=True)
            outcome = end.outcome if isinstance(end, LandedError) else end
            outcomes.add(outcome)
            await until(lambda node=node: not node.up)
            if outcome is Outcome.NOT_SENT:
                assert (node.writes, end.attempts) == (0, 0)
            else:
                assert node.writes <= 1
            assert len(node.lines) <= 2
    assert outcomes == {Outcome.NOT_SENT, Outcome.UNKNOWN, Landed((1,))}


@pytest.mark.scenario("CPA-27")
async def test_a_node_that_closes_every_new_connection_is_not_dialled_on_and_on():
    node = HostileNode(greeting=fin())
    other = HostileNode("b")
    async with scene(node, other, max_connections=1) as pool:
        assert await pool.write(write()) == Landed((1,))
        assert (node.frames, other.writes, len(node.lines)) == ([], 1, 1)


@pytest.mark.scenario("CPA-12")
async def test_giving_up_on_a_hanging_dial_frees_its_slot_and_says_nothing_of_the_node():
    node = HostileNode()
    async with scene(node, max_connections=1) as pool:
        with deaf("a"):
            waiter = asyncio.create_task(pool.write(write(1)))
            await until(lambda: pool.stats() and stats(pool).dialling)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await until(lambda: not stats(pool).dialling)
        assert stats(pool).breaker.value == "closed"
        assert await pool.write(write(2)) == Landed((1,))
        assert len(node.frames) == 1


async def test_a_dial_that_hangs_ends_with_its_own_limit():
    node = HostileNode()
    async with scene(node, connect_timeout_s=2.0, acquire_timeout_s=0.5) as pool:
        with deaf("a"):
            began = now()
            with pytest.raises(ConnectTimeoutError) as raised:
                await pool.write(write())
        assert now() - began == pytest.approx(2.0, abs=0.01)
        assert raised.value.outcome is Outcome.NOT_SENT
        assert stats(pool).breaker.value == "open"


async def test_who_waits_for_a_dial_beside_one_whose_own_time_is_over_waits_on_for_it():
    """When one of the two leaves, the other moves up in the queue; the dial is still for it."""
    node = HostileNode()
    async with scene(node, connect_timeout_s=2.0, acquire_timeout_s=0.5) as pool:
        with deaf("a"):
            began = now()
            hasty = asyncio.create_task(pool.write(write(1), timeout_s=1.0))
            patient = asyncio.create_task(pool.write(write(2)))
            with pytest.raises(ConnectTimeoutError):
                await hasty
            assert now() - began == pytest.approx(1.0, abs=0.01)
            with pytest.raises(ConnectTimeoutError):
                await patient
    assert now() - began == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(
    ("limit", "kind"),
    [("dial", ConnectTimeoutError), ("wait", PoolExhaustedError), ("answer", OutcomeUnknownError)],
)
async def test_the_limit_of_the_whole_call_says_in_which_phase_it_fired(limit, kind):
    node = HostileNode(default=silence())
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        began = now()
        if limit == "dial":
            with deaf("a"), pytest.raises(kind):
                await pool.write(write(), timeout_s=1.0)
        elif limit == "wait":
            holder = asyncio.create_task(pool.write(write(), timeout_s=3.0))
            await until(lambda: node.frames)
            began = now()
            with pytest.raises(kind):
                await pool.write(write(), timeout_s=1.0)
            with pytest.raises(OutcomeUnknownError):
                await holder
            began += 2.0
        else:
            with pytest.raises(kind):
                await pool.write(write(), timeout_s=1.0)
        assert now() - began == pytest.approx(1.0, abs=0.01)


async def test_a_call_without_any_time_is_not_sent():
    node = HostileNode()
    async with scene(node) as pool:
        for timeout_s in (0, -1.0, float("nan")):
            with pytest.raises(PoolExhaustedError):
                await pool.write(write(), timeout_s=timeout_s)
        assert node.lines == []


@pytest.mark.scenario("CPA-57")
async def test_texts_that_are_no_json_never_hide_the_code_and_missing_numbers_are_not_zero():
    async with scene(HostileNode(script=[[error(2002)]])) as pool:
        with pytest.raises(SequenceTakenError) as taken:
            await pool.write(write())
        assert (taken.value.highest_seq, taken.value.attempted_seq) == (None, None)


@pytest.mark.scenario("CPA-58")
@pytest.mark.parametrize("code", [*TABLE, 12_345])
async def test_every_code_has_one_outcome_for_a_change_and_none_is_unknown_for_a_read(code):
    node = HostileNode(default=error(code))
    async with scene(node, busy_retries=0) as pool:
        with pytest.raises(Exception) as raised:
            await pool.write(write())
        change = raised.value
        cls = TABLE[code].cls if code in TABLE else CodeClass.UNKNOWN
        is_unknown = cls in {CodeClass.UNKNOWN, CodeClass.READ_SIDE}
        assert isinstance(change, OutcomeUnknownError) is is_unknown
        if change.outcome is not Outcome.NOT_SENT:  # not leader: nothing reached one
            assert (change.outcome is Outcome.UNKNOWN) is is_unknown
        with pytest.raises(RefusedError) as refused:
            await pool.read(read())
        assert refused.value.outcome is Outcome.REJECTED
        assert refused.value.code == code or isinstance(refused.value, NodeFailedError | BusyError)
        assert node.up == 1


async def test_a_call_whose_time_ran_out_while_the_loop_was_held_up_is_not_sent():
    node = HostileNode()
    async with scene(node) as pool:
        await pool.read(read())
        late = asyncio.create_task(pool.write(write(), timeout_s=0.5))
        await asyncio.sleep(0)
        asyncio.get_running_loop()._now += 1.0
        with pytest.raises(PoolExhaustedError):
            await late
        assert node.writes == 0
