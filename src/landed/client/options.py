"""What a pool may be told, checked when it is said."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, NamedTuple

from landed.errors import ConfigurationError
from landed.limits import MIB

PORT: Final = 10_000
"""Where a node listens unless somebody said otherwise."""
SERVER_IDLE_S: Final = 30.0
"""A node closes an idle connection after this long; ours must be gone before."""
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
_DURATIONS: Final = (
    "acquire_timeout_s",
    "connect_timeout_s",
    "request_timeout_s",
    "idle_timeout_s",
    "breaker_cooldown_s",
    "close_grace_s",
)
_CAPS: Final = (
    "max_connections",
    "max_concurrent_dials",
    "pipeline_depth",
    "pipeline_bytes",
    "max_request_bytes",
    "max_response_bytes",
)


class Consistency(Enum):
    """From where a read may be answered."""

    LEADER = "leader"
    """The leader; another node if the leader cannot be reached."""
    LEADER_STRICT = "leader_strict"
    """The leader or nobody: a decision must not rest on another node's view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Everything about a pool. Times are seconds, sizes bytes.

    Raises:
        ConfigurationError: a value cannot work; nothing was opened.

    Source: pool rules CP-2, CP-3.
    """

    addresses: Sequence[str]
    """``host:port`` or ``[v6]:port``, in order; the first is the first guess at the leader."""
    max_connections: int = 10
    """Sockets a node, idle, busy and being dialled."""
    max_concurrent_dials: int = 32
    """Dials under way a node."""
    pipeline_depth: int = 16
    """Requests sent over one connection before the first of them is answered; 1 for one at a time.

    16 because one connection then carries five times as many requests a second as at 1 and twice
    that at 64 is not worth what a broken connection makes unknown: everything unanswered on it."""
    pipeline_bytes: int = 256 * 1024
    """A connection with so many unanswered bytes is given nothing more; what is large goes alone."""
    acquire_timeout_s: float = 5.0
    """Longest wait for a free place on a node."""
    connect_timeout_s: float = 5.0
    """Resolving, connecting and handshake together."""
    request_timeout_s: float = 30.0
    """From the first byte handed over to the last byte of the answer. Not a timer a read: a node
    that drips one byte a second does not extend it."""
    total_timeout_s: float | None = None
    """The whole call: waiting, dialling, redirects, backing off, the answer. A call may say its
    own as ``timeout_s``."""
    idle_timeout_s: float = 25.0
    """An idle connection is closed after this long, before the node does so."""
    allow_long_idle: bool = False
    """Say so if the nodes keep idle connections for longer than 30 s."""
    max_connection_age_s: float | None = None
    """An older connection is closed as soon as it is idle; 10 % more or less, so that not all of
    them are closed at once."""
    breaker_cooldown_s: float = 2.0
    """A node that could not be dialled is left alone for this long."""
    busy_retries: int = 2
    """Sent again so often to a busy node, which did not accept it; 0 tells the caller at once."""
    leader_search_timeout_s: float = 0.0
    """Go on looking for a leader for so long; 0 asks each node once. A failover takes 1 to 2 s."""
    consistency: Consistency = Consistency.LEADER
    """From where reads may be answered."""
    max_request_bytes: int = 10_000_000
    """Checked before anything is sent."""
    max_response_bytes: int = 64 * MIB
    """Checked against the header, before the body is read."""
    close_grace_s: float = 5.0
    """Closing waits so long for requests under way, then cuts them off."""
    address_translator: Callable[[str], str] | None = None
    """From an address that a node advertises to one that can be reached (NAT, containers)."""

    def __post_init__(self) -> None:
        if isinstance(self.addresses, str):
            raise ConfigurationError("addresses is a sequence of host:port, not a string")
        addresses = tuple(str(parse_address(text)) for text in self.addresses)
        if not addresses:
            raise ConfigurationError("addresses is empty: name at least one node")
        if len(set(addresses)) < len(addresses):
            raise ConfigurationError(f"an address is named twice: {', '.join(addresses)}")
        object.__setattr__(self, "addresses", addresses)
        for name in _DURATIONS:
            _check_duration(name, getattr(self, name))
        for name in ("total_timeout_s", "max_connection_age_s"):
            if getattr(self, name) is not None:
                _check_duration(name, getattr(self, name))
        for name in _CAPS:
            _check_count(name, getattr(self, name), 1)
        _check_count("busy_retries", self.busy_retries, 0)
        search_s = self.leader_search_timeout_s
        if not (search_s >= 0 and math.isfinite(search_s)):
            raise ConfigurationError(f"leader_search_timeout_s is seconds, 0 or more: {search_s!r}")
        if self.idle_timeout_s >= SERVER_IDLE_S and not self.allow_long_idle:
            raise ConfigurationError(
                f"idle_timeout_s must stay below the {SERVER_IDLE_S:g} s after which nodes close "
                "idle connections, or requests are lost with them; or say allow_long_idle=True"
            )


class Address(NamedTuple):
    """Where a node listens, in one spelling."""

    host: str
    """A name in lower case, or an IP address without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """Read ``host:port`` or ``[v6]:port``; the port may be left out if there is a default.

    Raises:
        ConfigurationError: it is neither.
    """
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?", text)
    plain = re.fullmatch(r"([^:\[\]]+)(?::(\d{1,5}))?", text)
    match = bracketed or plain
    if match is None:
        raise ConfigurationError(f"an address is host:port, or [v6]:port: {text!r}")
    host, port_text = match.groups()
    port = default_port if port_text is None else int(port_text)
    if port is None or not 1 <= port <= 65_535:
        raise ConfigurationError(f"an address needs a port from 1 to 65535: {text!r}")
    if bracketed:
        try:
            return Address(str(ipaddress.IPv6Address(host)), port)
        except ValueError:
            raise ConfigurationError(f"not an IPv6 address: {text!r}") from None
    if not _HOST.fullmatch(host):
        raise ConfigurationError(f"not a host name: {text!r}")
    return Address(host.lower(), port)


def pool_options(addresses: Sequence[str], given: Mapping[str, object]) -> PoolOptions:
    """Make options from names and values, as a URL's query spells them or as keywords.

    Raises:
        ConfigurationError: no such option, or not a value of its kind.
    """
    kinds = {field.name: str(field.type) for field in fields(PoolOptions)}
    del kinds["addresses"]
    values: dict[str, Any] = {}
    for name, value in given.items():
        kind = kinds.get(name)
        if kind is None:
            known = ", ".join(sorted(kinds))
            raise ConfigurationError(f"a pool has no option {name!r}; it has: {known}")
        values[name] = _parse(name, kind, value) if isinstance(value, str) else value
    return PoolOptions(addresses=addresses, **values)


def _parse(name: str, kind: str, text: str) -> object:
    parse = _PARSERS.get(kind.removesuffix(" | None"))
    if parse is None:
        raise ConfigurationError(f"{name} cannot be said in a URL")
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise ConfigurationError(f"{name} takes a value of kind {kind}: {text!r}") from None


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "int": int,
    "float": float,
    "bool": {"true": True, "false": False}.__getitem__,
    "Consistency": Consistency,
}


def _check_duration(name: str, value: float) -> None:
    if isinstance(value, bool) or not (value > 0 and math.isfinite(value)):
        raise ConfigurationError(f"{name} is seconds, more than 0: {value!r}")


def _check_count(name: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigurationError(f"{name} is a whole number, {least} or more: {value!r}")
