"""The accepted tail: what readers may see, and every admitted change ahead of it.

Bounded: heads and marks are caches in front of the store, evicted by least recent use. What is
asked and not here is *cold*, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from landed.engines.group import Group, Pair
from landed.engines.port import Stored
from landed.engines.recent import cut
from landed.ids import AggregateKey, ClientId
from landed.log import NEVER, Delete, Head, Life, Mutation, Trim
from landed.log.judge import Admitted


class Cold(Exception):  # noqa: N818  # a signal between two modules, not an error
    """The law asked for something that is not in memory; nothing was decided."""


class AcceptedTail:
    """Heads, marks and sequences in flight, as the law sees them; and the visible heads beneath.

    A change is first *ahead* (accepted, in flight) and then *visible*. Heads are replaced, never
    changed, so "is the newest accepted head the one this group made" is a question of identity.
    """

    __slots__ = (
        "_ahead",
        "_ahead_seqs",
        "_heads",
        "_heads_max",
        "_marks",
        "_marks_max",
        "_published",
    )

    def __init__(self, *, heads_max: int, marks_max: int) -> None:
        # Plain dicts in the order of use, by taking out and putting back: an OrderedDict needs
        # a hundred bytes more for each aggregate.
        self._heads: dict[bytes, Head] = {}
        self._marks: dict[Pair, int] = {}
        self._ahead: dict[bytes, Head] = {}
        self._ahead_seqs: dict[Pair, int] = {}
        self._heads_max = heads_max
        self._marks_max = marks_max
        self._published: list[dict[Pair, int]] | None = None

    # --- the law's view

    def head(self, key: AggregateKey) -> Head:
        """The head with every accepted change in it. Raises Cold."""
        packed = key.packed
        head = self._ahead.get(packed) or self._heads.get(packed)
        if head is None:
            raise Cold
        return head

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        """The pair's visible mark, 0 if none. Raises Cold."""
        packed = key.packed
        mark = self._marks.get((packed, client_id.int))
        if mark is None:
            head = self._heads.get(packed)
            if head is not None and head.life is Life.NEVER:
                return 0
            raise Cold
        return mark

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        """The highest client_seq of the pair's batches in flight; None if there are none."""
        return self._ahead_seqs.get((key.packed, client_id.int))

    # --- the readers' view

    def visible(self, key: AggregateKey) -> Head:
        """The head readers may see. Raises Cold."""
        head = self._heads.pop(key.packed, None)
        if head is None:
            raise Cold
        self._heads[key.packed] = head
        return head

    def is_ahead(self, key: AggregateKey) -> bool:
        """Say whether a change of the aggregate is in flight."""
        return key.packed in self._ahead

    # --- changes

    def accept(self, steps: Admitted, client_id: ClientId | None, group: Group) -> None:
        """Put admitted steps ahead, as part of a group; ``client_id`` of a write, else None."""
        ahead, heads = self._ahead, group.heads
        for key, head, highest_seq in steps:
            packed = key.packed
            ahead[packed] = heads[packed] = head
            if client_id is not None:
                pair = (packed, client_id.int)
                for seqs in (self._ahead_seqs, group.seqs):
                    if seqs.get(pair, -1) < highest_seq:
                        seqs[pair] = highest_seq

    def publish(self, group: Group, later: Sequence[Group]) -> None:
        """Make a durable group visible, all of it in this one call (log rules C2, M7)."""
        if self._published is not None:
            self._published.append(group.seqs)
        if later:
            ahead = self._ahead
            for packed, head in group.heads.items():
                if ahead[packed] is head:
                    del ahead[packed]
        else:
            self._ahead.clear()
        self._publish_marks(group.seqs, later)
        heads = self._heads
        for packed, head in group.heads.items():
            heads.pop(packed, None)
            heads[packed] = head

    def _publish_marks(self, seqs: dict[Pair, int], later: Sequence[Group]) -> None:
        """Raise the marks that are known; one that is not stays to be looked up (I5, I18)."""
        marks = self._marks
        for pair, seq in seqs.items():
            mark = marks.pop(pair, None)
            if mark is None:
                head = self._heads.get(pair[0])
                if head is None or head.life is not Life.NEVER:
                    continue
                mark = 0
            marks[pair] = max(mark, seq)
        if not later:
            self._ahead_seqs.clear()
            return
        ahead, changed = self._ahead_seqs, self._ahead
        for pair, seq in seqs.items():
            if pair[0] not in changed:
                del ahead[pair]
            # A higher one in flight is of a later group, and stays the highest.
            elif ahead[pair] == seq:
                still = [group.seqs[pair] for group in later if pair in group.seqs]
                if still:
                    ahead[pair] = max(still)
                else:
                    del ahead[pair]

    def roll_back(self) -> None:
        """Return to the visible state, as if nothing in flight had been sent (log rule C6)."""
        self._ahead.clear()
        self._ahead_seqs.clear()

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
        return key.packed in self._ahead or key.packed in self._heads

    def expect(self) -> None:
        """A lookup starts: remember the sequences that are published while it runs."""
        self._published = []

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
            self._heads[key.packed] = stored.heads.get(key, NEVER)
        published = self._published or ()
        for key, client_id in pairs:
            pair = (key.packed, client_id.int)
            mark = stored.marks.get((key, client_id), 0)
            self._marks[pair] = max([mark, *(seqs.get(pair, 0) for seqs in published)])
        self._published = None

    def evict(self) -> None:
        """Drop the least recently used beyond the bounds; never a head with a change in flight."""
        heads = cut(self._heads, self._heads_max)
        if heads is not self._heads:
            for packed in self._ahead:
                heads.setdefault(packed, self._heads[packed])
            self._heads = heads
        self._marks = cut(self._marks, self._marks_max)
