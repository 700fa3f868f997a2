"""Your own commands in simulated worlds: lost answers, crashes and retries, each from a seed.

python examples/11_explored_stock.py
landed explore --app 11_explored_stock:Stock --seeds 1000        # in this folder
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from uuid import UUID

import landed
from landed.commands import Command, NewEvent, Reject, fingerprint
from landed.log import Batch
from landed.sim.explore import explore
from landed.sim.subject import Wish

TEA, SALT = (
    landed.AggregateKey(org=UUID(int=1), type=UUID(int=11), id=UUID(int=n)) for n in (1, 2)
)


class Shelf:
    """The state is how many are left. An event holds the change."""

    def initial(self, key: landed.AggregateKey) -> int:
        return 0

    def fold(self, left: int, event: landed.Event, key: landed.AggregateKey) -> int:
        return left + int(event.value)

    def fingerprint_of(self, event: landed.Event, key: landed.AggregateKey) -> bytes:
        return wish_of(key, int(event.value))


def wish_of(shelf: landed.AggregateKey, change: int) -> bytes:
    return fingerprint("change", ("shelf", shelf.id), ("by", change))


def change(shelf: landed.AggregateKey, by: int, event_id: UUID) -> Command[int, int]:
    def decide(left: int) -> NewEvent | Reject:
        if left + by < 0:
            return Reject("sold_out", f"{left} left")
        return NewEvent(1, str(by).encode())

    return Command.on(
        shelf,
        event_id=event_id,
        fingerprint=wish_of(shelf, by),
        decide=decide,
        respond=lambda left, version: left,
    )


class Stock:
    """What is explored: a domain, what callers wish, and what must hold in the end."""

    domain = Shelf()

    def wish(self, rng: Random) -> Wish:
        shelf, by = rng.choice((TEA, SALT)), rng.choice((1, 2, -1, -2))
        return Wish(f"change {'tea' if shelf is TEA else 'salt'} by {by}", self.command(shelf, by))

    def command(self, shelf: landed.AggregateKey, by: int) -> Callable[[UUID], Command[int, int]]:
        return lambda event_id: change(shelf, by, event_id)

    def check(self, log: Mapping[landed.AggregateKey, tuple[Batch, ...]]) -> Iterator[str]:
        for key, batches in log.items():
            left = 0
            for batch in batches:
                left += sum(int(event.value) for event in batch.events)
                if left < 0:
                    yield f"{left} left on shelf {key.id.int} at version {batch.version}"


class Careless(Stock):
    """The same with a mistake in it: it sells what is not there."""

    def command(self, shelf: landed.AggregateKey, by: int) -> Callable[[UUID], Command[int, int]]:
        return lambda event_id: Command.on(
            shelf,
            event_id=event_id,
            fingerprint=wish_of(shelf, by),
            decide=lambda left: NewEvent(1, str(by).encode()),
            respond=lambda left, version: left,
        )


def main() -> None:
    calls = 0
    for report in explore(range(40), subject=Stock()):
        assert not report.violations, report
        calls += report.calls
    print(f"40 worlds of Stock are clean, {calls} calls")
    wrong = next(report for report in explore(range(40), subject=Careless()) if report.violations)
    print(f"Careless is wrong in world {wrong.seed}: {wrong.violations[0].sentence}")


if __name__ == "__main__":
    main()
