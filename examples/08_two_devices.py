"""Two devices edit one thing offline; the conflict is resolved in the projection.

python examples/08_two_devices.py

Nothing is refused and nothing is lost: both edits are in the log, in one order that everybody reads.
What they come to together is a pure function of that order, the same wherever it is folded. Here a
trip's title goes to the last writer, and its packing list keeps what either of them added.
"""

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import landed
from landed.offline import AsyncQueue

TRIP = landed.AggregateKey(org=UUID(int=1), type=UUID(int=7), id=UUID(int=1))
RENAMED, PACKED, UNPACKED = 1, 2, 3


@dataclass(frozen=True)
class Trip:
    title: str = ""
    titled_at: tuple[int, str] = (0, "")
    items: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def packing_list(self) -> list[str]:
        return sorted(item for item, adds in self.items.items() if adds)


def fold(trip: Trip, event: landed.Event, client_id: UUID) -> Trip:
    """What one event makes of a trip."""
    said = json.loads(event.value)
    match event.type_major:
        case 1:
            # Last write wins, by the devices' own clocks, which may be wrong: good enough for a title.
            # The client id decides a tie, so that every reader decides it alike.
            when = (event.event_ms, str(client_id))
            if when < trip.titled_at:
                return trip
            return replace(trip, title=said["title"], titled_at=when)
        case 2:
            # Each adding is remembered by its event id ...
            adds = trip.items.get(said["item"], frozenset()) | {str(event.event_id)}
            return replace(trip, items={**trip.items, said["item"]: adds})
        case 3:
            # ... and a removal names the addings that its device had seen: one it had not survives.
            adds = trip.items.get(said["item"], frozenset()) - set(said["seen"])
            return replace(trip, items={**trip.items, said["item"]: adds})
        case unknown:
            raise ValueError(f"no such event: {unknown}")


async def read(log: landed.Log, queue: AsyncQueue) -> Trip:
    """The log's order, and on top of it what this device has not synced yet."""
    trip = Trip()
    seen: set[UUID | None] = set()
    try:
        async for batch in log.read_all(landed.Read(TRIP)):
            for event in batch.events:
                seen.add(event.event_id)
                trip = fold(trip, event, batch.client_id)
    except landed.AggregateMissingError:
        pass
    for _, entry in await queue.pending(TRIP):
        if entry.event_id not in seen:  # landed, but not marked yet
            trip = fold(trip, entry.event(), queue.client_id)
    return trip


async def edit(queue: AsyncQueue, kind: int, at_ms: int, **said: object) -> str:
    saved = await queue.enqueue(TRIP, kind, json.dumps(said).encode(), event_ms=at_ms)
    return str(saved.event_id)


async def main() -> None:
    folder = Path()
    ann = await AsyncQueue.open(folder / "ann.db")
    ben = await AsyncQueue.open(folder / "ben.db")
    async with await landed.connect("memory:") as log, ann, ben:
        rope = await edit(ann, PACKED, 1, item="rope")
        await ann.sync(log)  # both know of the rope; now the network goes
        await edit(ann, RENAMED, 10, title="To the glacier")
        await edit(ann, PACKED, 11, item="tent")
        await edit(ben, RENAMED, 20, title="To the lake")
        await edit(ben, UNPACKED, 21, item="rope", seen=[rope])
        await edit(ann, PACKED, 30, item="rope")  # Ben cannot have seen this one
        print("Ann sees ", (await read(log, ann)).title)
        print("Ben sees ", (await read(log, ben)).title)
        await ben.sync(log)  # in whichever order they come back
        await ann.sync(log)
        for trip in (await read(log, ann), await read(log, ben)):
            print("both see ", trip.title, trip.packing_list)


if __name__ == "__main__":
    asyncio.run(main())
