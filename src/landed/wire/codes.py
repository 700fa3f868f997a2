"""The protocol's numbers: one table of code, class, value and error."""

from __future__ import annotations

from landed.errors import LandedError
from landed.wire.messages import Failure, NotUnderstood, Operation, WireAnswer


def error_of(operation: Operation, answer: WireAnswer | Failure | NotUnderstood) -> LandedError:
    """Make the error that an answer other than success raises at the caller's door.

    Raises:
        TypeError: the answer is a success; there is nothing to raise.
    """
    raise NotImplementedError
