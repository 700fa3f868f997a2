"""What producers may know of us: how old an event may be, and how long a repeat is recognised (RT-11)."""

from __future__ import annotations

from sqlalchemy import Connection, Engine

from landed.records.retention import replay_floor
from landed.records.session import transact
from landed.registry import Registry
from landed.registry.horizons import horizons_of

TIERS = (
    "0: everything is kept",
    "1: payloads are gone; repeats are recognised",
    "2: readable identities are gone; repeats are recognised",
)


def describe(engine: Engine, registry: Registry) -> dict[str, object]:
    """The document of ``/.well-known/landed``.

    Digests are never dropped before the replay floor has passed them, so a repeat is recognised for
    ever, or refused as too old. The horizon, in seconds after an event was settled, is how long its
    readable identity stays at least; null: for ever.
    """

    def _work(conn: Connection) -> dict[str, int | None]:
        return {
            name: max(
                (
                    floor
                    for floor in (producer.replay_floor_us, replay_floor(conn, name))
                    if floor is not None
                ),
                default=None,
            )
            for name, producer in registry.producers.items()
        }

    floors = transact(engine, _work, is_durable=False)
    horizons = horizons_of(registry, registry.house).receipts
    return {
        "acknowledgement": "202 says that an event is durably held; it says nothing of later effects",
        "tiers": list(TIERS),
        "producers": {
            name: {
                "replay_floor_us": floor,
                "recognises_repeats": "for ever" if floor is None else "since the replay floor",
                "horizon_s": horizons[name].length_s,
                "horizon_rests_on": horizons[name].binding.name,
                "body_bytes_max": registry.producers[name].body_bytes_max,
            }
            for name, floor in floors.items()
        },
    }
