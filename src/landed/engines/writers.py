"""One object for each writer, however many heads and marks name it."""

from __future__ import annotations

from typing import Final

from landed.ids import ClientId
from landed.log import Write

WRITERS_MAX: Final = 1024
"""Writers remembered; a log with more of them at a time only takes more memory."""

_new = tuple.__new__  # past the constructor, on the hot path


class Writers:
    """Give writes of one client the same client id.

    A request read from a wire brings an id of its own. Every cached head keeps the one of its last
    write, which would be some hundred bytes an aggregate for a name that most of them share.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # By number: a UUID's own hash is a Python function.
        self._known: dict[int, ClientId] = {}

    def shared(self, write: Write) -> Write:
        """The same write, by the client id that others have as well."""
        client_id = write.client_id
        known = self._known.setdefault(client_id.int, client_id)
        if known is client_id:
            if len(self._known) > WRITERS_MAX:
                self._known.clear()
            return write
        return _new(Write, (known, write.legs, write.user_id))
