"""A whole log is copied from one engine's place to another's, and compared record by record.

Everything that a reader or a writer can ever notice goes along, under the same numbers: batches with
their events, clients, users and times, trims, deletes, every head with its floor, every mark, and the
positions of the feed. Batches that nobody can read any more stay behind. An unfinished copy is no log
that an engine would open, so it can be gone on with after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from landed.engines.port import LogIdentity
from landed.errors import ConfigurationError
from landed.log import Head

RECORDS: Final = 2_000
"""Of one transaction of the copy. What a kill takes is copied again."""
DIFFERENCES_MAX: Final = 20
"""Told one by one; a copy with more of them is simply wrong."""

_T = TypeVar("_T")
_Record = tuple[Any, ...]


class Entry(NamedTuple):
    """One batch, trim or delete, as every engine keeps it."""

    position: int
    """1 and up; its place in the feed."""
    number: int
    """Of its aggregate."""
    kind: int
    """A ``FeedKind``."""
    flags: int
    """2 allow_recreate, 4 allow_continuation."""
    incarnation: int
    version: int
    """Of the batch; of a trim the first version left; of a delete the last version."""
    event_seq: int
    """The aggregate's newest after this entry."""
    event_count: int
    server_ms: int
    min_seq: int
    max_seq: int
    """Lowest and highest client_seq of the batch; 0 and 0 of a trim or delete."""
    client: bytes
    user: bytes | None
    body: bytes | None
    """The encoded events; None of a trim or delete."""
    previous: int
    """Position of the aggregate's batch before this one, 0 if there is none or it is not read any
    more. A link of one place, not compared."""


class HeadOf(NamedTuple):
    """The head of one aggregate."""

    number: int
    key: bytes
    """Packed."""
    head: Head
    last_position: int
    """Of its newest batch, of whatever life. A link of one place, not compared."""


class Mark(NamedTuple):
    """The mark of one pair; never 0."""

    number: int
    client: bytes
    mark: int


class Frozen(NamedTuple):
    """What the keys of a log were placed by (log rule G3)."""

    num_shards: int
    routing_rule: str


class Place(Protocol):
    """A log that nobody changes, read in the order of its numbers.

    All of it raises ``StorageDamagedError`` for what is not what was written, and ``StorageError``
    where the place cannot be read now.
    """

    @property
    def name(self) -> str:
        """For messages; no secret."""

    def entries(self, after: int) -> Iterator[Entry]:
        """Entries behind a position: every trim and delete, and the batches still readable."""

    def heads(self) -> Iterator[HeadOf]:
        """Every head, by number."""

    def marks(self) -> Iterator[Mark]:
        """Every mark, by number and client."""


class Source(Place, Protocol):
    """A log to be copied; nobody writes to it while this is open."""

    @property
    def identity(self) -> LogIdentity: ...

    @property
    def frozen(self) -> Frozen: ...

    def count(self) -> int:
        """About how many entries, heads and marks there are; for a progress bar."""


class Target(Place, Protocol):
    """A copy that is being made."""

    def begin(self, identity: LogIdentity, frozen: Frozen) -> int:
        """Make room, or go on with the unfinished copy of this very log.

        Returns:
            The position that was reached; 0 at the beginning.

        Raises:
            ConfigurationError: there is a log already, or the unfinished copy of another one.
            StorageError: it cannot be made here.
        """

    def add_entries(self, entries: list[Entry]) -> None:
        """Keep entries, in one transaction."""

    def forget_heads(self) -> None:
        """Drop what an earlier attempt left of heads and marks."""

    def add_heads(self, heads: list[HeadOf]) -> None:
        """Keep heads, in one transaction."""

    def add_marks(self, marks: list[Mark]) -> None:
        """Keep marks, in one transaction."""

    def tidy(self) -> None:
        """Drop batches that died in the source since an earlier attempt copied them."""

    def publish(self) -> LogIdentity:
        """Make a log of it, durably, in one step: the same log, with a higher restore epoch."""


class Copied(NamedTuple):
    """What was copied, or is different."""

    entries: int
    aggregates: int
    marks: int
    resumed_after: int
    """Where an earlier attempt had come to; 0 if there was none."""
    position: int
    """Of the newest entry; 0 of an empty log."""
    digest: str
    """Over every record, in order: equal for two logs with equal contents."""
    differences: tuple[str, ...]
    """What is not the same on both sides; empty if all is well."""
    identity: LogIdentity | None
    """Of the copy; None if it was not published, because of a difference."""


Progress = Callable[[str, int, int], None]
"""Called now and then with what is done, and the records done and there are, about."""


def copy_log(source: Source, target: Target, *, progress: Progress) -> Copied:
    """Copy, compare both sides in full, and only then make a log of the copy.

    Run again after a kill or an error, it goes on where it was.

    The copy keeps the log's id and raises its restore epoch: to everybody who remembers the log it
    is that log, put back elsewhere, and whoever folded it folds it anew. Both sides could go on from
    here by themselves, and nobody could take one for the other.

    Raises:
        ConfigurationError, StorageError: see ``Target.begin`` and ``Place``.
    """
    total = source.count()
    after = target.begin(source.identity, source.frozen)
    done = _Steps(progress, "copying", total)
    for entries in _some(source.entries(after)):
        target.add_entries(entries)
        done.add(len(entries))
    target.forget_heads()
    for heads in _some(source.heads()):
        target.add_heads(heads)
        done.add(len(heads))
    for marks in _some(source.marks()):
        target.add_marks(marks)
        done.add(len(marks))
    if after:
        target.tidy()
    found = _compare(source, target, _Steps(progress, "comparing", total))
    identity = None if found.differences else target.publish()
    return found._replace(resumed_after=after, identity=identity)


def same_log(found: LogIdentity, wanted: LogIdentity, name: str) -> None:
    """Insist that an unfinished copy is one of the log that is being copied now.

    Raises:
        ConfigurationError: it is not.
    """
    if found != wanted:
        raise ConfigurationError(
            f"{name} holds the unfinished copy of another log, {found.log_id} at restore epoch "
            f"{found.restore_epoch}: finish that one, or remove it"
        )


class _Steps:
    """Counts records for the progress bar."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        self._progress(self._what, self._done, max(self._total, self._done))


def _some(records: Iterator[_T]) -> Iterator[list[_T]]:
    while some := list(islice(records, RECORDS)):
        yield some


def _compare(source: Source, target: Target, steps: _Steps) -> Copied:
    """Go through both sides at once; nothing is taken from what the copying remembered."""
    both = _Comparison(steps)
    both.go_through("the entry at position {}", source.entries(0), target.entries(0), 1, 14)
    position = both.last_place
    both.go_through("the head of aggregate number {}", source.heads(), target.heads(), 1, 3)
    both.go_through("a mark of aggregate number {}", source.marks(), target.marks(), 2, 3)
    entries, aggregates, marks = both.counts
    return Copied(
        entries,
        aggregates,
        marks,
        resumed_after=0,
        position=position,
        digest=both.digest.hexdigest(),
        differences=tuple(both.differences),
        identity=None,
    )


class _Comparison:
    """Of two sides, kind of record by kind of record."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self.digest = blake2b(digest_size=16)
        self.counts: list[int] = []
        self.last_place = 0
        self.differences: list[str] = []

    def go_through(
        self, what: str, ours: Iterator[_Record], theirs: Iterator[_Record], key: int, compared: int
    ) -> None:
        """Take both sides in order. ``key`` fields tell where a record stands, ``compared`` count."""
        count = self.last_place = 0
        for one, other in _side_by_side(ours, theirs, key):
            if one is not None:
                count += 1
                self.last_place = one[0]
                self.digest.update(msgspec.msgpack.encode(one[:compared]))
                if count % RECORDS == 0:
                    self._steps.add(RECORDS)
            if one is None or other is None or one[:compared] != other[:compared]:
                self._differ(what, one, other)
        self._steps.add(count % RECORDS)
        self.counts.append(count)

    def _differ(self, what: str, one: _Record | None, other: _Record | None) -> None:
        if len(self.differences) == DIFFERENCES_MAX:
            return
        found = other if one is None else one
        assert found is not None, "one of two sides has it"
        how = (
            "is in the copy only"
            if one is None
            else "is missing in the copy"
            if other is None
            else "is another one in the copy"
        )
        self.differences.append(f"{what.format(found[0])} {how}")


def _side_by_side(
    ours: Iterator[_Record], theirs: Iterator[_Record], key: int
) -> Iterator[tuple[_Record | None, _Record | None]]:
    """Pair the records of two rising sides that stand at the same place; None where one has none."""
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[:key] < other[:key]):
            yield one, None
            one = next(ours, None)
        elif one is None or other[:key] < one[:key]:
            yield None, other
            other = next(theirs, None)
        else:
            yield one, other
            one, other = next(ours, None), next(theirs, None)
