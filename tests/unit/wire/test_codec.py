"""Bodies: what is written is read back, fast and by hand agree, and nothing else gets through."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from landed.ids import AggregateKey
from landed.log import Event, Leg, Write
from landed.wire import codec
from landed.wire.cursor import VALUES_MAX, Cursor, MalformedBodyError
from landed.wire.messages import Identify, Operation
from tests.unit.wire import loose
from tests.unit.wire.loose import Node
from tests.unit.wire.strategies import any_request, any_success, correlations, some_events
from tests.unit.wire.vectors import requests, successes

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
OTHER = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=4))
EVENT = Event.new(1, b"deposit", client_seq=5, event_id=UUID(int=9))

BODIES = [(True, v.operation, v.body) for v in requests("canonical")] + [
    (False, v.operation, v.body) for v in successes("canonical")
]
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reader(operation: Operation, *, is_request: bool):
    forms = codec._REQUESTS if is_request else codec._ANSWERS
    return forms[operation].reader


def read_by_hand(operation: Operation, body: bytes, *, is_request: bool):
    return reader(operation, is_request=is_request).read_by_hand(body)


def write(*events: Event, key: AggregateKey = KEY) -> Write:
    return Write.to(key, events, client_id=UUID(int=7), expected_version=0)


# --- there and back -------------------------------------------------------------------------------


@relaxed
@given(any_request, correlations)
def test_every_request_comes_back_as_it_was_sent(sent, correlation):
    operation, request = sent
    body = codec.encode_request(operation, request, correlation)
    assert codec.decode_request(operation, body) == (request, correlation)


@relaxed
@given(any_success, correlations)
def test_every_success_comes_back_as_it_was_sent(sent, correlation):
    operation, answer = sent
    body = codec.encode_answer(answer, correlation)
    assert codec.decode_answer(operation, body) == (answer, correlation)


@relaxed
@given(some_events)
def test_encoded_events_come_back(events):
    assert codec.decode_events(codec.encode_events(events)) == events
    assert codec.decode_events(memoryview(codec.encode_events(list(events)))) == events


def test_events_that_were_read_are_as_good_as_the_logs_own():
    (event,) = codec.decode_events(codec.encode_events([EVENT]))
    assert isinstance(event, Event)
    assert (event, hash(event)) == (EVENT, hash(EVENT))
    assert event._replace(event_seq=3) == EVENT._replace(event_seq=3)


@pytest.mark.parametrize(
    "data", [b"", b"\x90\x00", b"\xc0", b"\x91\x97", codec.encode_events([EVENT])[:-1]]
)
def test_events_that_were_never_written_are_refused(data):
    with pytest.raises(ValueError, match="no encoded events"):
        codec.decode_events(data)


# --- the slow way agrees with the fast one --------------------------------------------------------


@relaxed
@given(any_request, correlations)
def test_both_ways_read_the_same_request(sent, correlation):
    operation, request = sent
    body = codec.encode_request(operation, request, correlation)
    fast = reader(operation, is_request=True).read_canonical(body)
    assert fast is not None
    assert read_by_hand(operation, body, is_request=True) == fast


@relaxed
@given(any_success, correlations)
def test_both_ways_read_the_same_answer(sent, correlation):
    operation, answer = sent
    body = codec.encode_answer(answer, correlation)
    fast = reader(operation, is_request=False).read_canonical(body)
    assert fast is not None
    assert read_by_hand(operation, body, is_request=False) == fast


@relaxed
@given(st.sampled_from(BODIES), st.data())
def test_every_form_that_must_or_should_be_accepted_means_the_same(known, data):
    is_request, operation, body = known
    tree = loose.parse(body)
    written = loose.write(tree, lambda forms: data.draw(st.sampled_from(forms)))
    trailing = data.draw(st.binary(max_size=3))
    decode = codec.decode_request if is_request else codec.decode_answer
    assert decode(operation, written + trailing) == decode(operation, body)


@relaxed
@given(st.sampled_from(BODIES), st.data())
def test_a_spoiled_body_is_refused_or_both_ways_read_the_same(known, data):
    is_request, operation, body = known
    position = data.draw(st.integers(0, len(body) - 1))
    spoiled = bytearray(body)
    match data.draw(st.sampled_from(["change", "cut", "insert", "remove"])):
        case "change":
            spoiled[position] = data.draw(st.integers(0, 255))
        case "cut":
            del spoiled[position:]
        case "insert":
            spoiled[position:position] = data.draw(st.binary(min_size=1, max_size=4))
        case "remove":
            del spoiled[position]
    agree(is_request, operation, bytes(spoiled))


@relaxed
@given(st.booleans(), st.sampled_from(Operation), st.binary(max_size=200))
def test_random_bytes_are_refused_or_both_ways_read_the_same(is_request, operation, body):
    agree(is_request, operation, body)


def agree(is_request: bool, operation: Operation, body: bytes) -> None:
    fast = reader(operation, is_request=is_request).read_canonical(body)
    if fast is not None:
        assert read_by_hand(operation, body, is_request=is_request) == fast
    decode = codec.decode_request if is_request else codec.decode_answer
    try:
        decode(operation, body)
    except MalformedBodyError:
        # What is refused has no legal meaning, except one beyond the shape.
        if fast is not None:
            assert operation in {Operation.IDENTIFY, Operation.FEED}


# --- what nobody may send -------------------------------------------------------------------------


def spoil(tree: Node, path: tuple[int, ...], new: Node) -> Node:
    """Replace one node; in a map, 0 is the first key and 1 its value."""
    if not path:
        return new
    step, *rest = path
    if tree.kind == "map":
        pairs = [part for pair in tree.value for part in pair]
        pairs[step] = spoil(pairs[step], tuple(rest), new)
        return Node("map", list(zip(pairs[::2], pairs[1::2], strict=True)))
    items = list(tree.value)
    items[step] = spoil(items[step], tuple(rest), new)
    return Node("array", items)


FULL = Write.to(
    KEY,
    [EVENT._replace(iv=b"i" * 12)],
    client_id=UUID(int=7),
    user_id=UUID(int=8),
    expected_version=3,
)
# Paths into a WriteRequest: correlation, client, user, writes -> first entry's key and value.
CLIENT = (1,)
KEY_PART = (3, 0, 2)
EVENT_PATH = (3, 1, 0, 0)
EVENT_ID = (*EVENT_PATH, 2)
SEQUENCE = (*EVENT_PATH, 0)
PAYLOAD = (*EVENT_PATH, 6)
IV = (*EVENT_PATH, 7)
ALLOW_CREATE = (3, 1, 1)
EXPECTED = (3, 1, 2)


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (SEQUENCE, Node("int", -1)),
        (SEQUENCE, Node("int", -(2**63))),
        (SEQUENCE, Node("float", 5.0)),
        (SEQUENCE, Node("bool", True)),
        (SEQUENCE, Node("nil", None)),
        (SEQUENCE, Node("str", b"5")),
        (SEQUENCE, Node("bin", b"\x05")),
        (EXPECTED, Node("int", -1)),
        (EXPECTED, Node("float", 3.0)),
        (ALLOW_CREATE, Node("int", 1)),
        (ALLOW_CREATE, Node("nil", None)),
        (CLIENT, Node("nil", None)),
        (CLIENT, Node("int", -7)),
        (CLIENT, Node("bin", b"x" * 15)),
        (CLIENT, Node("bin", b"x" * 17)),
        (CLIENT, Node("str", b"00000000-0000-0000-0000-000000000007")),
        (EVENT_ID, Node("str", b"00000000-0000-0000-0000-000000000007")),
        (KEY_PART, Node("str", b"x" * 16)),
        (KEY_PART, Node("bin", b"x" * 15)),
        (KEY_PART, Node("nil", None)),
        (PAYLOAD, Node("nil", None)),
        (PAYLOAD, Node("int", 5)),
        (PAYLOAD, Node("array", [Node("int", 256)])),
        (PAYLOAD, Node("array", [Node("int", -1)])),
        (PAYLOAD, Node("array", [Node("bin", b"x")])),
        (IV, Node("bin", b"i" * 11)),
        (IV, Node("bin", b"i" * 13)),
        (IV, Node("str", b"i" * 11)),
        (IV, Node("int", 1)),
        ((3,), Node("array", [])),
        ((3,), Node("nil", None)),
        ((3, 0), Node("int", 1)),
        ((3, 1), Node("array", [])),
        ((3, 1, 0), Node("nil", None)),
        (EVENT_PATH, Node("nil", None)),
        ((), Node("nil", None)),
        ((), Node("int", 1)),
        ((), Node("map", [])),
    ],
)  # fmt: skip
def test_a_write_with_something_else_in_a_field_is_refused(path, new):
    tree = loose.parse(codec.encode_request(Operation.WRITE, FULL, b"c" * 16))
    with pytest.raises(MalformedBodyError):
        codec.decode_request(Operation.WRITE, loose.write(spoil(tree, path, new)))


@pytest.mark.parametrize("path", [CLIENT, EVENT_ID, KEY_PART, (0,)])
@pytest.mark.parametrize("header", [b"\xc5\x00\x10", b"\xc6\x00\x00\x00\x10"])
def test_a_128_bit_number_is_never_bin16_or_bin32(path, header):
    body = codec.encode_request(Operation.WRITE, FULL, b"c" * 16)
    marker = b"%MARKER%12345678"
    tree = spoil(loose.parse(body), path, Node("bin", marker))
    spoiled = loose.write(tree).replace(b"\xc4\x10" + marker, header + marker)
    assert spoiled.count(header) == 1
    with pytest.raises(MalformedBodyError):
        codec.decode_request(Operation.WRITE, spoiled)


@pytest.mark.parametrize(("is_request", "operation", "body"), BODIES)
def test_a_struct_with_an_element_too_many_is_refused(is_request, operation, body):
    tree = loose.parse(body)
    decode = codec.decode_request if is_request else codec.decode_answer
    with pytest.raises(MalformedBodyError):
        decode(operation, loose.write(Node("array", [*tree.value, Node("nil", None)])))


@pytest.mark.parametrize(("is_request", "operation", "body"), BODIES)
def test_a_struct_with_an_element_too_few_is_refused(is_request, operation, body):
    tree = loose.parse(body)
    decode = codec.decode_request if is_request else codec.decode_answer
    missing_allowed = {(True, Operation.IDENTIFY): 1, (False, Operation.IDENTIFY): 2}
    allowed = missing_allowed.get((is_request, operation), 0)
    for dropped in range(1, len(tree.value) + 1):
        short = loose.write(Node("array", tree.value[:-dropped]))
        if dropped <= allowed:
            decode(operation, short)
        else:
            with pytest.raises(MalformedBodyError):
                decode(operation, short)


@pytest.mark.parametrize("count", [6, 9])
def test_an_event_has_seven_or_eight_elements(count):
    tree = loose.parse(codec.encode_request(Operation.WRITE, FULL, None))
    event = [Node("int", 1)] * 2 + [Node("nil", None)] + [Node("int", 1)] * 3
    event += [Node("bin", b"x"), Node("nil", None), Node("nil", None)]
    spoiled = spoil(tree, EVENT_PATH, Node("array", event[:count]))
    with pytest.raises(MalformedBodyError):
        codec.decode_request(Operation.WRITE, loose.write(spoiled))
    eight = spoil(tree, EVENT_PATH, Node("array", event[:8]))
    seven = spoil(tree, EVENT_PATH, Node("array", event[:7]))
    assert codec.decode_request(Operation.WRITE, loose.write(seven)) == codec.decode_request(
        Operation.WRITE, loose.write(eight)
    )


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.DELETE])
def test_an_aggregate_named_twice_is_refused(operation):
    """Log rule M9; a decoder that kept the last one would drop a leg in silence."""
    body = next(body for is_request, op, body in BODIES if is_request and op is operation)
    tree = loose.parse(body)
    ((key, leg), *_) = tree.value[3].value
    twice = Node("map", [(key, leg), (key, leg)])
    for choose in (loose.first, lambda forms: forms[-1]):
        spoiled = loose.write(spoil(tree, (3,), twice), choose)
        with pytest.raises(MalformedBodyError, match="twice"):
            codec.decode_request(operation, spoiled)


def test_an_aggregate_named_in_two_forms_is_named_twice():
    tree = loose.parse(codec.encode_request(Operation.WRITE, write(EVENT), None))
    ((key, leg),) = tree.value[3].value
    as_number = Node("array", [Node("int", 1), Node("int", 2), Node("int", 3)])
    spoiled = spoil(tree, (3,), Node("map", [(key, leg), (as_number, leg)]))
    with pytest.raises(MalformedBodyError, match="twice"):
        codec.decode_request(Operation.WRITE, loose.write(spoiled))


def test_an_access_level_that_does_not_exist_is_refused():
    with pytest.raises(MalformedBodyError, match="access level 3"):
        codec.decode_answer(Operation.IDENTIFY, bytes.fromhex("95c0c003c0c0"))


@pytest.mark.parametrize("code", [b"\xcf\x00\x00\x00\x01\x00\x00\x07\xd3", b"\xff"])
def test_an_error_code_has_32_bits(code):
    assert codec.decode_error(b"\x93\xc0\xcf" + bytes(6) + b"\x07\xd3\xa0") == (2003, "", None)
    with pytest.raises(MalformedBodyError):
        codec.decode_error(b"\x93\xc0" + code + b"\xa0")


# --- what we will not send ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        write(EVENT._replace(client_seq=-1)),
        write(EVENT._replace(client_seq=2**64)),
        write(EVENT._replace(client_seq=True)),
        write(EVENT._replace(event_ms=1.5)),
        write(EVENT._replace(value="text")),
        write(EVENT._replace(value=None)),
        write(EVENT._replace(event_id=str(UUID(int=1)))),
        write(EVENT._replace(event_id=5)),
        write(EVENT._replace(iv=b"short")),
        write(EVENT)._replace(client_id=None),
        write(EVENT)._replace(client_id=b"x" * 15),
        write(EVENT)._replace(user_id="someone"),
        Write(UUID(int=7), (Leg(KEY, (EVENT,), -1, True, True),)),
        Write(UUID(int=7), (Leg(KEY, (EVENT,), 0, 1, True),)),
        Write(UUID(int=7), (Leg(KEY, (object(),), 0, True, True),)),
        Write(UUID(int=7), (Leg(KEY, (EVENT,), 0, True, True),) * 2),
    ],
)
def test_what_the_protocol_cannot_say_is_not_sent(request_):
    with pytest.raises(MalformedBodyError):
        codec.encode_request(Operation.WRITE, request_, None)


@pytest.mark.parametrize("correlation", [b"", b"x" * 15, b"x" * 17, 5, "x" * 16])
def test_a_correlation_id_has_16_bytes(correlation):
    with pytest.raises(MalformedBodyError):
        codec.encode_request(Operation.WRITE, write(EVENT), correlation)


def test_text_that_is_no_unicode_is_not_sent():
    with pytest.raises(MalformedBodyError):
        codec.encode_request(Operation.IDENTIFY, Identify(api_key="\udc80"), None)


# --- bounds ---------------------------------------------------------------------------------------

HUGE = (2**32 - 1).to_bytes(4, "big")
WRITE_UP_TO_LEGS = bytes.fromhex("94c0c410" + "44" * 16 + "c0")
WRITE_UP_TO_EVENTS = WRITE_UP_TO_LEGS + bytes.fromhex("8193" + ("c410" + "11" * 16) * 3 + "94")
WRITE_UP_TO_PAYLOAD = WRITE_UP_TO_EVENTS + bytes.fromhex("91980100c0000100")


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd" + HUGE,
        WRITE_UP_TO_LEGS + b"\xdf" + HUGE,
        WRITE_UP_TO_EVENTS + b"\xdd" + HUGE,
        WRITE_UP_TO_PAYLOAD + b"\xc6" + HUGE,
        WRITE_UP_TO_PAYLOAD + b"\xdb" + HUGE,
        WRITE_UP_TO_PAYLOAD + b"\xdd" + HUGE,
        WRITE_UP_TO_PAYLOAD + b"\xdd" + HUGE + b"\x00" * 1000,
        b"\x91" * 100_000,
        b"\x81" * 100_000,
    ],
)
def test_a_length_or_a_depth_that_is_only_claimed_costs_nothing(body):
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBodyError):
            codec.decode_request(Operation.WRITE, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body) + 20_000


def test_a_page_that_only_claims_to_be_long_costs_nothing():
    tracemalloc.start()
    try:
        for body in (b"\x93\xc0\xdd" + HUGE, b"\x93\xc0\x91\x95\x01" + b"\xc4\x10" + b"x" * 16):
            with pytest.raises(MalformedBodyError):
                codec.decode_answer(Operation.READ, body + b"\xc0\x01\xdd" + HUGE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_unusual_forms_are_read_up_to_a_bounded_number_of_values():
    def payload_as_numbers(length: int) -> bytes:
        body = WRITE_UP_TO_PAYLOAD + b"\xdd" + length.to_bytes(4, "big") + b"\x07" * length
        return body + bytes.fromhex("c0c3c0c2")

    within = VALUES_MAX - 100
    request, _ = codec.decode_request(Operation.WRITE, payload_as_numbers(within))
    assert request.legs[0].events[0].value == b"\x07" * within
    with pytest.raises(MalformedBodyError, match="unusual form"):
        codec.decode_request(Operation.WRITE, payload_as_numbers(VALUES_MAX))


def test_the_usual_form_has_no_such_bound():
    events = (EVENT._replace(value=b""),) * (VALUES_MAX // 8 + 1)
    body = codec.encode_request(Operation.WRITE, write(*events), None)
    request, _ = codec.decode_request(Operation.WRITE, body)
    assert len(request.legs[0].events) == len(events)


@pytest.mark.parametrize("data", [b"\x92\x00", b"\xdc\x00\x02\x00", b"\xdd\x00\x00\x00\x02\x00"])
def test_a_count_is_not_believed_beyond_the_bytes_that_are_there(data):
    with pytest.raises(MalformedBodyError, match="more than the body holds"):
        Cursor(data).array()
    as_map = bytes([data[0] - 16 if data[0] < 0xA0 else data[0] + 2]) + data[1:]
    with pytest.raises(MalformedBodyError, match="more than the body holds"):
        Cursor(as_map + b"\x00\x00").map()


def test_a_string_that_is_not_utf_8_is_no_text():
    with pytest.raises(MalformedBodyError, match="UTF-8"):
        Cursor(b"\xa1\xff").text()
