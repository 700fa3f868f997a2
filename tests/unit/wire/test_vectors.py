"""Every frame of the specification that this product speaks means here what it says there."""

from __future__ import annotations

import pytest

from landed.limits import Limits
from landed.wire.connection import (
    NEED_DATA,
    ClientConnection,
    Received,
    ServerConnection,
    Violation,
)
from landed.wire.messages import Failure, NotUnderstood, Operation
from landed.wire.refusals import answer_of, failure_from
from tests.unit.wire.vectors import Vector, named, requests, section, successes

LIMITS = Limits()
ERROR = 7


def taken_by_a_server(frame: bytes):
    server = ServerConnection(LIMITS)
    server.receive(frame)
    return server.next_request()


def taken_by_a_client(frame: bytes, operation: Operation):
    client = ClientConnection(LIMITS)
    client.receive(frame)
    return client.next_answer(operation)


@pytest.mark.parametrize("vector", requests("canonical"), ids=repr)
def test_a_request_frame_is_read_as_what_it_says(vector: Vector):
    received = taken_by_a_server(vector.frame)
    assert received == Received(
        vector.value, vector.correlation, vector.operation, len(vector.frame)
    )


@pytest.mark.parametrize("vector", requests("canonical"), ids=repr)
def test_a_request_is_written_byte_for_byte(vector: Vector):
    assert ClientConnection(LIMITS).request(vector.value, vector.correlation) == vector.frame


@pytest.mark.parametrize("vector", successes("canonical"), ids=repr)
def test_an_answer_frame_is_read_as_what_it_says(vector: Vector):
    answered = taken_by_a_client(vector.frame, vector.operation)
    assert answered == (vector.value, vector.correlation)


@pytest.mark.parametrize("vector", successes("canonical"), ids=repr)
def test_an_answer_is_written_byte_for_byte(vector: Vector):
    received = Received(None, vector.correlation, vector.operation, 0)
    assert ServerConnection(LIMITS).answer(received, vector.value) == vector.frame


@pytest.mark.parametrize(
    "vector", [v for v in section("canonical") if not v.is_request and v.type == ERROR], ids=repr
)
def test_an_error_frame_is_read_with_its_code_and_written_byte_for_byte(vector: Vector):
    code, text = vector.decoded["error_code"], vector.decoded["error_message"]
    failure = failure_from(code, text)
    answered = taken_by_a_client(vector.frame, Operation.WRITE)
    assert answered == (answer_of(Operation.WRITE, failure), vector.correlation)
    received = Received(None, vector.correlation, Operation.WRITE, 0)
    assert ServerConnection(LIMITS).answer(received, Failure(code, {}, text)) == vector.frame
    if failure.fields:
        assert ServerConnection(LIMITS).answer(received, failure) == vector.frame


def test_the_protocol_error_frame_says_that_the_request_was_not_understood():
    vector = named("res_protocol_error")
    assert taken_by_a_client(vector.frame, Operation.WRITE) == (NotUnderstood(), None)
    # An unassigned type is answered with exactly this frame.
    violation = taken_by_a_server(named("rej_unknown_request_type_11").frame)
    assert violation.farewell == vector.frame


@pytest.mark.parametrize("vector", section("lenient"), ids=repr)
def test_a_form_that_must_or_should_be_accepted_is_accepted(vector: Vector):
    if vector.is_request:
        taken = taken_by_a_server(vector.frame)[:2]
    else:
        taken = taken_by_a_client(vector.frame, vector.operation)
    assert taken == (vector.value, vector.correlation)


@pytest.mark.parametrize("vector", [v for v in section("reject") if v.is_request], ids=repr)
def test_a_frame_that_must_be_rejected_is_a_violation(vector: Vector):
    taken = taken_by_a_server(vector.frame)
    assert isinstance(taken, Violation)


def test_an_answer_that_must_be_rejected_is_not_trusted():
    for name, operation in (
        ("rej_access_level_string", Operation.IDENTIFY),
        ("rej_protocol_error_nil", Operation.WRITE),
    ):
        client = ClientConnection(LIMITS)
        client.receive(named(name).frame)
        with pytest.raises(Exception, match="expected") as caught:
            client.next_answer(operation)
        assert type(caught.value).__name__ == "RemoteProtocolError"


@pytest.mark.parametrize("vector", section("not_served"), ids=repr)
def test_a_request_that_is_not_served_yet_is_an_unknown_type(vector: Vector):
    """Watch, lists and schemas: not applied, says the farewell, and the connection closes."""
    violation = taken_by_a_server(vector.frame)
    assert violation.farewell == named("res_protocol_error").frame
    assert violation.reason == f"unknown message type {vector.type}"


@pytest.mark.parametrize("vector", [v for v in section("compressed") if v.is_request], ids=repr)
def test_a_compressed_request_closes_the_connection(vector: Vector):
    violation = taken_by_a_server(vector.frame)
    assert violation.farewell is None
    assert "dictionary" in violation.reason


@pytest.mark.parametrize(
    "vector", [v for v in section("version_2") if v.name.startswith("v2_req")], ids=repr
)
def test_a_version_2_request_gets_the_17_bytes_that_its_client_understands(vector: Vector):
    violation = taken_by_a_server(vector.frame)
    assert violation.farewell == bytes.fromhex("0200000006000000000000000000000000")
    assert violation.farewell == named("v2_res_protocol_error").frame


def test_a_version_2_answer_is_not_trusted():
    client = ClientConnection(LIMITS)
    client.receive(named("v2_res_write_single").frame)
    with pytest.raises(Exception, match="version 2"):
        client.next_answer(Operation.WRITE)


def test_nothing_is_taken_of_an_empty_stream():
    assert taken_by_a_server(b"") is NEED_DATA
    assert taken_by_a_client(b"", Operation.WRITE) is NEED_DATA
