"""Which number stands for which of the log's refusals, and the other way round.

Only the numbers that this product sends itself have a value; every other one stays a Failure, so
that its number is not lost. The text of an error frame is made and read here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec

from landed.log import (
    AggregateClosed,
    AggregateMissing,
    BelowFloor,
    Busy,
    Misrouted,
    NoEvents,
    NotLeader,
    NotLoaded,
    Refusal,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    TrimBeyondEnd,
    Unknown,
    VersionConflict,
)
from landed.wire.messages import Failure, Operation, WireAnswer

Fields = Mapping[str, object]

U64_MAX: Final = 2**64 - 1

_EVERYWHERE: Final[Mapping[type, int]] = {Busy: 11000, Misrouted: 9001}
_NOTHING_TO_ROUTE_BY: Final = 9002

_CODES: Final[Mapping[Operation, Mapping[type, int]]] = {
    Operation.WRITE: {
        NoEvents: 2000,
        ReservedType: 2001,
        SequenceTaken: 2002,
        VersionConflict: 2003,
        AggregateMissing: 2005,
        AggregateClosed: 2006,
        Unknown: 2008,
        NotLoaded: 2010,
        NotLeader: 2011,
        SequenceInFlight: 2013,
        SequenceJump: 2900,
        **_EVERYWHERE,
    },
    Operation.TRIM: {
        AggregateMissing: 3000,
        NotLoaded: 3001,
        Unknown: 3003,
        TrimBeyondEnd: 3004,
        NotLeader: 3005,
        **_EVERYWHERE,
    },
    Operation.DELETE: {
        AggregateMissing: 4000,
        VersionConflict: 4002,
        NotLoaded: 4003,
        Unknown: 4005,
        NotLeader: 4006,
        **_EVERYWHERE,
    },
    Operation.READ: {BelowFloor: 1000, AggregateMissing: 1001, Unknown: 1004, **_EVERYWHERE},
    Operation.DETAILS: {AggregateMissing: 7001, Unknown: 7002, **_EVERYWHERE},
    Operation.FEED: {Unknown: 1004, **_EVERYWHERE},
    Operation.PROBE: {Unknown: 1004, **_EVERYWHERE},
    Operation.IDENTIFY: {**_EVERYWHERE},
}

_VALUES: Final[Mapping[Operation, Mapping[int, type]]] = {
    operation: {code: kind for kind, code in codes.items()} | {_NOTHING_TO_ROUTE_BY: Misrouted}
    for operation, codes in _CODES.items()
}

_READ: Final[Mapping[type, Callable[[Fields], Refusal | Unknown]]] = {
    NoEvents: lambda _: NoEvents(None),
    ReservedType: lambda f: ReservedType(None, number_of(f, "client_seq")),
    SequenceTaken: lambda f: SequenceTaken(None, *_sequences(f)),
    SequenceInFlight: lambda f: SequenceInFlight(None, *_sequences(f)),
    SequenceJump: lambda f: SequenceJump(None, *_sequences(f)),
    VersionConflict: lambda f: VersionConflict(
        None, number_of(f, "expected_version"), number_of(f, "current_aggregate_version")
    ),
    AggregateMissing: lambda _: AggregateMissing(None),
    AggregateClosed: lambda _: AggregateClosed(None),
    BelowFloor: lambda f: BelowFloor(number_of(f, "requested"), number_of(f, "minimum_available")),
    TrimBeyondEnd: lambda f: TrimBeyondEnd(
        number_of(f, "requested"), number_of(f, "max_aggregate_version")
    ),
    Busy: lambda _: Busy(),
    # An unknown leader is an empty object; an empty address says no more.
    NotLeader: lambda f: NotLeader(text_of(f, "leader_address") or None),
    NotLoaded: lambda f: NotLoaded(text_of(f, "detail") or ""),
    Unknown: lambda f: Unknown(text_of(f, "detail") or ""),
}


def codes_sent() -> frozenset[int]:
    """The numbers of this product's own refusals."""
    return frozenset(code for codes in _VALUES.values() for code in codes)


def number_of(fields: Fields, name: str) -> int | None:
    """Take an unsigned 64-bit number out of detail fields.

    Returns:
        None if it is missing or anything else, never 0: "the mark is 0" and "the node did not say"
        lead to different moves (pool rule CP-75).
    """
    value = fields.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX:
        return value
    return None


def text_of(fields: Fields, name: str) -> str | None:
    """Take a string out of detail fields; None if it is missing or anything else."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


def failure_of(operation: Operation, answer: WireAnswer) -> Failure:
    """Give a refusal its number and its detail fields. What is not known is left out.

    Raises:
        TypeError: it is a success, or no answer to such an operation; that is a bug.
    """
    code = _CODES[operation].get(type(answer))
    if code is None:
        raise TypeError(f"{type(answer).__name__} is no refusal of {operation.name}")
    if isinstance(answer, Misrouted) and answer.is_nothing:
        code = _NOTHING_TO_ROUTE_BY
    fields = _fields_of(cast("Refusal | Unknown", answer))  # the table holds nothing else
    return Failure(code, {name: value for name, value in fields.items() if value is not None})


def answer_of(operation: Operation, failure: Failure) -> Refusal | Unknown | Failure:
    """Turn a number into the refusal it stands for in answer to this operation.

    Returns:
        The failure itself where there is no such refusal; ``codes.error_of`` knows what to do.
    """
    kind = _VALUES[operation].get(failure.code)
    if kind is None:
        return failure
    if kind is Misrouted:
        detail = text_of(failure.fields, "detail") or ""
        shards = number_of(failure.fields, "num_shards")
        return Misrouted(failure.code == _NOTHING_TO_ROUTE_BY, shards, detail)
    return _READ[kind](failure.fields)


def _fields_of(refusal: Refusal | Unknown) -> dict[str, object]:
    match refusal:
        case NoEvents() | AggregateMissing() | AggregateClosed() | Busy():
            return {}
        case ReservedType(_, client_seq):
            return {"client_seq": client_seq}
        case SequenceTaken(_, highest, attempted) | SequenceInFlight(_, highest, attempted):
            return {"last_client_seq": highest, "attempted_client_seq": attempted}
        case SequenceJump(_, highest, attempted):
            return {"last_client_seq": highest, "attempted_client_seq": attempted}
        case VersionConflict(_, expected, actual):
            return {"expected_version": expected, "current_aggregate_version": actual}
        case BelowFloor(requested, first_version):
            return {"requested": requested, "minimum_available": first_version}
        case TrimBeyondEnd(requested, version):
            return {"requested": requested, "max_aggregate_version": version}
        case Misrouted(_, num_shards, detail):
            return {"detail": detail or None, "num_shards": num_shards}
        case NotLeader(leader_address):
            return {"leader_address": leader_address}
        case Unknown(detail) | NotLoaded(detail):
            return {"detail": detail or None}


def _sequences(fields: Fields) -> tuple[int | None, int | None]:
    return number_of(fields, "last_client_seq"), number_of(fields, "attempted_client_seq")


# --- The text of an error frame -------------------------------------------------------------------

_FREE_TEXT: Final = frozenset({"detail", "parse_error", "validation_error", "compilation_error"})
"""Fields that only people read, and which may therefore be cut. A cut address would mislead."""


def _room(failure: Failure, body_max: int, *, has_correlation: bool) -> int:
    """What the envelope leaves: array header, correlation id or nil, code, header of the text."""
    return body_max - 1 - (18 if has_correlation else 1) - (3 if failure.code < 2**16 else 5) - 3


def text_for(failure: Failure, *, body_max: int, has_correlation: bool) -> str:
    """Write the text of an error frame: compact JSON, cut to fit.

    The published Rust client looks for ``"leader_address":"`` byte for byte, so no blanks. Free
    text is cut where it is too long; should that not do, fields that only people need go first
    and the rest after them. The result is valid JSON unless the failure came with other text.
    """
    room = _room(failure, body_max, has_correlation=has_correlation)
    fields = {name: _printable(value) for name, value in failure.fields.items()}
    if not fields and failure.text:
        return str(_printable(failure.text)).encode()[:room].decode(errors="ignore")
    encoded = msgspec.json.encode(fields)
    while len(encoded) > room:
        _shorten(fields, len(encoded) - room)
        encoded = msgspec.json.encode(fields)
    return encoded.decode()


def _printable(value: object) -> object:
    """Replace what UTF-8 cannot say, such as undecodable bytes in a file's name."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _shorten(fields: dict[str, object], excess: int) -> None:
    """Cut the longest free text, or drop the longest field if none is left."""
    texts = {
        name: value
        for name, value in fields.items()
        if name in _FREE_TEXT and isinstance(value, str) and value
    }
    if texts:
        name = max(texts, key=lambda name: len(texts[name]))
        # A character takes six bytes of JSON at most: this cuts too little, never too much.
        fields[name] = texts[name][: -(excess // 6 + 1)]
        return
    del fields[max(fields, key=lambda name: len(msgspec.json.encode(fields[name])) + len(name))]


def failure_from(code: int, text: str) -> Failure:
    """Read an error frame. Text that is no JSON object never hides the code (CP-73, CPA-57)."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        return Failure(code, fields)
    return Failure(code, {}, text)
