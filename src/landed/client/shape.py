"""What this process refuses by itself, the same for every ``Log``."""

from __future__ import annotations

from landed.errors import LocalProtocolError, MalformedWriteError
from landed.log import Mutation, Read, Trim, Write


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


def from_the_start(read: Read) -> Read:
    """Map a raw version 0 to 1, as clients do (design decision 13)."""
    if read.filters.from_version > 0:
        return read
    return read._replace(filters=read.filters._replace(from_version=1))
