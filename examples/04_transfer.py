"""Two aggregates, one request: both change or neither, and a retry gets both answers.

python examples/04_transfer.py
"""

import asyncio
from uuid import UUID, uuid4

import landed
from landed.commands import (
    Accept,
    Command,
    Decision,
    NewEvent,
    Reject,
    SafeLoop,
    ServiceIdentity,
    fingerprint,
)

IDENTITY = ServiceIdentity.from_config("c0013700-0000-4000-8000-000000000004")
STORE, SHOP = (
    landed.AggregateKey(org=UUID(int=1), type=UUID(int=5), id=UUID(int=n)) for n in (1, 2)
)


class Shelves:
    """The state of a shelf is how many boxes are on it. An event holds a change, and its wish."""

    def initial(self, key: landed.AggregateKey) -> int:
        return 0

    def fold(self, boxes: int, event: landed.Event, key: landed.AggregateKey) -> int:
        change, _, _ = event.value.partition(b" ")
        return boxes + int(change)

    def fingerprint_of(self, event: landed.Event, key: landed.AggregateKey) -> bytes:
        _, _, wish = event.value.partition(b" ")
        return bytes.fromhex(wish.decode())


def move(count: int, event_id: UUID) -> Command[int, int]:
    # A wish that the events cannot give back is put into the payload.
    wish = fingerprint("move", ("from", STORE.id), ("to", SHOP.id), ("count", count))

    def decide(shelves: tuple[int, ...]) -> Decision:
        store, _ = shelves
        if store < count:
            return Reject("too_few", f"{store} in store")
        out, into = (f"{sign * count} {wish.hex()}".encode() for sign in (-1, +1))
        return Accept(((NewEvent(1, out),), (NewEvent(1, into),)))

    return Command(
        event_id=event_id,
        fingerprint=wish,
        targets=(STORE, SHOP),
        decide=decide,
        respond=lambda key, boxes, version: boxes,
    )


async def main() -> None:
    async with await landed.connect("memory:") as log:
        loop = SafeLoop(log, identity=IDENTITY, domain=Shelves())
        delivery = fingerprint("deliver", ("to", STORE.id), ("count", 10))
        await loop.execute(
            Command.on(
                STORE,
                event_id=uuid4(),
                fingerprint=delivery,
                decide=lambda boxes: NewEvent(1, f"10 {delivery.hex()}".encode()),
                respond=lambda boxes, version: boxes,
            )
        )
        moving = move(4, uuid4())
        print(await loop.execute(moving))  # results=(6, 4), how=fresh
        print(await loop.execute(moving))  # results=(6, 4), how=original
        print(await loop.execute(move(7, uuid4())))  # Rejected: 6 in store


if __name__ == "__main__":
    asyncio.run(main())
