"""Bodies: MessagePack to values and back.

Every body is read fast first: one typed pass by msgspec. That reader takes a little more than the
protocol does (another length format of a 128-bit number, a key that occurs twice, a UUID as text),
so its result counts only if it encodes back to the very same bytes. Everything else, legal or not,
is read by hand. Hence what the fast way takes is canonical by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from landed.log import Deleted, Details, Event, Trimmed
from landed.wire import packing, shapes
from landed.wire.cursor import Cursor, MalformedBodyError
from landed.wire.messages import Failure, LogFacts, Operation, WireAnswer, WireRequest
from landed.wire.packing import Correlation, Decoded

_encode: Final = msgspec.msgpack.Encoder(uuid_format="bytes").encode


class _Reader:
    """Read bodies of one shape into plain tuples."""

    __slots__ = ("_fast", "_read")

    def __init__(self, shape: shapes.Shape) -> None:
        self._fast: Callable[[bytes], Any] = msgspec.msgpack.Decoder(shape.fast).decode
        self._read = shape.read

    def read(self, body: bytes) -> Any:
        """Read a body in any form that must or should be accepted.

        Bytes after the value are ignored.

        Raises:
            MalformedBodyError: it has no such form.
        """
        try:
            raw = self._fast(body)
        except msgspec.DecodeError:
            return self.read_by_hand(body)
        return raw if _encode(raw) == body else self.read_by_hand(body)

    def read_canonical(self, body: bytes) -> Any:
        """Read a body in the form that we would write ourselves; None for any other."""
        try:
            raw = self._fast(body)
        except msgspec.DecodeError:
            return None
        return raw if _encode(raw) == body else None

    def read_by_hand(self, body: bytes) -> Any:
        """Read a body without the fast reader."""
        return self._read(Cursor(body))


# --- Events ---------------------------------------------------------------------------------------

_EVENTS: Final = _Reader(shapes.EVENTS)


def encode_events(events: Iterable[Event]) -> bytes:
    """Write events as one MessagePack array, the form in which they travel."""
    return _encode(tuple(events))


def decode_events(data: bytes | bytearray | memoryview) -> tuple[Event, ...]:
    """Take events back from ``encode_events``.

    Raises:
        ValueError: these bytes were never written by it.
    """
    raw = _EVENTS.read_canonical(bytes(data))
    if raw is None:
        raise MalformedBodyError("these are no encoded events")
    return tuple(raw)


# --- Whole bodies ---------------------------------------------------------------------------------


class _RequestForm(NamedTuple):
    reader: _Reader
    read: Callable[[bytes], Decoded]
    """The body whole, up to the value: one step for each request."""


def _request_form(shape: shapes.Shape, build: Callable[[Any], Decoded]) -> _RequestForm:
    reader = _Reader(shape)
    plain = reader.read

    def read(body: bytes) -> Decoded:
        return build(plain(body))

    return _RequestForm(reader, read)


class _AnswerForm(NamedTuple):
    reader: _Reader
    build: Callable[..., WireAnswer]


_REQUESTS: Final = {
    Operation.DETAILS: _request_form(shapes.DETAILS_REQUEST, packing.details_request),
    Operation.READ: _request_form(shapes.READ_REQUEST, packing.read_request),
    Operation.WRITE: _request_form(shapes.WRITE_REQUEST, packing.write_request),
    Operation.TRIM: _request_form(shapes.TRIM_REQUEST, packing.trim_request),
    Operation.DELETE: _request_form(shapes.DELETE_REQUEST, packing.delete_request),
    Operation.IDENTIFY: _request_form(shapes.IDENTIFY_REQUEST, packing.identify_request),
    Operation.FEED: _request_form(shapes.FEED_REQUEST, packing.feed_request),
    Operation.PROBE: _request_form(shapes.PROBE_REQUEST, packing.probe_request),
}

REQUEST_READERS: Final = {operation: form.read for operation, form in _REQUESTS.items()}
"""``decode_request`` by operation, for who reads one after the other."""

_ANSWERS: Final = {
    Operation.DETAILS: _AnswerForm(_Reader(shapes.DETAILS_ANSWER), lambda _, *f: Details(*f)),
    Operation.READ: _AnswerForm(_Reader(shapes.READ_ANSWER), packing.page),
    Operation.WRITE: _AnswerForm(_Reader(shapes.WRITE_ANSWER), packing.landed),
    Operation.TRIM: _AnswerForm(_Reader(shapes.TRIM_ANSWER), lambda _: Trimmed()),
    Operation.DELETE: _AnswerForm(_Reader(shapes.DELETE_ANSWER), lambda _: Deleted()),
    Operation.IDENTIFY: _AnswerForm(_Reader(shapes.IDENTIFY_ANSWER), packing.identified),
    Operation.FEED: _AnswerForm(_Reader(shapes.FEED_ANSWER), packing.feed_page),
    Operation.PROBE: _AnswerForm(_Reader(shapes.PROBE_ANSWER), lambda _, *f: LogFacts(*f)),
}

_ERROR: Final = _Reader(shapes.ERROR_ANSWER)
_PROTOCOL_ERROR: Final = _Reader(shapes.PROTOCOL_ERROR)

PROTOCOL_ERROR_BODY: Final = _encode(())


def decode_request(operation: Operation, body: bytes) -> Decoded:
    """Read the body of a request.

    Raises:
        MalformedBodyError: it is not one.
    """
    return REQUEST_READERS[operation](body)


def encode_request(operation: Operation, request: WireRequest, correlation: Correlation) -> bytes:
    """Write the body of a request, in a form that every server takes.

    Raises:
        MalformedBodyError: the protocol cannot say it: a key twice, a number out of range, an iv
            or a correlation id of another length, a value of another kind.
    """
    try:
        body = _encode(packing.request_tuple(request, correlation))
    except (OverflowError, TypeError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise MalformedBodyError(str(error)) from None
    # What we send must be what the strictest reader takes; this finds negative numbers and such.
    if _REQUESTS[operation].reader.read_canonical(body) is None:
        raise MalformedBodyError(f"the protocol has no words for this {type(request).__name__}")
    return body


def decode_answer(operation: Operation, body: bytes) -> tuple[WireAnswer, Correlation]:
    """Read the body of a success.

    Raises:
        MalformedBodyError: it is not one.
    """
    form = _ANSWERS[operation]
    raw = form.reader.read(body)
    return form.build(*raw), raw[0]


def encode_answer(answer: WireAnswer | Failure, correlation: Correlation) -> bytes | None:
    """Write the body of a success; None for anything else, which is an error frame's matter."""
    layout = packing.ELEMENTS.get(type(answer))
    return None if layout is None else _encode(layout(answer, correlation))


def decode_error(body: bytes) -> tuple[int, str, Correlation]:
    """Read an ErrorResponse: code, text, correlation id.

    Raises:
        MalformedBodyError: it is not one.
    """
    correlation, code, text = _ERROR.read(body)
    return code, text, correlation


def encode_error(code: int, text: str, correlation: Correlation) -> bytes:
    """Write an ErrorResponse. The caller has made the text fit."""
    return _encode((correlation, code, text))


def check_protocol_error(body: bytes) -> None:
    """Read a ProtocolErrorResponse, which holds nothing.

    Raises:
        MalformedBodyError: it is not one.
    """
    _PROTOCOL_ERROR.read(body)
