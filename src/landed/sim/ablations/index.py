"""Rules of the response index, broken: it moves with the cursor, and lives for the window."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from landed.commands import catch_up as catching_up
from landed.commands.policy import Policy
from landed.projections import MemoryProjection, fold
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.fleet import FLEET
from landed.sim.loop import sim_loop, this_host

_rule: Final = partial(ablation, Wing.LOG, ground=FLEET)
_ONCE: Final = "a_request_lands_at_most_once"


@_rule(
    rule="Every attempt asks the index whether the request has landed",
    source="SW-16, SW-17; Reconstructing the response",
    patch="the projection never finds an answer",
    caught_by=_ONCE,
)
def index_not_asked(swap: Swap) -> None:
    view = MemoryProjection._view

    def forgetful(self: Any, key: Any, event_id: Any, domain: Any) -> Any:
        return view(self, key, None, domain)

    swap(MemoryProjection, "_view", forgetful)


@_rule(
    rule="Whoever moves the cursor past its own write indexes the answer in the same step",
    source="SW-52, SW-58; Success: order matters",
    patch="recording a write moves the cursor and keeps no answer",
    caught_by=_ONCE,
)
def write_not_indexed(swap: Swap) -> None:
    record = MemoryProjection.record

    async def only_the_cursor(self: Any, steps: Any) -> None:
        await record(self, [step._replace(entries=()) for step in steps])

    swap(MemoryProjection, "record", only_the_cursor)


@_rule(
    rule="Whoever folds an event indexes its answer in the same step",
    source="SW-48, SW-58; One rule makes the index safe across a fleet",
    patch="folding moves the cursor and keeps no answers",
    caught_by=_ONCE,
)
def fold_not_indexed(swap: Swap) -> None:
    advance = MemoryProjection.advance

    async def only_the_cursor(self: Any, step: Any) -> bool:
        return await advance(self, step._replace(entries=()))

    swap(MemoryProjection, "advance", only_the_cursor)


@_rule(
    rule="The index lives where the cursor lives: half-shared, it writes twice",
    source="SW-58, SW-59; The one configuration that double-writes",
    patch="replicas share their cursors and keep their answers to themselves",
    caught_by=_ONCE,
)
def half_shared(swap: Swap) -> None:
    init = MemoryProjection.__init__

    def sharing(self: Any, **rest: Any) -> None:
        init(self, **rest)
        world = sim_loop()
        shared = world.__dict__.setdefault("half_shared", self._aggregates)
        self._aggregates = shared
        self._own = {}

    view = MemoryProjection._view
    advance, record = MemoryProjection.advance, MemoryProjection.record

    def of_mine(self: Any, key: Any, event_id: Any, domain: Any) -> Any:
        seen = view(self, key, event_id, domain)
        is_mine = event_id is not None and (key, event_id) in self._own
        return seen if is_mine else seen._replace(answered=None)

    def mark(self: Any, step: Any) -> None:
        for entry in step.entries:
            self._own[step.key, entry.event_id] = True

    async def advancing(self: Any, step: Any) -> bool:
        mark(self, step)
        return await advance(self, step)

    async def recording(self: Any, steps: Any) -> None:
        for step in steps:
            mark(self, step)
        await record(self, steps)

    swap(MemoryProjection, "__init__", sharing)
    swap(MemoryProjection, "_view", of_mine)
    swap(MemoryProjection, "advance", advancing)
    swap(MemoryProjection, "record", recording)


@_rule(
    rule="The age of an answer is measured in server time, never on a host's wall clock",
    source="SW-50, SW-51; clock skew cannot misjudge it",
    patch="a folded event's age is this host's wall clock minus its stamp",
    caught_by=_ONCE,
)
def age_by_wall_clock(swap: Swap) -> None:
    def by_wall(*, batch_ms: int, newest_ms: int, life_ms: float) -> float:
        return life_ms - max(0, sim_loop().clock(this_host()).wall_ms() - batch_ms)

    swap(fold, "life_left_ms", by_wall)


@_rule(
    rule="An answer is kept for the whole window",
    source="SW-49; Choose the window",
    patch="answers live a quarter of the window",
    caught_by=_ONCE,
)
def window_cut_short(swap: Swap) -> None:
    life_ms: Any = Policy.life_ms
    swap(Policy, "life_ms", property(lambda self: life_ms.fget(self) / 4))


@_rule(
    rule="A hit is answered however old the event is",
    source="SW-24",
    patch="a request found while folding is looked for in the index only",
    caught_by=_ONCE,
)
def found_but_not_told(swap: Swap) -> None:
    fold_page = swap.sound(catching_up, "fold_page")

    def untold(view: Any, batches: Any, **rest: Any) -> Any:
        folded = fold_page(view, batches, **rest)
        if not isinstance(folded, fold.Folded):
            return folded
        return folded._replace(view=folded.view._replace(answered=view.answered))

    swap(catching_up, "fold_page", untold)


INDEX: Final[tuple[Ablation, ...]] = (
    index_not_asked,
    write_not_indexed,
    fold_not_indexed,
    half_shared,
    age_by_wall_clock,
    window_cut_short,
    found_but_not_told,
)
