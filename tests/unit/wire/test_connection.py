"""Both sides of a connection: frames in any pieces, what may come when, and every bound."""

from __future__ import annotations

import time
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landed.errors import (
    LandedError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTooLargeError,
)
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import (
    Batch,
    Delete,
    DeleteLeg,
    Event,
    FeedRead,
    GetDetails,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    Trimmed,
    Unknown,
    VersionConflict,
    Write,
)
from landed.wire.connection import (
    NEED_DATA,
    NEXT_STATE,
    ClientConnection,
    Received,
    ServerConnection,
    State,
    Violation,
)
from landed.wire.messages import Failure, Identified, Identify, NotUnderstood, Operation, Probe
from tests.unit.wire.vectors import requests, section, successes

LIMITS = Limits()
HEADER_SIZE = 17
KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
CORRELATION = b"0123456789abcdef"
PROTOCOL_ERROR = bytes.fromhex("0300000006000000010000000100000000") + b"\x90"
FRAMES = [vector.frame for vector in requests("canonical") if vector.type != 14]


SAMPLES = {vector.operation: vector.value for vector in requests("canonical")} | {
    Operation.FEED: FeedRead(0),
    Operation.PROBE: Probe(),
}


def write(size: int = 10) -> Write:
    event = Event.new(1, b"x" * size, client_seq=1, event_id=None)
    return Write.to(KEY, [event], client_id=UUID(int=7), expected_version=0)


def frame_of(request, correlation=CORRELATION, limits=LIMITS) -> bytes:
    return ClientConnection(limits).request(request, correlation)


def server_after(*pieces: bytes, limits: Limits = LIMITS) -> ServerConnection:
    server = ServerConnection(limits)
    for piece in pieces:
        server.receive(piece)
    return server


def client_after(*pieces: bytes, limits: Limits = LIMITS) -> ClientConnection:
    client = ClientConnection(limits)
    for piece in pieces:
        client.receive(piece)
    return client


def header(version=3, type=3, length=0, plain=None, compression=0) -> bytes:
    numbers = (version, type, length, length if plain is None else plain)
    return b"".join(n.to_bytes(4, "little") for n in numbers) + bytes([compression])


def received(operation: Operation, correlation: bytes | None = CORRELATION) -> Received:
    return Received(None, correlation, operation, 0)


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", requests("canonical"), ids=repr)
def test_a_request_cut_anywhere_is_the_same_request(vector):
    whole = server_after(vector.frame).next_request()
    for cut in range(len(vector.frame) + 1):
        server = server_after(vector.frame[:cut])
        if cut < len(vector.frame):
            assert server.next_request() is NEED_DATA
        server.receive(vector.frame[cut:])
        assert server.next_request() == whole
        assert server.next_request() is NEED_DATA
        assert server.unread == 0


@pytest.mark.parametrize("vector", successes("canonical"), ids=repr)
def test_an_answer_cut_anywhere_is_the_same_answer(vector):
    whole = client_after(vector.frame).next_answer(vector.operation)
    for cut in range(len(vector.frame) + 1):
        client = client_after(vector.frame[:cut])
        if cut < len(vector.frame):
            assert client.next_answer(vector.operation) is NEED_DATA
            assert client.has_unread is (cut > 0)
        client.receive(vector.frame[cut:])
        assert client.next_answer(vector.operation) == whole
        assert not client.has_unread


def test_two_frames_glued_and_cut_anywhere_are_two_requests_in_order():
    first, second = frame_of(write()), frame_of(Read(KEY))
    glued = first + second
    wanted = [server_after(frame).next_request() for frame in (first, second)]
    for cut in range(len(glued) + 1):
        server = server_after(glued[:cut])
        taken = []
        while (message := server.next_request()) is not NEED_DATA:
            taken.append(message)
        server.receive(glued[cut:])
        while (message := server.next_request()) is not NEED_DATA:
            taken.append(message)
        assert taken == wanted


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAMES), max_size=8), st.lists(st.integers(1, 400), min_size=1))
def test_any_number_of_frames_in_any_pieces_are_the_same_requests(frames, sizes):
    stream = b"".join(frames)
    server, taken, at, turn = ServerConnection(LIMITS), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        server.receive(memoryview(stream)[at : at + size])
        at, turn = at + size, turn + 1
        while (message := server.next_request()) is not NEED_DATA:
            taken.append(message)
    assert taken == [server_after(frame).next_request() for frame in frames]


def test_bytes_are_copied_so_that_the_caller_may_reuse_its_buffer():
    frame = frame_of(write())
    buffer = bytearray(frame)
    server = server_after(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert server.next_request().request == write()


def test_a_large_frame_in_small_pieces_costs_about_as_much_as_in_one():
    """Looking at everything again with every piece would cost hundreds of times as much."""
    frame = frame_of(write(16 * 1024 * 1024 - 200))
    view = memoryview(frame)

    def seconds(piece: int) -> float:
        server = ServerConnection(LIMITS)
        start = time.process_time()
        for at in range(0, len(frame), piece):
            server.receive(view[at : at + piece])
            message = server.next_request()
        assert message.size == len(frame)
        return time.process_time() - start

    in_one = min(seconds(len(frame)) for _ in range(3))
    in_pieces = min(seconds(4096) for _ in range(3))
    assert in_pieces < 10 * in_one + 0.1


def test_many_frames_in_one_receive_cost_the_same_each():
    frame = frame_of(write())

    def seconds(count: int) -> float:
        server = server_after(frame * count)
        start = time.process_time()
        for _ in range(count):
            server.next_request()
        return (time.process_time() - start) / count

    few = min(seconds(500) for _ in range(3))
    many = min(seconds(20_000) for _ in range(2))
    assert many < 5 * few + 1e-5


@pytest.mark.parametrize("cut", [5, 17, 40])
def test_what_was_taken_is_let_go_even_if_a_part_of_a_frame_is_always_left(cut):
    frame = frame_of(write(1000))
    server = server_after(frame[:cut])
    tracemalloc.start()
    try:
        for _ in range(1000):
            server.receive(frame[cut:] + frame[:cut])
            assert isinstance(server.next_request(), Received)
            assert server.next_request() is NEED_DATA
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(frame)


def test_a_sender_that_is_always_a_frame_ahead_does_not_make_the_buffer_grow():
    frame = frame_of(write(1000))
    server = server_after(frame)
    tracemalloc.start()
    try:
        for _ in range(1000):
            server.receive(frame)
            assert isinstance(server.next_request(), Received)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(frame)


def test_an_idle_connection_does_not_hold_on_to_a_large_frame():
    frame = frame_of(write(1_000_000))
    tracemalloc.start()
    try:
        server = server_after(frame + frame[:5])
        assert isinstance(server.next_request(), Received)
        assert server.next_request() is NEED_DATA
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000


# --- what may come when ---------------------------------------------------------------------------


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("state", [State.FRESH, State.OPEN])
def test_the_table_says_what_may_come_when(state, operation):
    request = SAMPLES[operation]
    before = [] if state is State.FRESH else [frame_of(GetDetails(KEY))]
    server = server_after(*before, frame_of(request))
    for _ in before:
        assert isinstance(server.next_request(), Received)
    taken = server.next_request()
    if operation in NEXT_STATE[state]:
        assert taken.request == request
    else:
        assert taken == Violation("IDENTIFY is not allowed now", PROTOCOL_ERROR, 0)


def test_identify_is_first_or_never():
    assert Operation.IDENTIFY in NEXT_STATE[State.FRESH]
    assert Operation.IDENTIFY not in NEXT_STATE[State.OPEN]
    client = ClientConnection(LIMITS)
    client.request(Identify(), None)
    client.request(write(), None)
    with pytest.raises(LocalProtocolError, match="IDENTIFY"):
        client.request(Identify(), None)


def test_identify_twice_is_a_violation():
    identify = frame_of(Identify(api_key="secret"))
    server = server_after(identify, identify)
    assert server.next_request().request == Identify(api_key="secret")
    assert isinstance(server.next_request(), Violation)


# --- violations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (header(version=0), "version 0"),
        (header(version=1), "version 1"),
        (header(version=4), "version 4"),
        (header(version=2**32 - 1), "version"),
        (header(version=3 << 24), "version"),  # the other byte order
        (header(compression=2), "compression 2"),
        (header(compression=255), "compression 255"),
        (header(compression=1), "dictionary"),
        (header(type=1, compression=1), "dictionary"),
        (header(length=4, plain=5), "two lengths"),
        (header(length=5, plain=4), "two lengths"),
        (header(length=LIMITS.max_request_size + 1), "are allowed"),
        (header(length=2**32 - 1), "are allowed"),
        (header(length=4, plain=2**32 - 1), "are allowed"),
        (header(type=99, length=2**32 - 1), "are allowed"),
        (header(version=2, length=2**32 - 1), "are allowed"),
        *[(header(type=t, length=1008), "1007 are allowed") for t in (1, 2, 4, 5, 6, 7, 8, 9, 14)],
        *[(header(type=t, length=1008), "1007 are allowed") for t in (1000, 1001)],
    ],
)
def test_a_broken_header_closes_in_silence_and_before_its_body(head, reason):
    violation = server_after(head).next_request()
    assert reason in violation.reason
    assert violation.farewell is None


def test_checks_come_in_the_order_of_the_protocol():
    everything = header(version=9, type=99, length=2**32 - 1, plain=1, compression=9)
    assert "version 9" in server_after(everything).next_request().reason
    less = header(type=99, length=2**32 - 1, plain=1, compression=9)
    assert "compression 9" in server_after(less).next_request().reason
    lesser = header(type=99, length=2**32 - 1, plain=1)
    assert "are allowed" in server_after(lesser).next_request().reason


@pytest.mark.parametrize(
    "type", [0, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 99, 100, 999, 1002, 2**32 - 1]
)
def test_an_unknown_type_is_told_before_its_body_and_what_is_owed_is_said(type):
    violation = server_after(header(type=type, length=100), b"x" * 30).next_request()
    assert violation == Violation(f"unknown message type {type}", PROTOCOL_ERROR, 70)
    whole = server_after(header(type=type, length=100), b"x" * 130).next_request()
    assert whole.owed == 0


def test_version_2_is_told_in_version_2():
    violation = server_after(header(version=2, length=50), b"x" * 20).next_request()
    assert violation.farewell == bytes.fromhex("0200000006000000000000000000000000")
    assert violation.owed == 30


@pytest.mark.parametrize("operation", Operation)
def test_an_undecodable_body_is_told(operation):
    violation = server_after(header(type=operation, length=1), b"\xc1").next_request()
    assert violation.farewell == PROTOCOL_ERROR
    assert violation.reason.startswith(operation.name)


def test_a_body_cut_short_is_never_filled_with_zeros():
    """The reference pads fixed bodies and would read the missing field as 0 (section 3)."""
    frame = frame_of(GetDetails(KEY))
    body = frame[HEADER_SIZE:-1]
    violation = server_after(header(type=1, length=len(body)), body).next_request()
    assert violation.farewell == PROTOCOL_ERROR


def test_nothing_is_taken_or_kept_after_a_violation():
    server = server_after(header(version=9))
    violation = server.next_request()
    server.receive(frame_of(write()) * 100)
    assert server.next_request() is violation
    assert server.unread == 0


def test_requests_before_a_violation_are_still_taken():
    server = server_after(frame_of(write()) + header(version=9) + b"rest")
    assert server.next_request().request == write()
    assert isinstance(server.next_request(), Violation)


def test_unread_counts_what_was_not_taken():
    frame = frame_of(write())
    server = server_after(frame + frame[:20])
    assert server.unread == len(frame) + 20
    assert server.next_request().size == len(frame)
    assert server.unread == 20


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_request_or_a_violation_or_not_enough(data):
    server = server_after(data)
    for _ in range(len(data) // HEADER_SIZE + 2):
        if not isinstance(server.next_request(), Received):
            break
    else:
        raise AssertionError("more requests than the bytes can hold")
    assert server.unread <= len(data)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(FRAMES), st.data())
def test_a_spoiled_frame_is_never_more_than_a_violation(frame, data):
    spoiled = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    message = server_after(bytes(spoiled)).next_request()
    assert isinstance(message, Received | Violation) or message is NEED_DATA


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([v for v in section("canonical") if not v.is_request]), st.data())
def test_a_spoiled_answer_raises_nothing_but_the_protocols_error(vector, data):
    spoiled = bytearray(vector.frame)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    client = client_after(bytes(spoiled))
    try:
        client.next_answer(data.draw(st.sampled_from(Operation)))
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            client.next_answer(Operation.WRITE)


# --- answers --------------------------------------------------------------------------------------


def test_an_answer_echoes_the_correlation_id_or_its_absence():
    for correlation in (CORRELATION, None):
        for answer in (Landed((5,)), VersionConflict(KEY, 1, 2), Unknown("disk"), Failure(10004)):
            frame = ServerConnection(LIMITS).answer(received(Operation.WRITE, correlation), answer)
            assert client_after(frame).next_answer(Operation.WRITE).correlation == correlation


def test_the_aggregate_at_fault_does_not_travel():
    frame = ServerConnection(LIMITS).answer(received(Operation.WRITE), VersionConflict(KEY, 1, 2))
    answered = client_after(frame).next_answer(Operation.WRITE)
    assert answered.answer == VersionConflict(None, 1, 2)


def test_a_write_of_several_legs_is_not_told_its_versions():
    frame = ServerConnection(LIMITS).answer(received(Operation.WRITE), Landed((5, 9)))
    assert client_after(frame).next_answer(Operation.WRITE).answer == Landed(())


def test_an_answer_that_no_client_takes_becomes_an_error_instead_of_silence():
    """The reference drops it, and its client waits for ever (section 3)."""
    small = Limits(max_frame_size=1000)
    batch = Batch(1, UUID(int=1), None, 0, (Event(1, 1, None, 0, 1, 0, b"x" * 1000),))
    frame = ServerConnection(small).answer(received(Operation.READ), Page((batch,), None))
    answered = client_after(frame, limits=small).next_answer(Operation.READ)
    assert isinstance(answered.answer, Unknown)
    assert answered.correlation == CORRELATION


def test_a_success_of_another_operation_is_a_bug_not_an_answer():
    with pytest.raises(TypeError):
        ServerConnection(LIMITS).answer(received(Operation.READ), VersionConflict(KEY, 1, 2))


@pytest.mark.parametrize("operation", Operation)
def test_a_protocol_error_says_not_understood_whatever_was_asked(operation):
    client = client_after(PROTOCOL_ERROR + b"more")
    assert client.next_answer(operation) == (NotUnderstood(), None)
    with pytest.raises(RemoteProtocolError, match="closes the connection"):
        client.next_answer(operation)
    with pytest.raises(LocalProtocolError):
        client.request(write(), None)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (header(version=2, type=3), "version 2"),
        (header(version=4, type=3), "version 4"),
        (header(type=2), "message type 2"),
        (header(type=8), "message type 8"),
        (header(type=3, length=1008), "1007 are allowed"),
        (header(type=7, length=1008), "1007 are allowed"),
        (header(type=6, length=1008), "1007 are allowed"),
        (header(type=3, length=2, plain=3), "two lengths"),
        (header(type=3, compression=1), "dictionary"),
        (header(type=3, compression=7), "compression 7"),
    ],
)
def test_an_answer_that_cannot_be_trusted_is_known_by_its_header(head, reason):
    client = client_after(head)
    with pytest.raises(RemoteProtocolError, match=reason):
        client.next_answer(Operation.WRITE)
    client.receive(frame_of(write()))
    assert not client.has_unread
    with pytest.raises(RemoteProtocolError, match=reason):
        client.next_answer(Operation.WRITE)


@pytest.mark.scenario("CPA-23")
def test_an_answer_larger_than_the_limit_is_not_waited_for():
    head = header(type=2, length=LIMITS.max_frame_size + 1)
    with pytest.raises(RemoteProtocolError, match="are allowed"):
        client_after(head).next_answer(Operation.READ)
    at_the_limit = header(type=2, length=LIMITS.max_frame_size)
    assert client_after(at_the_limit).next_answer(Operation.READ) is NEED_DATA


@pytest.mark.scenario("CPA-22")
def test_a_read_answer_to_a_write_is_not_trusted():
    page = ServerConnection(LIMITS).answer(received(Operation.READ), Page((), None))
    with pytest.raises(RemoteProtocolError, match="message type 2 in answer to WRITE"):
        client_after(page).next_answer(Operation.WRITE)


@pytest.mark.scenario("CPA-21")
def test_a_second_answer_is_left_over_and_seen():
    frame = ServerConnection(LIMITS).answer(received(Operation.READ), Page((), None))
    client = client_after(frame + frame)
    assert client.next_answer(Operation.READ).answer == Page((), None)
    assert client.has_unread


def test_an_undecodable_answer_is_not_trusted():
    client = client_after(header(type=3, length=2) + b"\x91\xc0")
    with pytest.raises(RemoteProtocolError, match="WriteResponse has 2 fields, not 1"):
        client.next_answer(Operation.WRITE)


# --- sizes of requests ----------------------------------------------------------------------------


def delete_of(count: int, expected: int | None = None) -> Delete:
    keys = [AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in range(count)]
    return Delete(UUID(int=7), tuple(DeleteLeg(key, expected, False, False) for key in keys))


def test_a_delete_of_sixteen_fits_and_of_seventeen_does_not():
    assert len(ClientConnection(LIMITS).request(delete_of(16), None)) <= HEADER_SIZE + 1007
    with pytest.raises(RequestTooLargeError, match="1007 are allowed"):
        ClientConnection(LIMITS).request(delete_of(17), None)


def test_a_fixed_request_of_1007_bytes_goes_out_and_one_byte_more_does_not():
    def read_with(types: int, last: int) -> Read:
        return Read(KEY, ReadFilters(1, None, (2**64 - 1,) * types + (last,)))

    # 9 bytes a large type; the last one's width brings it to the byte.
    for last, fits in ((2**32, True), (0x10000, True)):
        body = len(ClientConnection(LIMITS).request(read_with(50, last), None)) - HEADER_SIZE
        assert (body <= 1007) is fits
    sizes = set()
    for types in range(90, 130):
        for last in (1, 0x80, 0x100, 0x10000, 2**32):
            try:
                frame = ClientConnection(LIMITS).request(read_with(types, last), None)
            except RequestTooLargeError:
                continue
            sizes.add(len(frame) - HEADER_SIZE)
            assert isinstance(server_after(frame).next_request(), Received)
    assert max(sizes) <= 1007
    assert max(sizes) > 1000


def test_a_write_larger_than_the_limit_is_refused_before_anything_is_sent():
    small = Limits(max_request_size=500)
    client = ClientConnection(small)
    with pytest.raises(RequestTooLargeError, match="500 are allowed") as caught:
        client.request(write(500), None)
    assert caught.value.outcome.value == "not_sent"
    assert isinstance(client.request(write(100), None), bytes)


def test_what_the_protocol_cannot_say_is_refused_before_anything_is_sent():
    leg = write().legs[0]
    for request in (
        Write(UUID(int=7), (leg, leg)),
        Write(UUID(int=7), (leg._replace(expected_version=-1),)),
        Write(UUID(int=7), (leg._replace(events=(leg.events[0]._replace(iv=b"short"),)),)),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            ClientConnection(LIMITS).request(request, None)
        assert caught.value.outcome.value == "not_sent"


def test_a_request_that_failed_locally_leaves_the_connection_as_it_was():
    client = ClientConnection(LIMITS)
    with pytest.raises(LandedError):
        client.request(Identify(api_key="x" * 2000), None)
    client.request(Identify(), None)


# --- secrets --------------------------------------------------------------------------------------


def test_nothing_prints_a_secret():
    secrets = ("PUBLIC", "NONCE", "SIGNATURE", "APIKEY", "DICT")
    identify = Identify(*secrets)
    frame = frame_of(identify)
    shown = repr(identify) + str(identify) + repr(server_after(frame).next_request())
    assert not any(secret in shown for secret in secrets)
    spoiled = frame[:-1] + b"\xc1"
    assert not any(secret in repr(server_after(spoiled).next_request()) for secret in secrets)


def test_identify_without_authentication_is_answered_by_an_empty_identified():
    frame = ServerConnection(LIMITS).answer(received(Operation.IDENTIFY), Identified())
    assert client_after(frame).next_answer(Operation.IDENTIFY).answer == Identified()
    assert frame[HEADER_SIZE:].endswith(b"\xc0\xc0\xc0\xc0")


def test_the_answer_to_a_trim_has_one_element():
    frame = ServerConnection(LIMITS).answer(received(Operation.TRIM, None), Trimmed())
    assert frame[HEADER_SIZE:] == b"\x91\xc0"


def test_a_leg_without_events_can_be_said():
    """It is the law that refuses it (2000), so that its answer is the same everywhere."""
    empty = Write(UUID(int=7), (Leg(KEY, (), 0, True, True),))
    assert server_after(frame_of(empty)).next_request().request == empty
