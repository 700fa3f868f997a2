"""What may go wrong, sorted by what the caller may do next.

Floor 0. Inside the house answers are values; these are raised at its doors (the ``Log`` a caller
holds, the engines' openers, the command line). Every error says two things besides its text:
``outcome``, whether the request may have been applied, and ``move``, what the caller may do next.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from landed.ids import AggregateKey


class Outcome(Enum):
    """Was the request applied? Three answers; the third is never folded into the second."""

    NOT_SENT = "not_sent"
    """No byte of it left this process, and every earlier try of the same call was refused."""
    REJECTED = "rejected"
    """A complete answer says that it was not applied."""
    UNKNOWN = "unknown"
    """It left, and no trustworthy answer came back."""


class Move(Enum):
    """What the caller may do next."""

    SEND_AGAIN = "send again as it is"
    HOLD = "hold the sequence, catch up, send again"
    REDERIVE = "catch up, decide again, take a fresh sequence"
    ASK_OWNER = "read the contested sequence back and see whose it is"
    REREAD = "read again from the first version that is left"
    GIVE_UP = "do not repeat it; change the request or the configuration"


class LandedError(Exception):
    """The root of every error this library raises on purpose."""

    outcome: ClassVar[Outcome] = Outcome.NOT_SENT
    move: ClassVar[Move] = Move.GIVE_UP
    served_by: str | None = None
    """Address of the node that answered, where one did."""
    attempts: int = 0
    """Request frames sent by the call that failed; 0 in the process itself."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what it holds, since most errors take named arguments (pool rule CP-76)."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[LandedError], args: tuple[object, ...], fields: dict[str, object]
) -> LandedError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ConfigurationError(LandedError, ValueError):
    """A setting cannot work: wrong value, wrong combination, missing extra. Nothing was done."""


class ListenFailedError(LandedError):
    """An address cannot be listened on: it is taken, not of this machine, or not allowed."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")
        self.host = host
        self.port = port

    @classmethod
    def of(cls, host: str, port: int, error: OSError) -> ListenFailedError:
        """Say it in the system's own words; asyncio puts a sentence of its own before them."""
        reason = (error.strerror or str(error)).rpartition(": ")[2]
        return cls(host, port, reason)


# --- The answer is no; this attempt changed nothing -------------------------------------------


class RefusedError(LandedError):
    """The log's no. This attempt appended nothing. ``code`` is the protocol's number."""

    outcome = Outcome.REJECTED
    code: int = 0

    def __init__(self, message: str = "", *, code: int = 0) -> None:
        super().__init__(message)
        if code:
            self.code = code


class VersionConflictError(RefusedError):
    """The aggregate is not at the version the request insisted on (2003; a delete's 4002).

    ``expected`` and ``actual`` are versions; None where the node did not say.
    """

    move = Move.REDERIVE
    code = 2003

    def __init__(
        self,
        *,
        expected: int | None,
        actual: int | None,
        key: AggregateKey | None = None,
        code: int = 2003,
    ) -> None:
        super().__init__(f"expected version {expected}, but it is at {actual}", code=code)
        self.expected = expected
        self.actual = actual
        self.key = key


class SequenceTakenError(RefusedError):
    """The sequence was consumed, by someone (2002). Never success by itself: ask whose it is.

    ``highest_seq`` is the mark it was compared with; None where the node did not say.
    """

    move = Move.ASK_OWNER
    code = 2002

    def __init__(
        self,
        *,
        highest_seq: int | None,
        attempted_seq: int | None,
        key: AggregateKey | None = None,
    ) -> None:
        super().__init__(f"sequence {attempted_seq} is taken; the highest seen is {highest_seq}")
        self.highest_seq = highest_seq
        self.attempted_seq = attempted_seq
        self.key = key


class SequenceInFlightError(RefusedError):
    """A write with this sequence or a higher one is accepted but not yet durable (2013)."""

    move = Move.HOLD
    code = 2013

    def __init__(
        self,
        *,
        highest_seq: int | None,
        attempted_seq: int | None,
        key: AggregateKey | None = None,
    ) -> None:
        super().__init__(f"sequence {attempted_seq} is in flight; the highest is {highest_seq}")
        self.highest_seq = highest_seq
        self.attempted_seq = attempted_seq
        self.key = key


class TrimmedError(RefusedError):
    """The version asked for is gone (1000). ``first_version`` is the lowest one left."""

    move = Move.REREAD
    code = 1000

    def __init__(self, *, requested: int | None, first_version: int | None) -> None:
        super().__init__(f"version {requested} is gone; the first one left is {first_version}")
        self.requested = requested
        self.first_version = first_version


class AggregateMissingError(RefusedError):
    """There is no such aggregate, or it is deleted (1001, 2005, 3000, 4000, 7001)."""


class AggregateClosedError(RefusedError):
    """The aggregate was deleted for good; it can never be written again (2006)."""

    code = 2006


class InvalidWriteError(RefusedError):
    """The request is malformed or not allowed by a rule; it would be refused again.

    2000 no events, 2001 event type 0, 2004, 2900 sequence jump, 3004 trim beyond the end, 9001 and
    9002 routing. ``fields`` holds what the node said, by the protocol's field names.
    """

    def __init__(self, message: str, *, code: int, fields: dict[str, object] | None = None) -> None:
        super().__init__(message, code=code)
        self.fields = fields or {}


class MalformedWriteError(InvalidWriteError):
    """This process refused it before anything was sent: no aggregate, or no event for one."""

    outcome = Outcome.NOT_SENT


class NotAllowedError(RefusedError):
    """The caller's identity or access level forbids it (10001 to 10007)."""


class BusyError(RefusedError):
    """The node is shedding load and did not accept it (11000, 2012, 3006, 4007)."""

    move = Move.HOLD
    code = 11000

    def __init__(self, *, retry_after_s: float | None = None, code: int = 11000) -> None:
        super().__init__("the node is busy; back off and send again", code=code)
        self.retry_after_s = retry_after_s


class NotLeaderError(RefusedError):
    """This node does not accept changes now (2011, 2027, 3005, 4006)."""

    move = Move.SEND_AGAIN
    code = 2011

    def __init__(self, *, leader_address: str | None, code: int = 2011) -> None:
        super().__init__(f"not the leader; it is {leader_address or 'not known'}", code=code)
        self.leader_address = leader_address


class NoFeedError(RefusedError):
    """The node has no feed: it does not know the extension. Read aggregate by aggregate instead."""


class NodeFailedError(RefusedError):
    """The node could not do it and says that it did nothing (1002 to 1005, 2009, 2010, ...)."""

    move = Move.HOLD


# --- Nothing left this process ------------------------------------------------------------------


class NotSentError(LandedError):
    """Nothing left this process; sending it again as it is is safe."""

    outcome = Outcome.NOT_SENT
    move = Move.SEND_AGAIN


class PoolUnavailableError(NotSentError):
    """This process's own pool refused before dialling anything."""


class PoolClosedError(PoolUnavailableError):
    """The pool is closed."""

    move = Move.GIVE_UP


class PoolExhaustedError(PoolUnavailableError):
    """No connection became free in time."""


class CircuitOpenError(PoolUnavailableError):
    """The node failed a moment ago and is not dialled again yet."""


class ConnectFailedError(NotSentError):
    """No connection could be made: refused, unreachable, or the handshake failed."""


class ConnectTimeoutError(ConnectFailedError, TimeoutError):
    """Dialling and handshake did not finish in time."""


class LeaderNotFoundError(ConnectFailedError):
    """No node known to the pool accepts changes. ``tried`` lists (address, error)."""

    def __init__(self, tried: list[tuple[str, LandedError]]) -> None:
        super().__init__("no node accepts changes: " + ", ".join(a for a, _ in tried))
        self.tried = tried


class RequestTooLargeError(NotSentError):
    """The request is larger than the protocol or this client allows. Split it."""

    move = Move.GIVE_UP


# --- Nobody knows -------------------------------------------------------------------------------


class OutcomeUnknownError(LandedError):
    """Sent, and no trustworthy answer: it may have landed or not. Hold the sequence and look.

    ``reason`` is one of timeout, eof, reset, protocol, closing, cancelled, server.
    """

    outcome = Outcome.UNKNOWN
    move = Move.HOLD

    def __init__(self, reason: str, *, detail: str = "", code: int | None = None) -> None:
        super().__init__(f"outcome unknown ({reason})" + (f": {detail}" if detail else ""))
        self.reason = reason
        self.code = code


# --- Reads that got no answer -------------------------------------------------------------------


class ReadFailedError(LandedError):
    """A read got no usable answer. Nothing was changed; read again."""

    move = Move.SEND_AGAIN
    outcome = Outcome.REJECTED


class ReadTimeoutError(ReadFailedError, TimeoutError):
    """A read was not answered in time."""


class ConnectionLostError(ReadFailedError):
    """The connection broke while a read was under way."""


class UndecodableEventError(LandedError):
    """The domain does not understand a stored event. A fold stops here: it never skips one.

    ``version`` is the batch's, ``type_major`` the event's; 0 where the domain did not say.
    """

    def __init__(self, message: str = "", *, version: int = 0, type_major: int = 0) -> None:
        super().__init__(message)
        self.version = version
        self.type_major = type_major


# --- Broken protocol ----------------------------------------------------------------------------


class ProtocolError(LandedError):
    """The bytes break the protocol. Cannot be raised itself: somebody is to blame."""

    def __init__(self, message: str = "") -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """We tried to send something that the protocol cannot say. Nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow. Close the connection."""

    outcome = Outcome.UNKNOWN


# --- Handling -----------------------------------------------------------------------------------


class HandlingError(LandedError):
    """The root of what the handling of events and effects raises."""

    outcome = Outcome.REJECTED


class RejectedDeliveryError(HandlingError):
    """Refused before any receipt. ``status`` is HTTP's, ``reason`` a fixed word."""

    def __init__(self, *, status: int, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.status = status
        self.reason = reason


class PayloadMismatchError(HandlingError):
    """A known effect key with another payload: a new decision, which needs a key of its own."""

    def __init__(self, key: str, *, recorded: bytes, requested: bytes) -> None:
        super().__init__(
            f"effect {key!r} was requested with payload {recorded.hex()[:16]}, now with "
            f"{requested.hex()[:16]}; a changed payload is a revision with a key of its own"
        )
        self.key = key
        self.recorded = recorded
        self.requested = requested


class OrderConflictError(HandlingError):
    """Two effects claim one version of one order key."""


class PreviousStillOpenError(HandlingError):
    """The effect to be revised may still act."""


class NotInTransactionError(HandlingError):
    """Join a transaction that has begun: what is written must commit or vanish with your own."""


class RetryTransactionError(HandlingError):
    """The database refused the whole transaction; run it again from its beginning."""

    move = Move.SEND_AGAIN


class BeyondHorizonError(HandlingError):
    """Too late to tell apart from a repeat."""


class CeilingReachedError(HandlingError):
    """One more would exceed what a run was approved for: roll the item back and pause the run."""


class ApprovalMissingError(HandlingError):
    """It needs a person's approval first, or the approved plan has changed."""


class ActionRefusedError(HandlingError):
    """The state found does not allow it; the message says which would."""


class ClaimLostError(HandlingError):
    """Another worker may hold it: drop the result, undo nothing."""


# --- The device's queue -------------------------------------------------------------------------


class QueueError(LandedError):
    """The root of what a device's queue of unsynced events raises."""


class QueueFullError(QueueError):
    """The store is at its limit, or the disk is full. Nothing was saved: sync, then save again."""

    def __init__(self, *, used_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the queue is full: {used_bytes} of {limit_bytes} bytes are used by events that are "
            "not synced yet; nothing was saved"
        )
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes


class EventIdReusedError(QueueError):
    """An event id that is queued already came again with other content. Nothing was saved."""


class SequenceRegressedError(QueueError):
    """The log holds numbers of this client id that this store never sent, or others' events there.

    The store was restored from a backup or copied. Nothing is sent until ``recover`` has looked.
    """

    outcome = Outcome.REJECTED

    def __init__(
        self, *, key: AggregateKey, highest_seq: int, attempted_seq: int, detail: str = ""
    ) -> None:
        super().__init__(
            f"the log has sequence {highest_seq} of this client id on {key}, but this store sent "
            f"at most {attempted_seq} there{detail}: it was restored or copied; nothing is sent "
            "until it is recovered"
        )
        self.key = key
        self.highest_seq = highest_seq
        self.attempted_seq = attempted_seq


class SequenceOrderError(QueueError):
    """The number was consumed by another event: the source does not grow in the order of sending."""

    outcome = Outcome.REJECTED

    def __init__(self, *, key: AggregateKey, client_seq: int) -> None:
        super().__init__(
            f"sequence {client_seq} on {key} is not ours: numbers must grow in the order of sending, "
            "by one writer"
        )
        self.key = key
        self.client_seq = client_seq


class DrainFaultError(QueueError):
    """The log answered what it cannot answer to a queue: a bug, here or there. Nothing is marked."""

    outcome = Outcome.REJECTED


# --- Storage ------------------------------------------------------------------------------------


class StorageError(LandedError):
    """The database failed. ``is_outcome_known`` is False after a commit whose answer was lost."""

    def __init__(self, message: str, *, is_outcome_known: bool = True) -> None:
        super().__init__(message)
        self.is_outcome_known = is_outcome_known


class StorageInUseError(StorageError):
    """Another process owns the file. Use ``landed serve`` to share it."""


class StorageDamagedError(StorageError):
    """A checksum failed: the stored bytes are not what was written. They are not returned."""


class StorageForeignError(StorageError):
    """The file is not ours, or was written by a newer or differently configured version."""
