"""One connection's protocol, without the connection: bytes in, messages out, and the reverse.

What may come when is a table; a frame that breaks it ends the connection. Both sides hold at most
one incomplete frame besides what a single ``receive`` brought, provided that the caller takes
messages until ``NEED_DATA`` before it receives more.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple

from landed.limits import Limits
from landed.wire.messages import (
    Failure,
    NotUnderstood,
    Operation,
    WireAnswer,
    WireRequest,
)


class NeedData(Enum):
    """Nothing whole has arrived; receive more."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


class Received(NamedTuple):
    """A whole request."""

    request: WireRequest
    correlation: bytes | None
    """16 bytes to be echoed, or nothing."""
    operation: Operation
    size: int
    """Bytes of the frame, header included."""


class Violation(NamedTuple):
    """The client broke the protocol. Send the farewell if there is one, drain, close."""

    reason: str
    farewell: bytes | None
    """A whole ProtocolError frame: it tells the client that its request was not applied."""
    owed: int
    """Bytes of the offending frame that have yet to come; closing with unread input can destroy
    the farewell, so read and discard them, bounded in time."""


class ServerConnection:
    """The server's side of one connection."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def unread(self) -> int:
        """Bytes received and not yet taken as requests."""
        raise NotImplementedError

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the socket; they are copied, so the caller may reuse the buffer."""
        raise NotImplementedError

    def next_request(self) -> Received | Literal[NeedData.NEED_DATA] | Violation:
        """Take the next request in arrival order. After a Violation it stays a Violation."""
        raise NotImplementedError

    def answer(self, received: Received, answer: WireAnswer | Failure) -> bytes:
        """Make the whole frame that answers a request. Answers go out in request order."""
        raise NotImplementedError


class Answered(NamedTuple):
    """A whole answer."""

    answer: WireAnswer | Failure | NotUnderstood
    correlation: bytes | None
    """As echoed; None from a NotUnderstood, which echoes nothing. Compare it (CP-16)."""


class ClientConnection:
    """The client's side of one connection."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def has_unread(self) -> bool:
        """True if bytes are left over: of the next answer, or unsolicited (CP-9)."""
        raise NotImplementedError

    def request(self, request: WireRequest, correlation: bytes | None) -> bytes:
        """Make the whole frame of a request.

        Raises:
            RequestTooLargeError: larger than the protocol or ``max_request_size`` allows; split it.
            LocalProtocolError: the protocol cannot say it (a key twice, a number out of range,
                an iv that has not 12 bytes, Identify not first). Nothing was sent.
        """
        raise NotImplementedError

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the socket; they are copied, so the caller may reuse the buffer."""
        raise NotImplementedError

    def next_answer(self, operation: Operation) -> Answered | Literal[NeedData.NEED_DATA]:
        """Take the next answer, which must be one to ``operation``.

        Raises:
            RemoteProtocolError: the answer cannot be trusted; close the connection. The outcome of
                a change is unknown.
        """
        raise NotImplementedError
