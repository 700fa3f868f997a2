"""The protocol's numbers: what each code means, and which error it raises at the caller's door.

One table. ``refusals.py`` says which of our own values a number stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from landed.errors import (
    AggregateClosedError,
    AggregateMissingError,
    BusyError,
    InvalidWriteError,
    LandedError,
    NodeFailedError,
    NoFeedError,
    NotAllowedError,
    NotLeaderError,
    OutcomeUnknownError,
    RefusedError,
    SequenceInFlightError,
    SequenceTakenError,
    TrimmedError,
    VersionConflictError,
)
from landed.ids import AggregateKey
from landed.wire.messages import (
    EXTENSIONS,
    MUTATIONS,
    Failure,
    NotUnderstood,
    Operation,
    WireAnswer,
)
from landed.wire.refusals import failure_of, number_of, text_of


class CodeClass(Enum):
    """What a code says about the request it answers (protocol section 13.3, design decision 14)."""

    NOT_APPLIED = "not applied; the same request would fail again"
    RETRY = "not applied, transient; send again, elsewhere or later"
    APPLIED_EARLIER = "consumed before, durably, by whoever; this attempt did nothing"
    IN_FLIGHT = "this attempt did nothing; an earlier one is undecided, so hold the sequence"
    UNKNOWN = "may be applied, may still become applied, may be rolled back"
    READ_SIDE = "no change was asked for"


class Code(NamedTuple):
    """One row of the table."""

    code: int
    symbol: str
    cls: CodeClass
    meaning: str
    fields: tuple[str, ...]
    """Detail fields, by the protocol's names."""
    error: Callable[[Code, Failure, AggregateKey | None], LandedError]


def error_of(operation: Operation, answer: WireAnswer | Failure | NotUnderstood) -> LandedError:
    """Make the error that an answer other than success raises at the caller's door.

    A change whose answer nobody can read as a no is unknown: a code of the unknown class, a code
    that is in no table, and one that speaks of reading only (design decision 14). Of what the node
    said, the error's text repeats nothing but ``detail``: the rest may quote payloads (CP-76).

    Raises:
        TypeError: the answer is a success; there is nothing to raise.
    """
    if isinstance(answer, NotUnderstood):
        return _not_understood(operation)
    failure = answer if isinstance(answer, Failure) else failure_of(operation, answer)
    key = getattr(answer, "key", None)
    row = TABLE.get(failure.code)
    is_change = operation in MUTATIONS
    if row is None:
        return _unlisted(failure, is_change=is_change)
    if row.cls is CodeClass.UNKNOWN or (is_change and row.cls is CodeClass.READ_SIDE):
        # A request that asks for no change changed nothing, whatever the code says.
        return (_unknown if is_change else _node_failed)(row, failure, key)
    return row.error(row, failure, key)


def _not_understood(operation: Operation) -> LandedError:
    if operation in EXTENSIONS:
        return NoFeedError()
    return RefusedError("the node could not read the request, so it did nothing")


def _unlisted(failure: Failure, *, is_change: bool) -> LandedError:
    message = f"the node answered with a code that is in no table ({failure.code})"
    if is_change:
        return OutcomeUnknownError("server", detail=message, code=failure.code)
    return RefusedError(message, code=failure.code)


# --- Errors ---------------------------------------------------------------------------------------


def _described(row: Code, failure: Failure) -> str:
    detail = text_of(failure.fields, "detail")
    return f"{row.meaning} ({row.code})" + (f": {detail}" if detail else "")


def _missing(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return AggregateMissingError(_described(row, failure), code=row.code)


def _closed(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return AggregateClosedError(_described(row, failure), code=row.code)


def _node_failed(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return NodeFailedError(_described(row, failure), code=row.code)


def _invalid(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return InvalidWriteError(_described(row, failure), code=row.code, fields=dict(failure.fields))


def _not_allowed(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return NotAllowedError(_described(row, failure), code=row.code)


def _unknown(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return OutcomeUnknownError("server", detail=_described(row, failure), code=row.code)


def _busy(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    seconds = failure.fields.get("retry_after")
    known = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds >= 0
    return BusyError(retry_after_s=float(seconds) if known else None, code=row.code)  # type: ignore[arg-type]  # known says so


def _not_leader(row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    # The reference says an empty address where it knows none.
    address = text_of(failure.fields, "leader_address") or None
    return NotLeaderError(leader_address=address, code=row.code)


def _conflict(row: Code, failure: Failure, key: AggregateKey | None) -> LandedError:
    return VersionConflictError(
        expected=number_of(failure.fields, "expected_version"),
        actual=number_of(failure.fields, "current_aggregate_version"),
        key=key,
        code=row.code,
    )


def _taken(_row: Code, failure: Failure, key: AggregateKey | None) -> LandedError:
    return SequenceTakenError(
        highest_seq=number_of(failure.fields, "last_client_seq"),
        attempted_seq=number_of(failure.fields, "attempted_client_seq"),
        key=key,
    )


def _in_flight(_row: Code, failure: Failure, key: AggregateKey | None) -> LandedError:
    return SequenceInFlightError(
        highest_seq=number_of(failure.fields, "last_client_seq"),
        attempted_seq=number_of(failure.fields, "attempted_client_seq"),
        key=key,
    )


def _trimmed(_row: Code, failure: Failure, _key: AggregateKey | None) -> LandedError:
    return TrimmedError(
        requested=number_of(failure.fields, "requested"),
        first_version=number_of(failure.fields, "minimum_available"),
    )


# --- The table ------------------------------------------------------------------------------------

_N = CodeClass.NOT_APPLIED
_R = CodeClass.RETRY
_A = CodeClass.APPLIED_EARLIER
_U = CodeClass.UNKNOWN
_READ = CodeClass.READ_SIDE

_SEQS = ("last_client_seq", "attempted_client_seq")
_VERSIONS = ("expected_version", "current_aggregate_version")
_TYPE = ("event_type_major", "event_type_minor")
_D = ("detail",)
_LEADER = ("leader_address",)

# fmt: off
_ROWS: Iterable[Code] = (
    # reads
    Code(1000, "READ_UNAVAILABLE_VERSION", _READ, "the version is gone", ("requested", "minimum_available"), _trimmed),
    Code(1001, "READ_AGGREGATE_NOT_EXISTS", _READ, "never written, or deleted", (), _missing),
    Code(1002, "READ_CACHE_LOAD_LOCK_TIMEOUT", _READ, "the aggregate is being loaded for too long", (), _node_failed),
    Code(1003, "READ_CACHE_LOAD_FILE_SCAN", _READ, "scanning the log failed", _D, _node_failed),
    Code(1004, "READ_FETCH_DATABLOCKS", _READ, "the events could not be read", (*_D, "log_id"), _node_failed),
    Code(1005, "READ_FETCH_METABLOCKS", _READ, "the batches could not be read", _D, _node_failed),
    # writes
    Code(2000, "WRITE_EMPTY_EVENTS_LIST", _N, "an aggregate without events", (), _invalid),
    Code(2001, "WRITE_ZERO_EVENT_TYPE", _N, "event type 0 is reserved", ("client_seq",), _invalid),
    Code(2002, "WRITE_CLIENT_IDEMPOTENCY_VIOLATION", _A, "the sequence is taken", _SEQS, _taken),
    Code(2003, "WRITE_OPTIMISTIC_CONCURRENCY_VIOLATION", _N, "the version guard failed", _VERSIONS, _conflict),
    Code(2004, "WRITE_FAILED_TO_SERIALISE_DATABLOCKS", _N, "the batch could not be encoded", _D, _invalid),
    Code(2005, "WRITE_AGGREGATE_NOT_EXISTS", _N, "no such aggregate, and creation is not allowed", (), _missing),
    Code(2006, "WRITE_AGGREGATE_RECREATE_NOT_ALLOWED", _N, "deleted for good", (), _closed),
    Code(2007, "WRITE_REPLICATION_ERROR", _U, "replication failed", _D, _unknown),
    Code(2008, "WRITE_FSYNC_ERROR", _U, "the flush failed", _D, _unknown),
    Code(2009, "WRITE_CACHE_AGGREGATE_CLIENT_ERROR", _R, "the mark could not be loaded", _D, _node_failed),
    Code(2010, "WRITE_AGGREGATE_EXISTS_CACHE_ERROR", _R, "the aggregate could not be loaded", _D, _node_failed),
    Code(2011, "WRITE_NOT_LEADER", _R, "not the leader", _LEADER, _not_leader),
    Code(2012, "WRITE_REPLICATION_BACKPRESSURE", _R, "shedding load", (), _busy),
    Code(2013, "WRITE_INFLIGHT_DUPLICATE", CodeClass.IN_FLIGHT, "the sequence is in flight", _SEQS, _in_flight),
    # schemas
    Code(2020, "REGISTER_SCHEMA_ALREADY_EXISTS", _A, "the schema key is taken", _TYPE, _invalid),
    Code(2021, "REGISTER_SCHEMA_INVALID", _N, "the schema is unusable", ("schema_type", "parse_error"), _invalid),
    Code(2022, "WRITE_SCHEMA_VALIDATION_FAILED", _N, "an event breaks its schema", (*_TYPE, "client_seq", "validation_error"), _invalid),
    Code(2023, "WRITE_SCHEMA_COMPILATION_FAILED", _N, "the stored schema is unusable", (*_TYPE, "client_seq", "compilation_error"), _invalid),
    Code(2024, "REGISTER_SCHEMA_UNSUPPORTED_TYPE", _N, "unknown kind of schema", ("schema_type",), _invalid),
    Code(2025, "REGISTER_SCHEMA_CACHE_LOAD_ERROR", _R, "the schemas could not be loaded", _D, _node_failed),
    Code(2026, "REGISTER_SCHEMA_FSYNC_ERROR", _U, "the flush failed", _D, _unknown),
    Code(2027, "REGISTER_SCHEMA_CANNOT_ACCEPT_WRITES", _R, "not the leader", _LEADER, _not_leader),
    Code(2028, "REGISTER_SCHEMA_REPLICATION_ERROR", _U, "replication failed", _D, _unknown),
    Code(2029, "REGISTER_SCHEMA_COORDINATION_FAILED", _U, "some shards did not confirm", ("failed_shard_count", "total_shards"), _unknown),
    # an extension of this product
    Code(2900, "WRITE_SEQUENCE_JUMP", _N, "the sequence lies too far above the mark", _SEQS, _invalid),
    # trims
    Code(3000, "TRIM_AGGREGATE_NOT_EXISTS", _N, "never written, or deleted", (), _missing),
    Code(3001, "TRIM_CACHE_ERROR", _R, "the aggregate could not be loaded", _D, _node_failed),
    Code(3002, "TRIM_REPLICATION_ERROR", _U, "replication failed", _D, _unknown),
    Code(3003, "TRIM_FSYNC_ERROR", _U, "the flush failed", _D, _unknown),
    Code(3004, "TRIM_INDEX_OUT_OF_RANGE", _N, "above the newest version", ("requested", "max_aggregate_version"), _invalid),
    Code(3005, "TRIM_NOT_LEADER", _R, "not the leader", _LEADER, _not_leader),
    Code(3006, "TRIM_REPLICATION_BACKPRESSURE", _R, "shedding load", (), _busy),
    # deletes
    Code(4000, "DELETE_AGGREGATE_NOT_EXISTS", _N, "never written, or deleted", (), _missing),
    Code(4001, "DELETE_EMPTY_DELETE_LIST", _N, "no aggregate is named", (), _invalid),
    Code(4002, "DELETE_OPTIMISTIC_CONCURRENCY_VIOLATION", _N, "the version guard failed", _VERSIONS, _conflict),
    Code(4003, "DELETE_CACHE_ERROR", _R, "the aggregate could not be loaded", _D, _node_failed),
    Code(4004, "DELETE_REPLICATION_ERROR", _U, "replication failed", _D, _unknown),
    Code(4005, "DELETE_FSYNC_ERROR", _U, "the flush failed", _D, _unknown),
    Code(4006, "DELETE_NOT_LEADER", _R, "not the leader", _LEADER, _not_leader),
    Code(4007, "DELETE_REPLICATION_BACKPRESSURE", _R, "shedding load", (), _busy),
    # lists, replication, details, watch
    Code(5000, "LIST_ORGS_DISK_READ", _READ, "the list failed", _D, _node_failed),
    Code(5001, "LIST_AGGREGATE_TYPES_DISK_READ", _READ, "the list failed", _D, _node_failed),
    Code(5002, "LIST_AGGREGATES_DISK_READ", _READ, "the list failed", _D, _node_failed),
    Code(6000, "REPLICATION_BATCH_FSYNC", _READ, "between nodes only", (), _node_failed),
    Code(6001, "REPLICATION_BATCH_SERIALISE_DATABLOCKS", _READ, "between nodes only", (), _node_failed),
    Code(6002, "REPLICATION_BATCH_WAL_SEQ_GAP", _READ, "between nodes only", (), _node_failed),
    Code(7000, "EXISTS_CACHE_ERROR", _READ, "the aggregate could not be loaded", _D, _node_failed),
    Code(7001, "EXISTS_AGGREGATE_NOT_EXISTS", _READ, "never written", (), _missing),
    Code(7002, "EXISTS_METABLOCK_READ_ERROR", _READ, "the aggregate could not be read", _D, _node_failed),
    Code(8000, "WATCH_REQUEST_INVALID", _READ, "the watch is malformed", (), _invalid),
    Code(8001, "WATCH_LATENCY_TOO_HIGH", _READ, "the requested latency is too high", ("requested_ms", "max_ms"), _invalid),
    Code(8002, "WATCH_READ_IO", _READ, "the watch broke", _D, _node_failed),
    Code(8003, "WATCH_READ_SERIALIZATION", _READ, "the watch broke", _D, _node_failed),
    Code(8004, "WATCH_READ_OTHER", _READ, "the watch broke", _D, _node_failed),
    Code(8005, "WATCH_TOO_MANY_SUBSCRIBERS", _READ, "too many subscribers", ("active_subscribers", "max_subscribers"), _node_failed),
    # routing, identity, load
    Code(9000, "SHARD_ROUTING_NO_KEY", _N, "nothing to route by", (), _invalid),
    Code(9001, "SHARD_ROUTING_MULTIPLE_SHARDS", _N, "the keys lie on several shards", ("num_shards",), _invalid),
    Code(9002, "SHARD_ROUTING_INCOMPATIBLE_FILTERS", _N, "nothing to route by, or no such shard", (*_D, "num_shards"), _invalid),
    Code(10001, "IDENTIFY_INVALID_NONCE", _N, "the nonce is malformed or outside the window", (), _not_allowed),
    Code(10002, "IDENTIFY_INVALID_SIGNATURE", _N, "the key or the signature is invalid", (), _not_allowed),
    Code(10003, "IDENTIFY_MISMATCH", _N, "the client id is not the verified one", (), _not_allowed),
    Code(10004, "IDENTIFY_REQUIRED", _N, "the node demands to know who is calling", (), _not_allowed),
    Code(10005, "AUTH_REQUIRED", _N, "the node demands an API key", (), _not_allowed),
    Code(10006, "AUTH_INVALID_KEY", _N, "the API key is malformed or unknown", (), _not_allowed),
    Code(10007, "AUTH_INSUFFICIENT_PERMISSIONS", _N, "the API key allows reading only", (), _not_allowed),
    Code(11000, "SERVER_BUSY", _R, "shedding load", (), _busy),
)
# fmt: on

TABLE: Final[Mapping[int, Code]] = {row.code: row for row in _ROWS}
"""Every code that the protocol lists, by number."""
