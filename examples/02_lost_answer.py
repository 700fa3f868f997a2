"""A timeout tells nothing: the answer is lost, the retry finds what landed.

    python examples/02_lost_answer.py

A seat may be booked once. The log applies the booking, and its answer gets lost on the way back; a
naive retry would now be told "conflict", take that for a no, and try again under a new number.
"""

import asyncio
from uuid import UUID, uuid4

import landed
from landed.commands import Command, Done, NewEvent, Reject, SafeLoop, ServiceIdentity, fingerprint

SEAT = landed.AggregateKey(org=UUID(int=1), type=UUID(int=4), id=UUID(int=12))
IDENTITY = ServiceIdentity.from_config("c0013700-0000-4000-8000-000000000002")


class Seats:
    """The state of a seat is who has it, or None."""

    def initial(self, key: landed.AggregateKey) -> str | None:
        return None

    def fold(self, _: str | None, event: landed.Event, key: landed.AggregateKey) -> str | None:
        return event.value.decode()

    def fingerprint_of(self, event: landed.Event, key: landed.AggregateKey) -> bytes:
        return fingerprint("book", ("seat", key.id), ("for", event.value.decode()))


def book(person: str, event_id: UUID) -> Command[str | None, str]:
    """One intent. The rule runs on every attempt, on fresh state, after the look for a retry."""

    def decide(holder: str | None) -> NewEvent | Reject:
        return Reject("taken", f"{holder} has it") if holder else NewEvent(1, person.encode())

    return Command.on(
        SEAT,
        event_id=event_id,
        fingerprint=fingerprint("book", ("seat", SEAT.id), ("for", person)),
        decide=decide,
        respond=lambda holder, version: f"booked for {holder} at version {version}",
    )


async def main() -> None:
    log = await landed.connect("memory:")
    write = log.write

    async def write_and_lose_the_answer(*args: object, **options: object) -> landed.Landed:
        log.write = write  # type: ignore[method-assign]  # only the first answer gets lost
        await write(*args, **options)  # type: ignore[arg-type]
        raise landed.OutcomeUnknownError("timeout")

    log.write = write_and_lose_the_answer  # type: ignore[method-assign]
    loop = SafeLoop(log, identity=IDENTITY, domain=Seats())
    outcome = await loop.execute(book("Ann", uuid4()))
    assert isinstance(outcome, Done), outcome
    print(outcome.result, "-", outcome.how)  # booked for Ann at version 1 - original
    print(await loop.execute(book("Bob", uuid4())))  # Rejected: Ann has it
    print(await log.details(SEAT))  # one version: nothing was written twice
    await log.close()


if __name__ == "__main__":
    asyncio.run(main())
