"""The accepted tail: what readers may see, and every admitted change ahead of it.

Bounded: standings and marks are caches in front of the store, evicted by least recent use. What is
asked and not here is *cold*, and never guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from landed.engines.group import Group, Pair
from landed.engines.port import Stored
from landed.engines.recent import cut
from landed.engines.standing import Standing
from landed.ids import AggregateKey, ClientId
from landed.log import NEVER, Delete, Head, Life, Mutation, Trim
from landed.log.judge import Admitted


class Cold(Exception):  # noqa: N818  # a signal between two modules, not an error
    """The law asked for something that is not in memory; nothing was decided."""


class AcceptedTail:
    """Heads, marks and sequences in flight, as the law sees them; and the visible heads beneath.

    A change is first *ahead* (accepted, in flight) and then *visible*. Heads are replaced, never
    changed, so "is a change of this aggregate in flight" is a question of identity.

    Of each pair the mark is kept in one place only, if it is known: the one that wrote last in the
    aggregate's standing, every other in ``_marks``.
    """

    __slots__ = ("_flying", "_heads_max", "_marks", "_marks_max", "_published", "_standings")

    def __init__(self, *, heads_max: int, marks_max: int) -> None:
        # Plain dicts in the order of use, by taking out and putting back: an OrderedDict needs
        # a hundred bytes more for each aggregate.
        self._standings: dict[bytes, Standing] = {}
        self._marks: dict[Pair, int] = {}
        self._flying: deque[Group] = deque()
        """Groups with accepted changes that are not visible yet, in order."""
        self._heads_max = heads_max
        self._marks_max = marks_max
        self._published: list[Group] | None = None

    # --- the law's view

    def head(self, key: AggregateKey) -> Head:
        """The head with every accepted change in it. Raises Cold."""
        standing = self._standings.get(key.packed)
        if standing is None:
            raise Cold
        return standing.accepted

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        """The pair's visible mark, 0 if none. Raises Cold."""
        packed, client = key.packed, client_id.int
        standing = self._standings.get(packed)
        if standing is not None and standing.client == client:
            return standing.mark
        mark = self._marks.get((packed, client))
        if mark is None:
            if standing is not None and standing.visible.life is Life.NEVER:
                return 0
            raise Cold
        return mark

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        """The highest client_seq of the pair's batches in flight; None if there are none."""
        standing = self._standings.get(key.packed)
        if standing is None or standing.accepted is standing.visible:
            return None
        if standing.ahead_client == client_id.int:
            return standing.ahead_seq
        pair = (key.packed, client_id.int)
        found = [group.highest_seq(pair) for group in self._flying]
        return max([seq for seq in found if seq is not None], default=None)

    # --- the readers' view

    def visible(self, key: AggregateKey) -> Head:
        """The head readers may see. Raises Cold."""
        standing = self._standings.pop(key.packed, None)
        if standing is None:
            raise Cold
        self._standings[key.packed] = standing
        return standing.visible

    def is_ahead(self, key: AggregateKey) -> bool:
        """Say whether a change of the aggregate is in flight."""
        standing = self._standings.get(key.packed)
        return standing is not None and standing.accepted is not standing.visible

    # --- changes

    def accept(self, steps: Admitted, client_id: ClientId | None, group: Group) -> list[Standing]:
        """Put admitted steps ahead, as part of a group they are added to next; return whose.

        ``client_id``: of a write, else None.
        """
        client = None if client_id is None else client_id.int
        flying = self._flying
        if not flying or flying[-1] is not group:
            flying.append(group)
        standings = self._standings
        found = []
        for key, head, highest_seq in steps:
            packed = key.packed
            standing = standings.pop(packed)
            standings[packed] = standing
            if standing.accepted is standing.visible:
                standing.ahead_client = client
            elif standing.ahead_client != client or highest_seq < standing.ahead_seq:
                standing.ahead_client = None
            standing.ahead_seq = highest_seq
            standing.accepted = head
            found.append(standing)
        return found

    def publish(self, group: Group) -> None:
        """Make the eldest group visible, all of it in this one call (log rules C2, M7)."""
        self._flying.popleft()
        if self._published is not None:
            self._published.append(group)
        for key, _, _, head, batch, client_id, highest_seq, standing in group.staged:
            if batch is not None:
                if standing.client == client_id.int:
                    standing.mark = max(standing.mark, highest_seq)
                else:
                    self._raise_other(standing, key, client_id, highest_seq)
            standing.visible = head

    def _raise_other(
        self, standing: Standing, key: AggregateKey, client_id: ClientId, seq: int
    ) -> None:
        """Raise a mark that is known elsewhere; one that is not stays to be looked up (I5, I18)."""
        mark = self._marks.pop((key.packed, client_id.int), None)
        if mark is None:
            if standing.visible.life is not Life.NEVER:
                return
            mark = 0
        self._seat(standing, key, client_id, max(mark, seq))

    def _seat(self, standing: Standing, key: AggregateKey, client_id: ClientId, mark: int) -> None:
        """Keep a pair's mark in the standing, and that of the pair it held among the others."""
        if standing.client is not None and standing.client != client_id.int:
            self._marks[key.packed, standing.client] = standing.mark
        standing.client = client_id.int
        standing.mark = mark

    def roll_back(self) -> None:
        """Return to the visible state, as if nothing in flight had been sent (log rule C6)."""
        for group in self._flying:
            for staged in group.staged:
                staged.standing.accepted = staged.standing.visible
        self._flying.clear()

    # --- cold and warm

    def cold_parts(
        self, request: Mutation
    ) -> tuple[list[AggregateKey], list[tuple[AggregateKey, ClientId]]]:
        """List what must be looked up before a change can be judged."""
        if isinstance(request, Trim):
            return ([] if self._is_warm(request.key) else [request.key]), []
        if isinstance(request, Delete):
            return [leg.key for leg in request.legs if not self._is_warm(leg.key)], []
        keys, pairs = [], []
        for leg in request.legs:
            if not self._is_warm(leg.key):
                keys.append(leg.key)
            if leg.enforce_sequence:
                try:
                    self.mark(leg.key, request.client_id)
                except Cold:
                    pairs.append((leg.key, request.client_id))
        return keys, pairs

    def _is_warm(self, key: AggregateKey) -> bool:
        return key.packed in self._standings

    def expect(self) -> None:
        """A lookup starts: remember the sequences that are published while it runs."""
        self._published = []

    def give_up(self) -> None:
        """A lookup failed: nothing needs to be remembered for it any more."""
        self._published = None

    def learn(
        self,
        keys: Iterable[AggregateKey],
        pairs: Iterable[tuple[AggregateKey, ClientId]],
        stored: Stored,
    ) -> None:
        """Take in what a lookup found; what it did not find was never written.

        No head changes while it is looked up: it is looked up because it is cold, a change is
        judged on a warm head only, and no key is looked up twice at once (see ``Loader.want``).
        A mark may rise meanwhile, since writes that do not enforce their sequence do without it:
        hence the higher of what was found and what was published.
        """
        for key in keys:
            self._standings[key.packed] = Standing(stored.heads.get(key, NEVER))
        published = self._published or ()
        for key, client_id in pairs:
            pair = (key.packed, client_id.int)
            mark = stored.marks.get((key, client_id), 0)
            mark = max([mark, *(group.highest_seq(pair) or 0 for group in published)])
            standing = self._standings.get(key.packed)
            if standing is None:
                self._marks[pair] = mark
            else:
                self._marks.pop(pair, None)
                self._seat(standing, key, client_id, mark)
        self._published = None

    def evict(self) -> None:
        """Drop the least recently used beyond the bounds; never a head with a change in flight."""
        standings = cut(self._standings, self._heads_max)
        if standings is not self._standings:
            for group in self._flying:
                for staged in group.staged:
                    standings.setdefault(staged.key.packed, staged.standing)
            self._standings = standings
        self._marks = cut(self._marks, self._marks_max)
