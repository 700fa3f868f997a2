"""One connection's protocol, without the connection: bytes in, messages out, and the reverse.

What may come when is a table; a frame that breaks it ends the connection. Both sides hold at most
one incomplete frame besides what a single ``receive`` brought, provided that the caller takes
messages until ``NEED_DATA`` before it receives more.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple

from landed.errors import LocalProtocolError, RemoteProtocolError, RequestTooLargeError
from landed.limits import Limits
from landed.log import Unknown
from landed.wire import codec
from landed.wire.cursor import MalformedBodyError
from landed.wire.frames import (
    ANSWER_TYPES,
    ANSWERS_VARIABLE,
    ERROR_TYPE,
    FIXED_BODY_MAX,
    HEADER_SIZE,
    PROTOCOL_ERROR_TYPE,
    REQUESTS_FIXED,
    VERSION,
    VERSION_2,
    FrameBuffer,
    Header,
    frame,
)
from landed.wire.messages import (
    Failure,
    NotUnderstood,
    Operation,
    WireAnswer,
    WireRequest,
    operation_of,
)
from landed.wire.refusals import answer_of, failure_from, failure_of, text_for


class NeedData(Enum):
    """Nothing whole has arrived; receive more."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA

_OPERATIONS: Final = {
    operation.value: (operation, codec.REQUEST_READERS[operation], operation in REQUESTS_FIXED)
    for operation in Operation
}
_PROTOCOL_ERROR_FRAME: Final = frame(PROTOCOL_ERROR_TYPE, codec.PROTOCOL_ERROR_BODY)
_PROTOCOL_ERROR_FRAME_2: Final = frame(PROTOCOL_ERROR_TYPE, b"", version=VERSION_2)
"""In version 2 a struct without fields is no byte at all."""


_new = tuple.__new__  # past the constructor, as in packing.py


class State(Enum):
    """The life of a connection, the same on both sides."""

    FRESH = "fresh"
    """No request yet."""
    OPEN = "open"
    BROKEN = "broken"
    """The protocol was violated; nothing can be trusted any more."""


_BROKEN: Final = State.BROKEN  # an enumeration's members are looked up slowly
_ALWAYS: Final = frozenset(Operation) - {Operation.IDENTIFY}  # who is calling is said first
NEXT_STATE: Final[Mapping[State, Mapping[Operation, State]]] = {
    State.FRESH: dict.fromkeys(Operation, State.OPEN),
    State.OPEN: dict.fromkeys(_ALWAYS, State.OPEN),
    State.BROKEN: {},
}
"""What a request makes of a connection. One that is not here is a violation."""


class Received(NamedTuple):
    """A whole request."""

    request: WireRequest
    correlation: bytes | None
    """16 bytes to be echoed, or nothing."""
    operation: Operation
    size: int
    """Bytes of the frame, header included."""


class Violation(NamedTuple):
    """The client broke the protocol. Answer what came before, send the farewell, drain, close."""

    reason: str
    farewell: bytes | None
    """A whole ProtocolError frame: it tells the client that its request was not applied. None
    where the header itself is broken, so that nobody knows what would understand it."""
    owed: int
    """Bytes of the offending frame that have yet to come; closing with unread input can destroy
    the farewell, so read and discard them, bounded in time."""


class ServerConnection:
    """The server's side of one connection."""

    __slots__ = ("_buffer", "_limits", "_next", "_request_max", "_state", "_violation")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._request_max = limits.max_request_size
        self._buffer = FrameBuffer()
        self._state = State.FRESH
        self._next = NEXT_STATE[State.FRESH]
        self._violation: Violation | None = None

    @property
    def unread(self) -> int:
        """Bytes received and not yet taken as requests."""
        return len(self._buffer)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the socket; they are copied, so the caller may reuse the buffer.

        Nothing is kept after a violation.
        """
        if self._violation is None:
            self._buffer.receive(data)

    def next_request(self) -> Received | Literal[NeedData.NEED_DATA] | Violation:
        """Take the next request in arrival order. After a Violation it stays a Violation."""
        if self._violation is not None:
            return self._violation
        header = self._buffer.header()
        if header is None:
            return NEED_DATA
        version, type, length, plain_length, compression = header
        known = _OPERATIONS.get(type)
        if known is None:
            return self._refuse(header)
        operation, read, is_fixed = known
        # The last three say, faster, that ``Header.flaw`` would find nothing.
        if (
            version != VERSION
            or compression
            or length != plain_length
            or length > (FIXED_BODY_MAX if is_fixed else self._request_max)
        ):
            return self._refuse(header)
        body = self._buffer.take(length)
        if body is None:
            return NEED_DATA
        state = self._next.get(operation)
        if state is not self._state:
            if state is None:
                return self._violated(f"{operation.name} is not allowed now", _PROTOCOL_ERROR_FRAME)
            self._state, self._next = state, NEXT_STATE[state]
        try:
            request, correlation = read(body)
        except MalformedBodyError as error:
            return self._violated(f"{operation.name}: {error}", _PROTOCOL_ERROR_FRAME)
        return _new(Received, (request, correlation, operation, HEADER_SIZE + length))

    def answer(self, received: Received, answer: WireAnswer | Failure) -> bytes:
        """Make the whole frame that answers a request. Answers go out in request order."""
        _request, correlation, operation, _size = received
        body = codec.encode_answer(answer, correlation)
        if body is None:
            refused = answer if isinstance(answer, Failure) else failure_of(operation, answer)
            return _error_frame(refused, correlation)
        if len(body) > self._limits.max_frame_size:
            # Only a single batch can be so large, and only if a limit was lowered after it landed.
            detail = f"the answer has {len(body)} bytes; no client takes so many"
            unreadable = failure_of(operation, Unknown(detail))
            return _error_frame(unreadable, correlation)
        return frame(ANSWER_TYPES[operation], body)

    def _body_max(self, type: int) -> int:
        return FIXED_BODY_MAX if type in REQUESTS_FIXED else self._limits.max_request_size

    def _refuse(self, header: Header) -> Violation:
        """Say why a header ends the connection, and whether the client is told."""
        if header.version not in {VERSION, VERSION_2}:
            return self._violated(f"protocol version {header.version}", None)
        flaw = header.flaw(body_max=self._body_max(header.type))
        arrived = len(self._buffer) - HEADER_SIZE
        owed = max(0, header.length - arrived)
        if flaw is not None:
            return self._violated(flaw, None, owed=owed)
        if header.version == VERSION_2:
            return self._violated("protocol version 2", _PROTOCOL_ERROR_FRAME_2, owed=owed)
        assert header.type not in _OPERATIONS
        reason = f"unknown message type {header.type}"
        return self._violated(reason, _PROTOCOL_ERROR_FRAME, owed=owed)

    def _violated(self, reason: str, farewell: bytes | None, *, owed: int = 0) -> Violation:
        self._state, self._next = State.BROKEN, NEXT_STATE[State.BROKEN]
        self._buffer.clear()
        self._violation = Violation(reason, farewell, owed)
        return self._violation


def _error_frame(failure: Failure, correlation: bytes | None) -> bytes:
    text = text_for(failure, body_max=FIXED_BODY_MAX, has_correlation=correlation is not None)
    return frame(ERROR_TYPE, codec.encode_error(failure.code, text, correlation))


class Answered(NamedTuple):
    """A whole answer."""

    answer: WireAnswer | Failure | NotUnderstood
    correlation: bytes | None
    """As echoed; None from a NotUnderstood, which echoes nothing. Compare it (CP-16)."""


class ClientConnection:
    """The client's side of one connection."""

    __slots__ = ("_buffer", "_flaw", "_limits", "_next", "_state")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = FrameBuffer()
        self._state = State.FRESH
        self._next = NEXT_STATE[State.FRESH]
        self._flaw = ""

    @property
    def has_unread(self) -> bool:
        """True if bytes are left over: of the next answer, or unsolicited (CP-9)."""
        return len(self._buffer) > 0

    def request(self, request: WireRequest, correlation: bytes | None) -> bytes:
        """Make the whole frame of a request.

        Raises:
            RequestTooLargeError: larger than the protocol or ``max_request_size`` allows; split it.
            LocalProtocolError: the protocol cannot say it (a key twice, a number out of range,
                an iv that has not 12 bytes, Identify not first). Nothing was sent.
        """
        operation = operation_of(request)
        state = self._next.get(operation)
        if state is None:
            raise LocalProtocolError(
                f"{operation.name} cannot be sent on a {self._state.value} one"
            )
        try:
            body = codec.encode_request(operation, request, correlation)
        except MalformedBodyError as error:
            raise LocalProtocolError(str(error)) from None
        is_fixed = operation in REQUESTS_FIXED
        body_max = FIXED_BODY_MAX if is_fixed else self._limits.max_request_size
        if len(body) > body_max:
            raise RequestTooLargeError(
                f"{operation.name} has {len(body)} bytes; {body_max} are allowed"
            )
        if state is not self._state:
            self._state, self._next = state, NEXT_STATE[state]
        return frame(operation, body)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the socket; they are copied, so the caller may reuse the buffer."""
        if self._state is not _BROKEN:
            self._buffer.receive(data)

    def next_answer(self, operation: Operation) -> Answered | Literal[NeedData.NEED_DATA]:
        """Take the next answer, which must be one to ``operation``.

        Raises:
            RemoteProtocolError: the answer cannot be trusted; close the connection. The outcome of
                a change is unknown. It stays so.
        """
        if self._state is _BROKEN:
            raise RemoteProtocolError(self._flaw)
        header = self._buffer.header()
        if header is None:
            return NEED_DATA
        version, type, length, plain_length, compression = header
        is_success = type == ANSWER_TYPES[operation]
        # Says, faster, that ``_flaw_of`` would find nothing.
        if (
            not is_success
            or version != VERSION
            or compression
            or length != plain_length
            or length > FIXED_BODY_MAX
        ) and (flaw := self._flaw_of(header, operation)):
            raise self._broken(flaw)
        body = self._buffer.take(length)
        if body is None:
            return NEED_DATA
        try:
            if is_success:
                return _new(Answered, codec.decode_answer(operation, body))
            return self._answered(type, body, operation)
        except MalformedBodyError as error:
            raise self._broken(f"answer to {operation.name}: {error}") from None

    def _answered(self, type: int, body: bytes, operation: Operation) -> Answered:
        """What is no success."""
        if type == ERROR_TYPE:
            code, text, correlation = codec.decode_error(body)
            return Answered(answer_of(operation, failure_from(code, text)), correlation)
        codec.check_protocol_error(body)
        self._broken("the node could not read a request and closes the connection")
        return Answered(NotUnderstood(), None)

    def _flaw_of(self, header: Header, operation: Operation) -> str | None:
        if header.version != VERSION:
            return f"an answer in protocol version {header.version}"
        if header.type not in {ANSWER_TYPES[operation], ERROR_TYPE, PROTOCOL_ERROR_TYPE}:
            return f"message type {header.type} in answer to {operation.name}"
        is_variable = header.type in ANSWERS_VARIABLE
        body_max = self._limits.max_frame_size if is_variable else FIXED_BODY_MAX
        return header.flaw(body_max=body_max)

    def _broken(self, flaw: str) -> RemoteProtocolError:
        self._state, self._next = _BROKEN, NEXT_STATE[_BROKEN]
        self._flaw = flaw
        self._buffer.clear()
        return RemoteProtocolError(flaw)
