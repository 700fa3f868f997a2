"""Heads that the file is owed: changed by durable entries, and not written to their rows yet.

A head's row lies anywhere in the file, so writing it with every change would cost each change a
page. Heads are paid in sweeps instead: all that are owed when a sweep begins, in the order of their
rows, a slice now and then together with a commit. A sweep that is through moves the position up to
which the rows are complete; what a kill leaves unpaid is told again by the entries after it
(``tail.py``).
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

from landed.engines.sqlite.row import HeadRow

SLICE: Final = 256
"""Heads are paid so many at a time, or as many as changes were committed if those are more:
neighbours share a page, and no commit takes much longer than the others. Never more than a quarter of
what may be owed, so that a sweep has slices at any size."""

_NUMBER: Final = itemgetter(HeadRow._fields.index("number"))


class Payment(NamedTuple):
    """A slice of a sweep, to be written in one transaction."""

    rows: list[HeadRow]
    """In the order of their numbers."""
    until: int | None
    """Everything up to this position then stands in the rows; None: the sweep is not through."""


class Owed:
    """What is owed, and how far the sweep that pays it has come.

    Only the committing thread changes it. Others take ``rows`` once, before they look at the file,
    and find in it whatever the file did not hold at that moment: a dictionary that was handed out
    loses nothing, it is replaced when a sweep is through.
    """

    __slots__ = (
        "_at",
        "_changes_max",
        "_due",
        "_queue",
        "_sweep_until",
        "_unpaid",
        "rows",
        "until",
    )

    rows: dict[bytes, HeadRow]
    """The newest durable head of each aggregate that is owed, by packed key."""
    until: int
    """Every entry up to this position stands in the rows of the file."""

    def __init__(self, rows: dict[bytes, HeadRow], *, until: int, changes_max: int) -> None:
        """Owe ``rows``; never let more than about ``changes_max`` entries be owed at once."""
        self.rows = self._unpaid = rows
        self.until = until
        self._changes_max = changes_max
        self._queue: list[HeadRow] = []
        self._at = 0
        self._sweep_until = 0
        self._due = 0

    def owe(self, rows: dict[bytes, HeadRow]) -> None:
        """Take in the heads of a group that is durable now."""
        if self._unpaid is not self.rows:
            self._unpaid.update(rows)
        self.rows.update(rows)

    def slice(self, changes: int, position: int) -> Payment | None:
        """What to pay with a commit of so many changes, after the durable ``position``; or nothing.

        A sweep begins at half of what may be owed and pays a head a change, so it is through before
        the other half is used up. Nothing counts as paid before ``pay``.
        """
        if not self._queue:
            if position - self.until < self._changes_max // 2 or not self.rows:
                return None
            self._begin(position)
        self._due += changes
        if self._due < min(SLICE, self._changes_max // 4):
            return None
        end = self._at + self._due
        newest = self.rows
        rows = [newest[row.key.packed] for row in self._queue[self._at : end]]
        return Payment(rows, self._sweep_until if end >= len(self._queue) else None)

    def everything(self, position: int) -> Payment:
        """All that is owed, up to the durable ``position``."""
        self._begin(position)
        return Payment(self._queue, position)

    def pay(self, payment: Payment) -> None:
        """Take note that a slice is durable."""
        self._due = 0
        self._at += len(payment.rows)
        unpaid = self._unpaid
        for row in payment.rows:
            unpaid.pop(row.key.packed, None)
        if payment.until is not None:
            self.until = payment.until
            self.rows = unpaid
            self._queue = []

    def _begin(self, position: int) -> None:
        self._queue = sorted(self.rows.values(), key=_NUMBER)
        self._at = 0
        self._sweep_until = position
        self._unpaid = {}
