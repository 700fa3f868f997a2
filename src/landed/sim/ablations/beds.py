"""Rules of trims, deletes, batches and what is looked up again, broken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from landed.commands import steps
from landed.engines import lane
from landed.engines.group import Group
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.engines.port import Stored
from landed.engines.recent import cut
from landed.engines.sqlite.store import SqliteStore
from landed.engines.tail import AcceptedTail
from landed.log import Life, Trimmed
from landed.log import judge as law
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.fleet import CROWD, FILE, FLEET

_rule: Final = partial(ablation, Wing.LOG, ground=FLEET)
_in_a_file: Final = partial(ablation, Wing.LOG, ground=FILE)
_AT_ONCE: Final = "at_the_moment"


@_rule(
    rule="A trim moves the floor up, never down",
    source="T3",
    patch="the floor goes wherever a trim says",
    caught_by=_AT_ONCE,
)
def floor_moves_down(swap: Swap) -> None:
    judge = swap.sound(lane, "judge_trim")

    class Sunk:
        def __init__(self, tail: Any) -> None:
            self._tail = tail

        def head(self, key: Any) -> Any:
            head = self._tail.head(key)
            return head._replace(floor=0) if head.life is Life.LIVE else head

    def sinking(trim: Any, tail: Any, **rest: Any) -> Any:
        return judge(trim, Sunk(tail), **rest)

    swap(lane, "judge_trim", sinking)


@_rule(
    rule="A trim is acknowledged when its floor is durable, also one that changes nothing",
    source="C5, T5",
    patch="a trim to a floor that is in flight is answered at once",
    caught_by=_AT_ONCE,
)
def trim_told_in_flight(swap: Swap) -> None:
    swap(Lane, "_leave", lambda self, trim, done: done(Trimmed()))


@_rule(
    rule="What was below the floor is not shown again",
    source="T4, R2",
    patch="a page may begin below the floor",
    caught_by=_AT_ONCE,
)
def trimmed_is_shown(swap: Swap) -> None:
    visible = AcceptedTail.visible

    def without_floor(self: AcceptedTail, key: Any) -> Any:
        head = visible(self, key)
        return head._replace(floor=1) if head.life is Life.LIVE else head

    swap(AcceptedTail, "visible", without_floor)


@_rule(
    rule="A delete frees no sequence: a write from before it, repeated, is refused as ever",
    source="I15, D7",
    patch="a delete forgets the marks of its aggregate",
    caught_by=_AT_ONCE,
)
def delete_forgets_marks(swap: Swap) -> None:
    publish = AcceptedTail.publish

    def forgetful(self: AcceptedTail, group: Any) -> None:
        publish(self, group)
        dead = {key for key, head in group.heads.items() if head.life is Life.DELETED}
        for key in dead:
            self._standings[key].mark = 0
        for pair in [pair for pair in self._marks if pair[0] in dead]:
            self._marks[pair] = 0

    swap(AcceptedTail, "publish", forgetful)


@_rule(
    rule="An aggregate that goes on after a delete never gives a version out again",
    source="D8, C11",
    patch="every new life begins at version 1",
    caught_by=_AT_ONCE,
)
def life_begins_anew(swap: Swap) -> None:
    appended = swap.sound(law, "_appended")

    def anew(head: Any, *rest: Any) -> Any:
        return appended(head._replace(allow_continuation=False), *rest)

    swap(law, "_appended", anew)


@_rule(
    rule="What is deleted for good is never written again",
    source="D6",
    patch="a write opens it",
    caught_by=_AT_ONCE,
)
def closed_is_opened(swap: Swap) -> None:
    existence = swap.sound(law, "_existence")

    def opening(key: Any, allow_create: bool, head: Any) -> Any:
        return existence(key, allow_create, head._replace(allow_recreate=True))

    swap(law, "_existence", opening)


@_rule(
    rule="Events of an earlier life are never shown again",
    source="D10, X5",
    patch="the store keeps all lives of a key in one place",
    caught_by=_AT_ONCE,
)
def old_life_is_shown(swap: Swap) -> None:
    take, read = MemoryStore._take, MemoryStore.read

    def one_life(self: MemoryStore, staged: Any) -> None:
        take(self, staged)
        lives = [life for (key, _), life in self._lives.items() if key == staged.key]
        if len(lives) > 1 and staged.batch is not None and staged.batch.version == 1:
            lives[-1].update({v: b for v, b in lives[-2].items() if v > 1})

    def reading(self: MemoryStore, asked: Any, head: Any, budget: int) -> Any:
        life = self._lives.get((asked.key, head.incarnation), {})
        return read(self, asked, head._replace(version=max([head.version, *life])), budget)

    swap(MemoryStore, "_take", one_life)
    swap(MemoryStore, "read", reading)


@_rule(
    rule="All events of a batch are numbered and kept",
    source="W10, W11",
    patch="the last of several events is left out",
    caught_by=_AT_ONCE,
)
def batch_cut_short(swap: Swap) -> None:
    add = Group.add_write

    def cutting(self: Group, write: Any, *rest: Any) -> int:
        short = [leg._replace(events=leg.events[:-1] or leg.events) for leg in write.legs]
        return add(self, write._replace(legs=tuple(short)), *rest)

    swap(Group, "add_write", cutting)


@_rule(
    rule="Space is taken back from what is dead, and from nothing else",
    source="C13, T4",
    patch="reclaiming takes the first version that is kept as well",
    caught_by=_AT_ONCE,
)
def reclaimed_too_far(swap: Swap) -> None:
    reclaim = MemoryStore.reclaim

    def greedy(self: MemoryStore) -> int:
        for at, (key, incarnation, below) in enumerate(self._dead):
            self._dead[at] = key, incarnation, below + 1
        return reclaim(self)

    swap(MemoryStore, "reclaim", greedy)


@_in_a_file(
    rule="All legs of a write survive a crash together",
    source="M8, C10",
    patch="a group is committed in two transactions",
    caught_by=_AT_ONCE,
)
def committed_in_two(swap: Swap) -> None:
    commit = SqliteStore.commit

    def halves(self: SqliteStore, group: Sequence[Any]) -> None:
        commit(self, group[: len(group) // 2 or 1])
        if len(group) > 1:
            commit(self, group[len(group) // 2 :])

    swap(SqliteStore, "commit", halves)


def _looked_up_without(swap: Swap, **lost: Any) -> None:
    """Let the file's store find heads that lack something."""
    load = SqliteStore.load

    def lossy(self: SqliteStore, keys: Any, pairs: Any) -> Stored:
        stored = load(self, keys, pairs)
        heads = {key: head._replace(**lost) for key, head in stored.heads.items()}
        return stored._replace(heads=heads)

    swap(SqliteStore, "load", lossy)


@_in_a_file(
    rule="A floor outlives a restart",
    source="T6, C11",
    patch="a head that is looked up has no floor",
    caught_by=_AT_ONCE,
)
def floor_forgotten(swap: Swap) -> None:
    _looked_up_without(swap, floor=1)


@_in_a_file(
    rule="Whatever numbers the next event is found again with its aggregate",
    source="W11, C11, I17",
    patch="a head that is looked up does not know its last event_seq",
    caught_by="versions_have_no_gap",
)
def last_event_forgotten(swap: Swap) -> None:
    _looked_up_without(swap, event_seq=0)


@_rule(
    rule="A head with a change in flight is not dropped: a look-up would bring back the past",
    source="W16, I17, C2",
    patch="heads are dropped by their age alone",
    caught_by=_AT_ONCE,
)
def head_dropped_in_flight(swap: Swap) -> None:
    def by_age(self: AcceptedTail) -> None:
        self._standings = cut(self._standings, self._heads_max)
        self._marks = cut(self._marks, self._marks_max)

    swap(AcceptedTail, "evict", by_age)


@_rule(
    rule="A catch-up that begins again, since what it folded was dropped, looks for its request again",
    source="SW-16, SW-61, SW-63",
    patch="it loads the aggregate and asks for no answer",
    caught_by="a_request_lands_at_most_once",
    ground=CROWD,
)
def request_forgotten_on_reload(swap: Swap) -> None:
    catch_up = swap.sound(steps, "catch_up")

    class Forgetful:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def load(self, keys: Any, _event_id: Any, domain: Any) -> Any:
            return await self._inner.load(keys, None, domain)

    async def forgetful(reader: Any, view: Any, event_id: Any, **rest: Any) -> Any:
        projection = reader.projection
        reader.projection = Forgetful(projection)
        try:
            return await catch_up(reader, view, event_id, **rest)
        finally:
            reader.projection = projection

    swap(steps, "catch_up", forgetful)


BEDS: Final[tuple[Ablation, ...]] = (
    batch_cut_short,
    committed_in_two,
    floor_moves_down,
    trim_told_in_flight,
    trimmed_is_shown,
    floor_forgotten,
    delete_forgets_marks,
    life_begins_anew,
    closed_is_opened,
    old_life_is_shown,
    reclaimed_too_far,
    last_event_forgotten,
    head_dropped_in_flight,
    request_forgotten_on_reload,
)
