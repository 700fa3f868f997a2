"""Every bound of the product in one frozen table, each with its reason.

Floor 0. ``--set name=value`` changes any of them for one process; this is also how tests turn them.
Sizes are bytes, times are seconds unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from landed.errors import ConfigurationError

MIB = 1024 * 1024
_AT_LEAST_ONE = (
    "max_request_size",
    "max_frame_size",
    "group_writes_max",
    "queued_writes_max",
    "queued_bytes_max",
    "readers_max",
    "connections_max",
    "connection_requests_max",
)
"""With 0 of them a process would start and serve nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one process."""

    # --- wire
    max_request_size: int = 16 * MIB
    """Body of a request; the reference server's own bound."""
    max_frame_size: int = 64 * MIB
    """Body of any answer; what the published clients accept at most."""
    max_response_size: int = 1 * MIB
    """Page budget, encoded bytes. Not a hard cap: one batch always fits (log rule R8)."""

    # --- log
    client_seq_jump_max: int = 2**32
    """How far above the mark an enforced sequence may lie; 0 lifts the bound. A mark is never
    lowered, so one absurd number would close the pair for good."""
    num_shards: int = 1
    """Frozen by the first start on a data directory (log rule G3)."""
    routing_rule: str = "aggregate_id"
    """Which part of the key picks the shard: org_id, aggregate_type_id or aggregate_id."""

    # --- engines
    group_writes_max: int = 4096
    """Changes that share one flush. Bounds the length of a commit and what a failed one fails."""
    group_bytes_max: int = 16 * MIB
    """Event bytes that share one flush, likewise."""
    inline_commit_ms: float = 3.0
    """While commits take less, they run on the event loop's own thread: handing one over and back
    costs more than a fast disk's flush. 0: always on a thread of their own."""
    queued_writes_max: int = 65_536
    """Accepted but not durable; above it the answer is busy (11000)."""
    queued_bytes_max: int = 128 * MIB
    """The same in bytes, so that memory stays bounded whatever the size of a write."""
    cached_heads_max: int = 106_496
    """Heads kept in memory; the rest is read back when touched. A hundred thousand and some: a
    server then stays below 150 MB, however many aggregates its log has."""
    cached_marks_max: int = 106_496
    """Marks kept in memory, likewise, besides that of each aggregate's last writer, which comes with
    its head."""
    replayed_max: int = 65_536
    """Entries that the SQLite engine replays when it is opened after a kill, about: half a second.
    Heads are written so seldom that this many are owed; fewer would cost each change more."""
    readers_max: int = 4
    """Reading threads, each with its own connection; more than the cores gains nothing."""
    reclaim_after_s: float = 60.0
    """How long dead batches stay on the disk; dropping them one by one would slow writers."""
    feed_wait_max_s: float = 30.0
    """Longest wait of one feed request; below the clients' response timeout."""
    feed_poll_s: float = 0.05
    """On PostgreSQL: how often waiting feed requests look for what other processes committed."""
    lock_wait_s: float = 1.0
    """On PostgreSQL: how long a group waits for an aggregate's lock; then who needs it is busy."""
    commit_wait_s: float = 5.0
    """On PostgreSQL: how long changes wait behind one commit, of a lost standby perhaps; then they
    are busy, and so is who comes after them, until it is through."""

    # --- server
    connections_max: int = 4096
    """Above it a new connection is closed at once."""
    connection_requests_max: int = 256
    """Requests of one connection executed or waiting; reading pauses above it."""
    admitted_bytes_max: int = 256 * MIB
    """Request bytes in memory over all connections; reading pauses above it."""
    unsent_bytes_max: int = 80 * MIB
    """Answers one client has not taken yet; above one whole frame, so that a frame always fits."""
    idle_timeout_s: float = 30.0
    """A connection without a request, or one that does not finish sending it, is closed."""
    send_timeout_s: float = 30.0
    """A client that takes no byte of its answers for so long is dropped."""
    drain_timeout_s: float = 2.0
    """After its last answer a connection is read on for so long, and what comes is thrown away:
    closing over unread input sends a reset, which can destroy the answer."""
    shutdown_grace_s: float = 10.0
    """After SIGTERM, what was received whole is finished within this time."""

    def __post_init__(self) -> None:
        """Refuse what nothing could be served with.

        Raises:
            ConfigurationError: a bound of 0 that has to be 1 or more.
        """
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is 1 or more: {getattr(self, name)}")


def with_settings(limits: Limits, settings: Iterable[str]) -> Limits:
    """Apply ``name=value`` settings, as ``--set`` takes them.

    Raises:
        ConfigurationError: no such limit, or not a value of its kind.
    """
    kinds = {field.name: field.type for field in fields(Limits)}
    changes: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in kinds:
            raise ConfigurationError(
                f"--set takes limit=value; {setting!r} is not one of: " + ", ".join(sorted(kinds))
            )
        try:
            changes[name] = _parse(str(kinds[name]), text)
        except ValueError:
            raise ConfigurationError(
                f"{name} takes a value of kind {kinds[name]}: {text!r}"
            ) from None
    return replace(limits, **changes)  # type: ignore[arg-type]  # checked against the fields above


def _parse(kind: str, text: str) -> object:
    if kind == "int":
        number = int(text.replace("_", ""))
        if number < 0:
            raise ValueError(text)
        return number
    if kind == "float":
        seconds = float(text)
        if not 0 <= seconds < float("inf"):
            raise ValueError(text)
        return seconds
    return text
