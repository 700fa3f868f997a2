"""What goes over a connection besides the log's own requests and answers.

The log's values travel as they are: there is no request twin. This module adds the few messages
that only a connection knows, and names every operation by its number in the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from landed.ids import ClientId
from landed.log import (
    Answer,
    Delete,
    FeedRead,
    GetDetails,
    Read,
    Request,
    Trim,
    Write,
)


class Operation(IntEnum):
    """What a request asks for. The value is the request's message type.

    Ids from 1000 are extensions of this product; a node without them does not know the type.
    """

    DETAILS = 1
    READ = 2
    WRITE = 3
    TRIM = 4
    DELETE = 5
    IDENTIFY = 14
    FEED = 1000
    PROBE = 1001


MUTATIONS = frozenset({Operation.WRITE, Operation.TRIM, Operation.DELETE})
"""Operations that change the log, so that a missing answer leaves the outcome unknown."""

EXTENSIONS = frozenset({Operation.FEED, Operation.PROBE})
"""Operations that only this product's nodes know."""


class Identify(NamedTuple):
    """Who is calling. If sent at all, the first message of a connection.

    A node without API keys ignores the key; a proof is complete or counts as none.
    """

    public_key: str | None = None
    """Padded base64 of the DER SubjectPublicKeyInfo of an RSA key."""
    nonce: str | None = None
    """Milliseconds since 1970 as a decimal number."""
    signature: str | None = None
    """Padded base64 of the RSA signature of the nonce's bytes."""
    api_key: str | None = None
    """Padded base64 of 32 bytes."""
    known_dict_sha256: str | None = None
    """Of the compression dictionary the caller holds; this product holds none."""

    def __repr__(self) -> str:
        """Name what is there, never what it says: these are secrets (pool rule CP-76)."""
        given = ", ".join(name for name, value in self._asdict().items() if value is not None)
        return f"Identify({given})"


class AccessLevel(IntEnum):
    """What an API key allows."""

    READ_WRITE = 1
    READ_ONLY = 2


class Identified(NamedTuple):
    """The node knows the caller as far as it could be told."""

    client_id: ClientId | None = None
    """The verified one; None unless an RSA proof was given."""
    access_level: AccessLevel | None = None
    """None where the node has no API keys."""
    dictionary_sha256: str | None = None
    """A dictionary's name: the node may compress from now on. This product offers none."""
    dictionary: bytes | None = None


class Probe(NamedTuple):
    """Ask which log this is, and whether the node has a feed (extension)."""


class LogFacts(NamedTuple):
    """Which log answered a probe, and how far it is."""

    log_id: UUID
    restore_epoch: int
    """Raised whenever the log is restored from a backup."""
    position: int
    """Of the newest feed entry; 0 of an empty log."""


class Failure(NamedTuple):
    """An error answer for which the log has no value of its own; ``codes.error_of`` reads it."""

    code: int
    fields: Mapping[str, object] = {}
    """The detail fields; empty where the text was no JSON object (pool rule CP-73)."""
    text: str = ""
    """The text as it came, where it was no JSON object. For people only."""


class NotUnderstood(NamedTuple):
    """The node could not read the request (a ProtocolError frame).

    It did nothing, and it closes the connection now. In answer to ``FeedRead`` or ``Probe`` it
    means that the node lacks the extension.
    """


WireRequest = Request | Identify | Probe
WireAnswer = Answer | Identified | LogFacts

_OPERATIONS: Mapping[type, Operation] = {
    GetDetails: Operation.DETAILS,
    Read: Operation.READ,
    Write: Operation.WRITE,
    Trim: Operation.TRIM,
    Delete: Operation.DELETE,
    Identify: Operation.IDENTIFY,
    FeedRead: Operation.FEED,
    Probe: Operation.PROBE,
}


def operation_of(request: WireRequest) -> Operation:
    """Name the operation that a request asks for."""
    return _OPERATIONS[type(request)]
