"""Hunting in fleets: the worlds of ``landed explore``, and what is left of one that is made small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from landed.accounts.domain import Deposit, Transfer
from landed.limits import Limits
from landed.sim.ablations.breaking import Ground, Told
from landed.sim.explore import Finding, run_world
from landed.sim.faults import CALM, Dials
from landed.sim.history import Entry
from landed.sim.plan import Plan, crowded, draw
from landed.sim.story import tell, tell_log

_SEEDS_TRIED: Final = 3
"""A world made smaller draws other accidents: so many of them are tried for each step."""
_WORLDS_MAX: Final = 150
"""Worlds spent on making one smaller."""
_LAST_PICK: Final = 20
"""Seeds of the smallest world among which the shortest story is picked."""
_LINES_MAX: Final = 20
_ACTS_MAX: Final = 6

Draw = Callable[[int], Plan]

_TOLD: Final = frozenset(
    {
        "call.began",
        "call.ended",
        "log.write",
        "log.wrote",
        "log.asked_owner",
        "caller.unheard",
        "garden.trim",
        "garden.delete",
        "garden.told",
        "replica.killed",
        "server.crashed",
        "server.started",
        "lane.flush_failed",
        "net.lost_before",
        "net.lost_after",
        "net.reset",
        "net.half_closed",
    }
)
"""What a short story is made of; disturbances as well."""


def _look(draw: Draw, seed: int) -> tuple[Told, ...]:
    """Live the world of a seed; what was wrong in it."""
    return _told(run_world(draw(seed), is_told=False))


def _shorten(draw: Draw, seed: int, invariant: str) -> list[str]:
    """Make the world of a seed as small as it goes while the invariant stays broken, and tell it."""
    small = _shrink(draw(seed), lambda plan: _is_broken(run_world(plan, is_told=False), invariant))
    best: list[str] | None = None
    for other in (small.seed, *range(_LAST_PICK)):
        finding = run_world(replace(small, seed=other), is_told=False)
        if _is_broken(finding, invariant):
            lines = _story(finding, invariant)
            if best is None or len(lines) < len(best):
                best = lines
    assert best is not None, "the smallest world was broken a moment ago"
    return best


def _two_replicas(seed: int) -> Plan:
    """The fleet in which a rule is broken: what one of these cannot show needs another ground."""
    return draw(seed, replicas=2, engine="memory")


def _on_a_file(seed: int) -> Plan:
    """The same fleet, with its log in a file."""
    return draw(seed, replicas=2, engine="sqlite")


def _beside_a_stranger(seed: int) -> Plan:
    """Two callers with one request each on one account, lost answers, and a stranger beside them.

    A stranger's number and event id seldom agree with a contested one of the fleet's; here they
    have little else to agree with.
    """
    plan = _two_replicas(seed)
    account = plan.accounts[0]
    requests = [
        replace(request, order=Deposit(account, request.order.amount_cents))
        if isinstance(request.order, Transfer)
        else replace(request, order=replace(request.order, account=account))
        for callers in plan.callers
        for request in callers
    ]
    callers = tuple((request,) for request in requests[:2])
    dials = replace(plan.dials, lose_after=0.25, silence=0.0)
    return replace(
        plan, accounts=(account,), callers=callers, stranger=True, dials=dials, tries_max=6
    )


def _a_crowd(seed: int) -> Plan:
    """Many callers of two accounts, of which one fits into the caches: one fleet in thirty is so."""
    return crowded(_two_replicas(seed), Random(f"{seed}/only crowds"))  # noqa: S311  # repeatable


def _ground(name: str, draw: Draw) -> Ground:
    return Ground(name, partial(_look, draw), partial(_shorten, draw))


def _told(finding: Finding) -> tuple[Told, ...]:
    return tuple(Told(one.invariant.replace(" ", "_"), one.sentence) for one in finding.violations)


def _is_broken(finding: Finding, invariant: str) -> bool:
    return any(told.invariant == invariant for told in _told(finding))


def _shrink(plan: Plan, is_caught: Callable[[Plan], bool]) -> Plan:
    """Take away, one after the other, whatever the counterexample can do without."""
    left = _WORLDS_MAX
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for candidate in _smaller(plan):
            for seed in (plan.seed, *range(_SEEDS_TRIED)):
                left -= 1
                tried = replace(candidate, seed=seed)
                if is_caught(tried):
                    plan, is_smaller = tried, True
                    break
            if is_smaller or left <= 0:
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less, what matters most to a reader first."""
    for at in range(len(plan.callers)):
        if len(plan.callers) > 1:
            yield replace(plan, callers=plan.callers[:at] + plan.callers[at + 1 :])
    for at, requests in enumerate(plan.callers):
        for gone in range(len(requests)):
            if len(requests) > 1:
                fewer = requests[:gone] + requests[gone + 1 :]
                yield replace(plan, callers=(*plan.callers[:at], fewer, *plan.callers[at + 1 :]))
    if plan.disturb_every_s:
        yield replace(plan, disturb_every_s=0.0)
        for kind in plan.disturbances:
            if len(plan.disturbances) > 1:
                rest = tuple(other for other in plan.disturbances if other != kind)
                yield replace(plan, disturbances=rest)
    for name, none in _NOTHING.items():
        if getattr(plan, name) != none:
            without: dict[str, Any] = {name: none}
            yield replace(plan, **without)
    for name in Dials.__dataclass_fields__:
        calm = getattr(CALM, name)
        if getattr(plan.dials, name) != calm:
            calmer: dict[str, Any] = {name: calm}
            yield replace(plan, dials=replace(plan.dials, **calmer))
    for count in range(len(plan.beds)):
        yield replace(plan, beds=plan.beds[:count])
    if plan.beds and plan.acts_max > 1:
        yield replace(plan, acts_max=plan.acts_max // 2)
        yield replace(plan, acts_max=plan.acts_max - 1)
    if plan.replicas > 1:
        yield replace(plan, replicas=plan.replicas - 1)
    if plan.tries_max > 1:
        yield replace(plan, tries_max=plan.tries_max - 1)


_NOTHING: Final[dict[str, object]] = {
    "is_mortal": False,
    "stranger": False,
    "twice": 0.0,
    "cancel": 0.0,
    "cancel_at_max": 0,
    "resend": 0.0,
    "copy": 0.0,
    "replay": 0.0,
    "unheard": 0.0,
    "aggregates_max": 100,
    "busy_retries": 0,
    "pipeline_depth": 1,
    "limits": Limits(),
    "beds": (),
    "views": "own",
}
"""Parts of a plan, and their value in a world that has nothing of it."""


def _story(finding: Finding, invariant: str) -> list[str]:
    """The smallest world in about a dozen lines: what happened, what the log held, what is wrong."""
    history, plan = finding.history, finding.plan
    numbers = {request.number for requests in plan.callers for request in requests}
    aside = {call.number for call in history.calls if call.request.number not in numbers}
    history.entries = [
        entry
        for entry in history.entries
        # What the world asks by itself at its end is not the story.
        if _is_told(entry) and entry.fields.get("call") not in aside
    ]
    lines = tell(history)
    if len(lines) > _LINES_MAX:
        half = _LINES_MAX // 2
        lines = [*lines[:half], f"{'…':>10}", *lines[-half:]]
    requests = sum(len(requests) for requests in plan.callers)
    wrong = next(told.sentence for told in _told(finding) if told.invariant == invariant)
    counts = ((plan.replicas, "replica"), (len(plan.callers), "caller"), (requests, "request"))
    return [
        ", ".join(f"{number} {thing}" + "s" * (number != 1) for number, thing in counts),
        *lines,
        "the log at the end",
        *(f"  {line}" for line in _log_of(finding) or ["nothing"]),
        f"wrong: {invariant.replace('_', ' ')}",
        f"  {wrong}",
    ]


def _log_of(finding: Finding) -> list[str]:
    """What the log held of the requests that the story is about."""
    requests = [request for callers in finding.plan.callers for request in callers]
    ids = {str(request.event_id)[:8] for request in requests}
    lines = [line for line in tell_log(finding.history) if any(one in line for one in ids)]
    acts, names = finding.history.truth.acts, finding.history.names
    changes = [f"{names[act.key]} {act.kind.name.lower()} {act.version}" for act in acts]
    return [*lines, *changes[-_ACTS_MAX:]]


def _is_told(entry: Entry) -> bool:
    return entry.what in _TOLD or entry.what.startswith("disturb.")


FLEET: Final = _ground("fleet", _two_replicas)
FILE: Final = _ground("fleet on a file", _on_a_file)
CROWD: Final = _ground("crowd", _a_crowd)
BESIDE: Final = _ground("beside a stranger", _beside_a_stranger)
