"""A first safe write: sent twice with one key, written once, answered alike.

    python examples/01_first_write.py

The log is a file, counter.sqlite, in the present directory. Run it again: the counter goes on.
"""

import asyncio
from uuid import UUID, uuid4

import landed
from landed.commands import Command, NewEvent, SafeLoop, ServiceIdentity, fingerprint

COUNTER = landed.AggregateKey(org=UUID(int=1), type=UUID(int=2), id=UUID(int=3))
# One id for the whole service, on every replica and after every restart. Make your own, once.
IDENTITY = ServiceIdentity.from_config("c0013700-0000-4000-8000-000000000001")


class Counter:
    """What the events mean: the state of a counter is a number."""

    def initial(self, key: landed.AggregateKey) -> int:
        return 0

    def fold(self, count: int, event: landed.Event, key: landed.AggregateKey) -> int:
        return count + int(event.value)

    def fingerprint_of(self, event: landed.Event, key: landed.AggregateKey) -> bytes:
        return fingerprint("add", ("counter", key.id), ("by", int(event.value)))


async def main() -> None:
    async with await landed.connect("sqlite:///counter.sqlite") as log:
        loop = SafeLoop(log, identity=IDENTITY, domain=Counter())
        add_five = Command.on(
            COUNTER,
            event_id=uuid4(),  # the caller's key: one for each intent, the same for each retry
            fingerprint=fingerprint("add", ("counter", COUNTER.id), ("by", 5)),
            decide=lambda count: NewEvent(1, b"5"),
            respond=lambda count, version: count,
        )
        print(await loop.execute(add_five))  # how=fresh
        print(await loop.execute(add_five))  # how=original: the same result, no second event


if __name__ == "__main__":
    asyncio.run(main())
