"""``ServiceIdentity``: who writes, and how a caller's key becomes an event id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid5

from landed.errors import ConfigurationError
from landed.ids import ClientId, EventId

_DASHED: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAMESPACE_NAME: Final = "landed/event-id"


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """One client id for a whole service: all replicas, all restarts (rules SW-7, SW-92).

    There is no function here that makes one at run time: an id that does not survive a restart is
    how writes get doubled. Put one into the configuration, once.
    """

    client_id: ClientId
    previous_client_ids: frozenset[ClientId] = frozenset()
    """Ids this service wrote under before. Requests written under them are still recognised; their
    sequences mean nothing any more (rules SW-20, SW-97)."""

    @classmethod
    def from_config(
        cls, client_id: str | UUID, *, previous_client_ids: Iterable[str | UUID] = ()
    ) -> ServiceIdentity:
        """Take the identity from configuration.

        Raises:
            ConfigurationError: not a UUID, or the nil UUID.
        """
        current = _client_id(client_id)
        previous = frozenset(_client_id(one) for one in previous_client_ids)
        return cls(current, previous - {current})

    @property
    def own(self) -> frozenset[ClientId]:
        """Every id whose batches are this service's own work."""
        return self.previous_client_ids | {self.client_id}

    def event_id_of(self, key: str, *, scope: str = "") -> EventId:
        """Turn a caller's textual key into an event id, the same one on every replica.

        A UUID in its dashed form, in any letter case, is taken as it is, unless there is a scope
        (the authenticated caller): callers must not be able to read each other's answers. Anything
        else becomes a UUIDv5 below the client id (rule SW-119, design 22).

        Raises:
            ValueError: the nil UUID, or an empty key.
        """
        if not key:
            raise ValueError("an empty key names no request")
        if _DASHED.fullmatch(key):
            named = UUID(key)
            if not named.int:
                raise ValueError("the nil UUID names no request")
            if not scope:
                return EventId(named)
            key = str(named)
        namespace = uuid5(self.client_id, _NAMESPACE_NAME)
        return EventId(uuid5(namespace, f"{scope}\0{key}"))


def _client_id(text: str | UUID) -> ClientId:
    try:
        parsed = text if isinstance(text, UUID) else UUID(text)
    except ValueError:
        raise ConfigurationError(f"a client id is a UUID, not {text!r}") from None
    if not parsed.int:
        raise ConfigurationError("the nil UUID is nobody's client id; configure one of your own")
    return ClientId(parsed)
