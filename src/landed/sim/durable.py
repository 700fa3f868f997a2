"""What a log must hold, told by its rules alone from what was committed; and what answers get wrong.

It never asks the engine what it thinks. Every group that is flushed moves a small model of each
aggregate by the rules of lives, floors and numbers; every answer is held against the states that
readers could see between the request and the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from landed.engines.port import Staged, Store
from landed.ids import AggregateKey, ClientId
from landed.log import (
    AggregateMissing,
    Answer,
    Batch,
    BelowFloor,
    Delete,
    Deleted,
    Details,
    Event,
    FeedKind,
    FeedPage,
    FeedRead,
    GetDetails,
    Head,
    Landed,
    Leg,
    Life,
    NotLoaded,
    Page,
    Read,
    ReadFilters,
    Request,
    SequenceTaken,
    Trim,
    Trimmed,
    Unknown,
    Write,
)

Pair = tuple[AggregateKey, ClientId]


class State(NamedTuple):
    """One aggregate between two changes."""

    life: Life = Life.NEVER
    incarnation: int = 0
    version: int = 0
    event_seq: int = 0
    floor: int = 0
    is_open: bool = True
    """Of a deleted one: it may be written again."""
    is_continued: bool = False
    """Of a deleted one: the next life goes on counting."""
    batches: tuple[Batch, ...] = ()
    """Of this life and not below the floor, in their order."""

    @property
    def is_live(self) -> bool:
        return self.life is Life.LIVE


class Act(NamedTuple):
    """One committed change of one aggregate."""

    position: int
    key: AggregateKey
    kind: FeedKind
    incarnation: int
    batch: Batch | None
    version: int
    """As the feed tells it: of a trim the first version left, of a delete the last one."""


NOTHING: Final = State()


class Seen(NamedTuple):
    """What could be seen, and was flushed, when a request arrived."""

    since: int
    """Groups that were visible."""
    taken: Mapping[Pair, int]
    """Marks of the pairs that a write names."""


class Durable:
    """What was committed in all lives of a server, and what is wrong with it."""

    def __init__(self) -> None:
        self.marks: dict[Pair, int] = {}
        """The highest sequence of each pair that is flushed."""
        self.position = 0
        self.acts: list[Act] = []
        """Everything committed, in its order."""
        self.broken: list[str] = []
        self._states: dict[AggregateKey, list[tuple[int, State]]] = {}
        self._groups = 0
        self._visible = 0
        self._torn: tuple[Staged, ...] = ()

    # --- what happens

    def expect_any(self, group: Sequence[Staged]) -> None:
        """The power went while a group was flushed: it is there whole, or nothing of it is."""
        self._torn = tuple(group)

    def found(self, position: int, store: Store) -> None:
        """A life begins and says how far the log goes; what it reads back must be what was flushed.

        Source: log rules C9 to C11, M8.
        """
        torn, self._torn = self._torn, ()
        if torn and position == torn[-1].position:
            self.take(torn)
        elif position != self.position:
            self.broken.append(
                f"a life began at position {position}, the one before was flushed up to "
                f"{self.position}"
            )
        self._visible = self._groups
        self.broken += self.disagrees(store)

    def take(self, group: Sequence[Staged]) -> None:
        """A group is flushed; its numbers must go on where the last ones ended."""
        self._groups += 1
        for staged in group:
            if staged.position <= self.position:
                self.broken.append(f"position {staged.position} was stored after {self.position}")
            self.position = staged.position
            before = self.newest(staged.key)
            after = _after(before, staged)
            for wrong in _differences(before, after, staged):
                self.broken.append(f"{wrong} at position {staged.position}")
            self._states.setdefault(staged.key, [(0, NOTHING)]).append((self._groups, after))
            if staged.batch is not None:
                pair = staged.key, staged.client_id
                highest = max(event.client_seq for event in staged.batch.events)
                self.marks[pair] = max(self.marks.get(pair, 0), highest)
            version = after.floor if staged.kind is FeedKind.TRIMMED else after.version
            self.acts.append(
                Act(
                    staged.position,
                    staged.key,
                    staged.kind,
                    after.incarnation,
                    staged.batch,
                    version,
                )
            )

    def published(self) -> None:
        """The oldest flushed group that was not visible is visible now."""
        self._visible = min(self._visible + 1, self._groups)

    # --- what is there

    def newest(self, key: AggregateKey) -> State:
        """An aggregate with every flushed change in it."""
        states = self._states.get(key)
        return NOTHING if states is None else states[-1][1]

    def is_dead(self, act: Act) -> bool:
        """Say whether a batch can be read no more."""
        newest = self.newest(act.key)
        is_read = newest.is_live and newest.incarnation == act.incarnation
        return act.batch is not None and not (is_read and act.version >= newest.floor)

    def misses(self, acts: Sequence[Act]) -> Iterator[str]:
        """What a file holds otherwise than it was committed: only dead batches may be gone (C13)."""
        found = {act.position: act for act in acts}
        for act in self.acts:
            there = found.pop(act.position, None)
            if there is None:
                if not self.is_dead(act):
                    yield f"the file lacks {_named(act)}"
            elif there != act:
                yield f"the file holds {_named(there)} and not {_named(act)}"
        for act in found.values():
            yield f"the file holds {_named(act)}, which was never committed"

    def disagrees(self, store: Store) -> Iterator[str]:
        """What a store looks up otherwise than it was committed (log rules C11, I15, I17, T6)."""
        keys, pairs = list(self._states), list(self.marks)
        stored = store.load(keys, pairs)
        for key in keys:
            head, state = stored.heads.get(key), self.newest(key)
            if head is None or _told(head) != _told_of(state):
                yield f"{key} is looked up as {head}, and was flushed as {state[:-1]}"
        for pair in pairs:
            found = stored.marks.get(pair, 0)
            if found != self.marks[pair]:
                yield f"the mark of {pair[1]} on {pair[0]} is looked up as {found}, not {self.marks[pair]}"

    # --- what is told

    def see(self, request: Request) -> Seen:
        """A request arrives."""
        taken: dict[Pair, int] = {}
        if isinstance(request, Write):
            pairs = [(leg.key, request.client_id) for leg in request.legs if leg.enforce_sequence]
            taken = {pair: self.marks[pair] for pair in pairs if pair in self.marks}
        return Seen(self._visible, taken)

    def untrue(self, request: Request, answer: Answer, seen: Seen) -> Iterator[str]:
        """What an answer tells that was not so at any moment since its request (C1, C2, C5)."""
        match request, answer:
            case Write(), Landed():
                yield from self._of_landed(request, answer, seen)
            case Write(), SequenceTaken():
                yield from self._of_taken(request, answer)
            case Read(), Page() | BelowFloor() | AggregateMissing():
                states = self._between(request.key, seen)
                if not any(_shows(state, request.filters, answer) for state in states):
                    yield f"a read of {request.key} was told {_short(answer)}, and it was {_ways(states)}"
            case GetDetails(), Details() | AggregateMissing():
                states = self._between(request.key, seen)
                if not any(_tells(state, answer) for state in states):
                    yield f"details of {request.key} were told as {_short(answer)}, and it was {_ways(states)}"
            case Trim(), Trimmed():
                floors = [s.floor for s in self._between(request.key, seen) if s.is_live]
                if max(floors, default=0) < request.keep_from > 1:
                    yield f"a trim of {request.key} to {request.keep_from} was told, not flushed"
            case Delete(), Deleted():
                for leg in request.legs:
                    ends = [s for s in self._between(leg.key, seen) if s.life is Life.DELETED]
                    if not ends:
                        yield f"{leg.key} was told to be deleted, and is not"
                    elif leg.expected_version not in {None, *(end.version for end in ends)}:
                        yield f"{leg.key} was deleted behind its guard, {leg.expected_version}"
            case FeedRead(), FeedPage():
                yield from self._of_feed(request, answer, seen)
            case (Read() | GetDetails() | FeedRead(), Unknown(detail)) | (_, NotLoaded(detail)):
                # Whatever is done to a disk here is done to its commits.
                yield f"a read failed, and nobody had spoiled the disk: {detail}"
            case _:
                pass

    def _between(self, key: AggregateKey, seen: Seen) -> list[State]:
        """Every state an aggregate had since a moment, the one it had then included."""
        states = self._states.get(key, [(0, NOTHING)])
        at = len(states) - 1
        while states[at][0] > seen.since:
            at -= 1
        return [state for _, state in states[at:]]

    def _of_landed(self, write: Write, landed: Landed, seen: Seen) -> Iterator[str]:
        for leg, version in zip(write.legs, landed.versions, strict=True):
            if not self._has(leg, write.client_id, version):
                yield f"version {version} of {leg.key} was acknowledged and is not flushed"
            mark = seen.taken.get((leg.key, write.client_id), 0)
            lowest = min(event.client_seq for event in leg.events)
            if mark and lowest <= mark:
                yield f"sequence {lowest} of {leg.key} landed again, {mark} was flushed"

    def _has(self, leg: Leg, client_id: ClientId, version: int) -> bool:
        """From the newest act back: what was just answered is found at once."""
        return any(
            act.key == leg.key
            and act.batch is not None
            and (act.batch.version, act.batch.client_id) == (version, client_id)
            and [event[:1] + event[2:] for event in act.batch.events]
            == [event[:1] + event[2:] for event in leg.events]
            for act in reversed(self.acts)
        )

    def _of_taken(self, write: Write, taken: SequenceTaken) -> Iterator[str]:
        """In flight has an answer of its own (I3, I9)."""
        assert taken.key is not None
        flushed = self.marks.get((taken.key, write.client_id), 0)
        if (taken.highest_seq or 0) > flushed:
            yield (
                f"sequence {taken.attempted_seq} of {taken.key} was told to be taken up to "
                f"{taken.highest_seq}, and {flushed} is flushed"
            )

    def _of_feed(self, read: FeedRead, page: FeedPage, seen: Seen) -> Iterator[str]:
        """Every change after a position that can still be read, and nothing that died before."""
        told = {entry.position: entry for entry in page.entries}
        for act in self.acts:
            if not read.after < act.position <= page.next_after:
                continue
            entry = told.pop(act.position, None)
            if entry is None:
                if not self.is_dead(act):
                    yield f"the feed leaves out position {act.position}"
            elif (entry.key, entry.kind, entry.batch, entry.version) != (
                act.key,
                act.kind,
                act.batch,
                act.version,
            ):
                yield f"the feed tells position {act.position} otherwise than it was flushed"
            elif act.batch is not None and not any(
                act.batch in state.batches and state.incarnation == act.incarnation
                for state in self._between(act.key, seen)
            ):
                yield f"the feed shows position {act.position}, which was gone before it was asked"
        for position in told:
            yield f"feed position {position} was shown and is not flushed"


def _after(state: State, staged: Staged) -> State:
    """An aggregate after one more change, by the rules (W10, W11, D4 to D11, T1 to T4)."""
    head, batch = staged.head, staged.batch
    if staged.kind is FeedKind.TRIMMED:
        left = tuple([one for one in state.batches if one.version >= head.floor])
        return state._replace(floor=head.floor, batches=left)
    if batch is None:
        return state._replace(
            life=Life.DELETED,
            is_open=head.allow_recreate,
            is_continued=head.allow_continuation,
            batches=(),
        )
    count = len(batch.events)
    if state.is_live:
        return state._replace(
            version=state.version + 1,
            event_seq=state.event_seq + count,
            batches=(*state.batches, batch),
        )
    goes_on = state.life is Life.DELETED and state.is_continued
    version = state.version + 1 if goes_on else 1
    return State(
        Life.LIVE,
        state.incarnation + 1,
        version,
        state.event_seq + count if goes_on else count,
        version,
        batches=(batch,),
    )


def _differences(before: State, after: State, staged: Staged) -> Iterator[str]:
    """What was committed otherwise than by the rules."""
    if staged.kind is FeedKind.WRITTEN:
        assert staged.batch is not None
        if before.life is Life.DELETED and not before.is_open:
            yield f"{staged.key} was written after it was closed for ever"
        if staged.batch.version != after.version:
            yield f"version {staged.batch.version} was stored after {before.version}"
        seqs = [event.event_seq for event in staged.batch.events]
        if seqs != list(range(after.event_seq - len(seqs) + 1, after.event_seq + 1)):
            yield f"events {seqs} were stored after {before.event_seq}"
    elif not before.is_live:
        yield f"{staged.key} was trimmed or deleted, and was not there"
    if staged.kind is FeedKind.TRIMMED and not before.floor < after.floor <= before.version:
        yield f"a floor went from {before.floor} to {after.floor} of {before.version}"
    if _told(staged.head) != _told_of(after):
        yield f"{staged.key} was staged as {staged.head} and is {after[:-1]}"


def _told(head: Head) -> tuple[object, ...]:
    """What of a head the rules say. A floor and the flags mean something in one life only."""
    is_deleted = head.life is Life.DELETED
    return (
        *(head.life, head.incarnation, head.version, head.event_seq),
        None if is_deleted else head.floor,
        (head.allow_recreate, head.allow_continuation) if is_deleted else None,
    )


def _told_of(state: State) -> tuple[object, ...]:
    is_deleted = state.life is Life.DELETED
    return (
        *(state.life, state.incarnation, state.version, state.event_seq),
        None if is_deleted else state.floor,
        (state.is_open, state.is_continued) if is_deleted else None,
    )


def _shows(
    state: State, filters: ReadFilters, answer: Page | BelowFloor | AggregateMissing
) -> bool:
    """Say whether a read in this state may have had this answer (log rules R1 to R12)."""
    if not isinstance(answer, Page):
        if isinstance(answer, AggregateMissing):
            return not state.is_live
        return state.is_live and filters.from_version < state.floor == answer.first_version
    if not state.is_live or filters.from_version < state.floor:
        return False
    wanted = [batch for batch in state.batches if _is_within(batch, filters)]
    if filters[2:] != _PLAIN[2:]:
        return all(_is_part(batch, wanted) for batch in answer.batches)
    shown = list(answer.batches)
    if shown != wanted[: len(shown)]:
        return False
    if answer.next_version is None:
        return len(shown) == len(wanted)
    return len(shown) < len(wanted) and answer.next_version <= wanted[len(shown)].version


_PLAIN: Final = ReadFilters()


def _is_within(batch: Batch, filters: ReadFilters) -> bool:
    return filters.from_version <= batch.version and (
        filters.to_version is None or batch.version <= filters.to_version
    )


def _is_part(shown: Batch, batches: Sequence[Batch]) -> bool:
    """Say whether a batch is one of these, some of its events perhaps left out."""
    events: set[Event] = set(shown.events)
    return any(shown[:4] == batch[:4] and events <= set(batch.events) for batch in batches)


def _tells(state: State, answer: Details | AggregateMissing) -> bool:
    """Say whether details in this state may have been these (log rules N1 to N3)."""
    if isinstance(answer, AggregateMissing):
        return state.life is Life.NEVER
    is_deleted = state.life is Life.DELETED
    return answer[:6] == (
        0 if is_deleted else state.floor,
        state.version,
        state.event_seq,
        is_deleted,
        is_deleted and state.is_open,
        is_deleted and state.is_continued,
    )


def _named(act: Act) -> str:
    return f"position {act.position}, {act.kind.name.lower()} {act.version} of {act.key}"


def _short(answer: Page | BelowFloor | AggregateMissing | Details) -> str:
    match answer:
        case Page():
            versions = [batch.version for batch in answer.batches]
            more = "" if answer.next_version is None else f", more from {answer.next_version}"
            return f"versions {versions}{more}"
        case BelowFloor():
            return f"that it begins at {answer.first_version}"
        case AggregateMissing():
            return "that it is not there"
        case Details():
            life = "deleted at" if answer.is_deleted else f"{answer.first_version} to"
            return f"{life} {answer.version}"


def _ways(states: Sequence[State]) -> str:
    """States in few words, the oldest first."""
    return ", then ".join(
        {
            Life.NEVER: "never written",
            Life.LIVE: f"versions {state.floor} to {state.version}",
            Life.DELETED: f"deleted at {state.version}",
        }[state.life]
        for state in states
    )
