"""Who answers a request: the engine, or the door itself."""

from __future__ import annotations

from collections.abc import Callable

from landed.engines.port import Engine
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Delete, Misrouted, Write
from landed.wire.messages import Identified, Identify, LogFacts, Probe, WireAnswer, WireRequest

_ROUTED_BY = {
    "org_id": slice(0, 16),
    "aggregate_type_id": slice(16, 32),
    "aggregate_id": slice(32, 48),
}


def shard_of(key: AggregateKey, limits: Limits) -> int:
    """The shard a key belongs to: a plain modulo, because clients choose ids by it (log rule G2)."""
    return int.from_bytes(key.packed[_ROUTED_BY[limits.routing_rule]]) % limits.num_shards


def misrouted(request: WireRequest, limits: Limits) -> Misrouted | None:
    """Say whether a request cannot be routed. It comes before every check of the operation.

    Only writes and deletes can fail here: the others name exactly one key, or none by design.

    Source: log rules G4 to G6.
    """
    if not isinstance(request, (Write, Delete)):
        return None
    if not request.legs:
        return Misrouted(True, limits.num_shards, "the request names no aggregate")
    if limits.num_shards > 1:
        shards = {shard_of(leg.key, limits) for leg in request.legs}
        if len(shards) > 1:
            return Misrouted(False, limits.num_shards, "the aggregates lie on several shards")
    return None


def dispatch(
    request: WireRequest, engine: Engine, limits: Limits, done: Callable[[WireAnswer], None]
) -> None:
    """Hand a request to whoever answers it; ``done`` takes the answer, now or later."""
    match request:
        case Identify():
            # No keys are configured in this version, so nobody is verified and nothing is granted:
            # what a client shows is not looked at (wire spec 7.3).
            done(Identified(None, None))
        case Probe():
            identity = engine.identity
            done(LogFacts(identity.log_id, identity.restore_epoch, engine.position))
        case _:
            refusal = misrouted(request, limits)
            if refusal is None:
                engine.submit(request, done)
            else:
                done(refusal)
