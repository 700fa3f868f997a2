"""What this process refuses by itself, the same for every ``Log``."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from landed.errors import LocalProtocolError, MalformedWriteError
from landed.ids import AggregateKey
from landed.log import Delete, Event, FeedRead, Mutation, Read, ReadFilters, Request, Trim, Write

_NUMBER_END: Final = 2**64
_IV_BYTES: Final = 12
_UNSET: Final = ReadFilters()[3:]


def check_shape(mutation: Mutation) -> None:
    """Refuse a change that no log would take, before anything is sent.

    Raises:
        MalformedWriteError: no aggregate, or no event for one of them; change the request.
        LocalProtocolError: an aggregate named twice, which the protocol cannot say.

    Source: pool rule CP-34.
    """
    if isinstance(mutation, Trim):
        return
    legs = mutation.legs
    if not legs:
        raise MalformedWriteError("it names no aggregate", code=9002)
    if len(legs) > 1 and len({leg.key for leg in legs}) < len(legs):
        raise LocalProtocolError("it names an aggregate twice")
    if isinstance(mutation, Write):
        for leg in mutation.legs:
            if not leg.events:
                raise MalformedWriteError(f"no event for {leg.key}", code=2000)


def check_values(request: Request) -> None:
    """Refuse values that the protocol has no words for: of another kind, or out of range.

    Over a wire the codec does that. An engine in this process would find them while it commits,
    together with what others have in the same group, or would keep what no node ever takes.

    Raises:
        LocalProtocolError: the first such value.
    """
    match request:
        case Write(client_id, legs, user_id):
            _check_ids(client_id, client_id if user_id is None else user_id)
            for leg in legs:
                _check_key(leg.key)
                _check_bounds("expected_version", leg.expected_version)
                for event in leg.events:
                    _check_event(event)
        case Delete(client_id, delete_legs, user_id):
            _check_ids(client_id, client_id if user_id is None else user_id)
            for delete_leg in delete_legs:
                _check_key(delete_leg.key)
                _check_bounds("expected_version", delete_leg.expected_version)
        case Trim(key, keep_from, client_id, user_id):
            _check_key(key)
            _check_numbers("keep_from", keep_from)
            _check_ids(client_id, client_id if user_id is None else user_id)
        case Read(key, filters):
            _check_key(key)
            _check_numbers("from_version", filters.from_version)
            _check_bounds("to_version", filters.to_version)
            _check_numbers("a type", *(filters.include_types or ()))
            if filters[3:] != _UNSET:  # few reads have any of them
                _check_ids(*[id_ for id_ in filters[3:7] if id_ is not None])
                _check_bounds("a bound", *filters[7:])
        case FeedRead():
            _check_numbers("a number", *request)
        case _:
            _check_key(request.key)


def from_the_start(read: Read) -> Read:
    """Map a raw version 0 to 1, as clients do (design decision 13)."""
    if read.filters.from_version > 0:
        return read
    return read._replace(filters=read.filters._replace(from_version=1))


def _check_event(event: Event) -> None:
    client_seq, event_seq, event_id, event_ms, type_major, type_minor, value, iv = event
    _check_numbers("a number of an event", client_seq, event_seq, event_ms, type_major, type_minor)
    if event_id is not None:
        _check_ids(event_id)
    _check_bytes("a value", value)
    if iv is not None:
        _check_bytes("an iv", iv)
        if len(iv) != _IV_BYTES:
            raise LocalProtocolError(f"an iv has {_IV_BYTES} bytes")


def _check_bytes(name: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise LocalProtocolError(f"{name} is bytes, not {type(value).__name__}")


def _check_key(key: object) -> None:
    if not isinstance(key, AggregateKey):
        raise LocalProtocolError(f"an aggregate is named by an AggregateKey, not {key!r}")


def _check_ids(*ids: object) -> None:
    for id_ in ids:
        if not isinstance(id_, UUID):
            raise LocalProtocolError(f"an id is a UUID, not {id_!r}")


def _check_bounds(name: str, *numbers: object) -> None:
    """Check numbers that may be left out."""
    for number in numbers:
        if number is not None:
            _check_numbers(name, number)


def _check_numbers(name: str, *numbers: object) -> None:
    for number in numbers:
        if type(number) is int and 0 <= number < _NUMBER_END:
            continue  # nearly all of them
        if not isinstance(number, int) or isinstance(number, bool):
            raise LocalProtocolError(f"{name} is a whole number, not {number!r}")
        if not 0 <= number < _NUMBER_END:
            raise LocalProtocolError(f"{name} is 0 to 2**64 - 1, not {number}")
