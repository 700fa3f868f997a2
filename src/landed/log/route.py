"""Which shard a key belongs to, and whether the keys of a request lie together."""

from __future__ import annotations

from typing import Final

from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log.answer import Misrouted
from landed.log.write import Delete, Write

ROUTING_RULES: Final = {
    "org_id": slice(0, 16),
    "aggregate_type_id": slice(16, 32),
    "aggregate_id": slice(32, 48),
}
"""Where in a packed key the routing id stands, by the name of the rule."""


def shard_of(key: AggregateKey, limits: Limits) -> int:
    """Return the shard of a key, 0-based: its routing id modulo the shard count, never a hash.

    Clients place aggregates together by choosing their ids.

    Source: log rule G2.
    """
    return int.from_bytes(key.packed[ROUTING_RULES[limits.routing_rule]]) % limits.num_shards


def misrouted(request: Write | Delete, limits: Limits) -> Misrouted | None:
    """Say why a request of several keys cannot be routed; None if it can.

    A key named twice is malformed (log rule M9). A door that reads bytes refuses it as such; a
    caller inside the process is told here, before any state is looked at.

    Source: log rules G4 to G6, M2, M9.
    """
    legs = request.legs
    if len(legs) == 1:
        return None
    if not legs:
        return Misrouted(True, limits.num_shards, "the request names no aggregate")
    keys = {leg.key for leg in legs}
    if len(keys) != len(legs):
        return Misrouted(True, limits.num_shards, "an aggregate is named twice in one request")
    if limits.num_shards > 1 and len({shard_of(key, limits) for key in keys}) > 1:
        return Misrouted(False, limits.num_shards, "the aggregates lie on different shards")
    return None
