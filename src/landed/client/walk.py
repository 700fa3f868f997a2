"""Which node to ask next. Plain data: it knows addresses, not connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from landed.client.options import Address

DISCOVERED_MAX: Final = 16
"""Addresses learned from nodes, besides those configured (pool rule CP-38)."""
VISITS_MAX: Final = 2
"""Times that one walk asks one node: two nodes that point at each other come to an end (CP-40)."""


class AddressBook:
    """The known addresses in order, and the best guess at the leader.

    Two calls may learn different things at once. What one of them saw of a node changes the guess
    only if that node, or what the call started from, is still the guess (CP-44).
    """

    def __init__(self, configured: Sequence[Address]) -> None:
        self._configured = tuple(configured)
        self._discovered: list[Address] = []
        self.leader = self._configured[0]

    @property
    def known(self) -> tuple[Address, ...]:
        """Configured ones first, then those discovered, the oldest first."""
        return (*self._configured, *self._discovered)

    def redirected(self, to: Address) -> None:
        """A node named the leader."""
        if to not in self.known:
            if len(self._discovered) == DISCOVERED_MAX:
                self._discovered.pop(0)
            self._discovered.append(to)
        self.leader = to

    def confirmed(self, address: Address, *, guess: Address) -> None:
        """A node accepted a change; ``guess`` was the leader when the call began."""
        if self.leader == guess:
            self.leader = address

    def doubted(self, address: Address) -> None:
        """A node cannot be reached, or is not the leader and knows no other: guess the next one."""
        if self.leader == address:
            known = self.known
            self.leader = known[(known.index(address) + 1) % len(known)]

    def in_order(self) -> tuple[Address, ...]:
        """The leader first, then the others in their stable order (CP-45)."""
        return (self.leader, *(address for address in self.known if address != self.leader))


class Walk:
    """One search for the node that accepts a change (CP-39): ``first``, then ``next`` and next."""

    __slots__ = ("_book", "_count", "_named", "_visits", "first")

    def __init__(self, book: AddressBook, first: Address) -> None:
        self._book = book
        self.first = first
        """Who is asked first: the best guess at the leader."""
        self._visits: dict[Address, int] | None = None
        self._count = 1
        self._named: Address | None = None

    def next(self) -> Address | None:
        """The node to ask now; None once everybody who could be asked was asked."""
        if self._visits is None:
            self._visits = {self.first: 1}
        visits = self._visits
        known = self._book.known
        address, self._named = self._named, None
        if self._count > VISITS_MAX * len(known):
            return None
        if address is None or visits.get(address, 0) == VISITS_MAX:
            address = next((other for other in known if other not in visits), None)
        if address is not None:
            visits[address] = visits.get(address, 0) + 1
            self._count += 1
        return address

    def redirected(self, to: Address) -> None:
        """The node asked last named this one."""
        self._named = to
        self._book.redirected(to)
