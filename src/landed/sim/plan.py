"""What one world is made of, drawn from its seed: every world turns other dials.

A world in which everything goes wrong at once explores little, because nothing gets far. So each
dial is off in about half of the worlds, and strong, middling or weak in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, Literal
from uuid import UUID

from landed.accounts.domain import Deposit, Order, Transfer, Withdrawal, account_key
from landed.commands import Policy
from landed.engines.pace import UNKNOWN_MS
from landed.ids import AggregateKey, EventId
from landed.limits import Limits
from landed.sim.faults import CALM, Dials
from landed.sim.history import Request
from landed.sim.spindle import Flaw
from landed.sim.subject import Subject

EngineName = Literal["memory", "sqlite"]
Views = Literal["own", "slow", "shared"]
"""Where a replica's folded states lie: in it, behind a way of their own, or there for all replicas."""

_ON_DISK: Final = 0.2
"""The share of worlds on a disk, where nothing else is said."""
_SMALL_PAGE: Final = 400
"""Bytes of a page that ends after three or four batches, so that a history takes several."""
_ONE_BATCH: Final = 120
"""Bytes of a page that holds one."""
_GARDENS: Final = 0.3
"""The share of worlds in which others trim and delete."""
_BEDS_MAX: Final = 3
_BED: Final = UUID("bed00000-0000-4000-8000-000000000001")
_ACCOUNTS_MAX: Final = 3
_CROWDS: Final = 0.03
"""The share of worlds in which many want the same two accounts at once."""
_CROWD_MIN: Final = 4
"""Callers of such a world at least."""
_CALLERS_MAX: Final = 3
_REQUESTS_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One world before it begins."""

    seed: int
    engine: EngineName
    replicas: int
    subject: Subject | None
    """What it is about; None: the accounts of the demo."""
    accounts: tuple[UUID, ...]
    callers: tuple[tuple[Request, ...], ...]
    """The requests of each caller, in its order."""
    dials: Dials
    policy: Policy
    aggregates_max: int
    """Accounts a replica's projection holds; below the number of accounts it evicts all the time."""
    pipeline_depth: int
    connections_max: int
    """Requests a pool sends over one connection before the first is answered."""
    busy_retries: int
    tries_max: int
    """How often a caller tries a request."""
    pause_s: float
    """Longest pause of a caller between two calls."""
    patience_s: float
    """A caller that cancels does so within this time."""
    unheard: float
    """How often the answer to a caller is lost on its way, so that it tries again."""
    cancel: float
    cancel_at_max: int
    """How often a call that is cancelled at an await may have waited before; 0: none is."""
    resend: float
    """How often a pool sends a write again after "unknown" and shows only the second answer."""
    copy: float
    """How often a write that was answered is delivered once more, later."""
    twice: float
    """How often a caller sends a request to several replicas at once, or to one several times."""
    copies: int
    """How many calls it makes then."""
    replay: float
    """How often a caller asks again for what it was already answered."""
    disturb_every_s: float
    """Mean time between disturbances; 0 for none."""
    disturbances: tuple[str, ...]
    is_mortal: bool
    """The server may have several lives here."""
    limits: Limits
    """Of the server: caches that hold next to nothing, groups of one, heads that are written early."""
    down_s: float
    """Longest time between two lives of the server."""
    pauses_s: float
    """Longest time for which a host stands still."""
    stranger: bool
    """Another service writes to the same accounts, under its own client id."""
    beds: tuple[AggregateKey, ...]
    """Aggregates that gardeners write, trim and delete; none in most worlds."""
    acts_max: int
    """What each of the gardeners does."""
    views: Views
    view_way_s: float
    """Longest way to folded states that do not lie in the replica."""

    @property
    def keys(self) -> tuple[AggregateKey, ...]:
        """Every aggregate that somebody means to change."""
        if self.subject is None:
            return tuple([account_key(account) for account in self.accounts])
        requests = [request for requests in self.callers for request in requests]
        return tuple(dict.fromkeys(key for request in requests for key in request.targets))


def draw(
    seed: int,
    *,
    replicas: int | None = 2,
    engine: EngineName | None = "memory",
    subject: Subject | None = None,
) -> Plan:
    """Draw the plan of a world.

    Args:
        seed: everything else follows from it.
        replicas: how many; None: 2 to 5, mostly 2.
        engine: where the log lies; None: mostly in memory, else on a disk.
        subject: a user's own commands in place of the demo's accounts.
    """
    size = Random(f"{seed}/size")  # noqa: S311  # apart, so that a size can be chosen
    drawn_replicas = size.choice((2, 2, 2, 3, 4, 5))
    is_on_disk = size.random() < _ON_DISK
    rng = Random(f"{seed}/plan")  # noqa: S311  # repeatable on purpose
    harder = Random(f"{seed}/harder")  # noqa: S311  # apart, so that old seeds keep their callers
    accounts = tuple(UUID(int=n + 1) for n in range(rng.randint(1, _ACCOUNTS_MAX)))
    policy = _draw_policy(rng)
    blows = _draw_blows(harder)
    plan = Plan(
        seed=seed,
        engine=engine or ("sqlite" if is_on_disk else "memory"),
        replicas=replicas or drawn_replicas,
        subject=subject,
        accounts=accounts,
        callers=_draw_callers(rng, partial(_draw_wish, rng, accounts, subject)),
        dials=_draw_dials(rng, policy),
        policy=policy,
        aggregates_max=rng.choice((1, 2, 100)),
        pipeline_depth=rng.choice((1, 2, 16)),
        connections_max=Random(f"{seed}/pools").choice((1, 2, 10)),  # noqa: S311  # likewise apart
        busy_retries=rng.choice((0, 0, 2)),
        tries_max=rng.choice((2, 4, 6)),
        pause_s=rng.choice((0.01, 0.2, 2.0)),
        patience_s=rng.choice((0.002, 0.01, 1.0)),
        unheard=_chance(rng, 0.6),
        cancel=_chance(rng, 0.5),
        twice=_chance(rng, 0.5),
        copies=2,
        replay=_chance(rng, 0.5),
        disturb_every_s=harder.choice((0.05, 0.2, 0.5)) if blows else rng.choice((0.0, 0.2, 3.0)),
        disturbances=(*_draw_disturbances(rng), *blows),
        is_mortal=bool(blows),
        limits=_draw_pace(seed, _draw_limits(harder)),
        down_s=harder.choice((0.01, 0.5, 5.0)),
        pauses_s=policy.window_s * harder.choice((0.05, 0.5, 2.0)),
        cancel_at_max=harder.choice((0, 0, 8, 40)),
        resend=_chance(harder, 0.8),
        copy=_chance(harder, 0.3),
        stranger=rng.random() < 0.25 and subject is None,
        **_draw_garden(seed, is_wanted=subject is None),
        **_draw_views(seed, policy),
    )
    crowd = Random(f"{seed}/crowd")  # noqa: S311  # likewise apart
    return crowded(plan, crowd) if crowd.random() < _CROWDS else plan


def _chance(rng: Random, most: float) -> float:
    """Off in half of the worlds, else anything up to ``most``."""
    return 0.0 if rng.random() < 0.5 else most * rng.random()


def _draw_policy(rng: Random) -> Policy:
    attempt_timeout_s = rng.choice((0.05, 0.5, 5.0))
    deadline_s = attempt_timeout_s * rng.choice((2.5, 4.0))
    margin_s = rng.choice((0.0, 1.0))
    return Policy(
        attempts_max=rng.choice((1, 2, 3, 5)),
        deadline_s=deadline_s,
        attempt_timeout_s=attempt_timeout_s,
        backoff_first_s=rng.choice((0.001, 0.05)),
        window_s=(deadline_s + margin_s) * rng.choice((1.5, 4.0, 10.0)),
        window_margin_s=margin_s,
        scan_horizon_s=rng.choice((None, None, None, 3600.0)),
    )


def _draw_dials(rng: Random, policy: Policy) -> Dials:
    slow_s = policy.attempt_timeout_s
    return Dials(
        latency_s=(0.0002, rng.choice((0.0006, 0.005, 0.03))),
        stall=_chance(rng, 0.1),
        stall_s=(slow_s / 10, slow_s * 2),
        split=_chance(rng, 0.5),
        merge=_chance(rng, 0.5),
        refuse=_chance(rng, 0.2),
        deaf=_chance(rng, 0.05),
        lose_before=_chance(rng, 0.15),
        lose_after=_chance(rng, 0.25),
        reset=_chance(rng, 0.15),
        half_close=_chance(rng, 0.1),
        silence=rng.choice((0.0, 0.3, 1.0)),
        executor_s=(0.0001, rng.choice((0.0003, 0.003, 0.02))),
        executor_stall=_chance(rng, 0.2),
        executor_stall_s=(slow_s / 20, slow_s),
    )


def _draw_disturbances(rng: Random) -> tuple[str, ...]:
    every = ("wall_step", "reset_host", "restart_replica", "fail_flush", "slow_flush")
    return tuple(kind for kind in every if rng.random() < 0.4) or (rng.choice(every),)


def _draw_blows(rng: Random) -> tuple[str, ...]:
    """What ends a life of the server or stops a host, in half of the worlds."""
    every = ("crash_server", "pause_host", *Flaw)
    return () if rng.random() < 0.5 else tuple([str(k) for k in every if rng.random() < 0.4])


def _draw_limits(rng: Random) -> Limits:
    usual = Limits()
    return replace(
        usual,
        cached_heads_max=rng.choice((1, usual.cached_heads_max)),
        cached_marks_max=rng.choice((1, usual.cached_marks_max)),
        group_writes_max=rng.choice((1, 2, usual.group_writes_max)),
        replayed_max=rng.choice((1, 4, usual.replayed_max)),
        readers_max=rng.choice((1, usual.readers_max)),
    )


def _draw_pace(seed: int, limits: Limits) -> Limits:
    """In some worlds heads wait for a sweep, commits have one path from the start, pages are small.

    A commit takes no virtual time, so a limit above ``pace.UNKNOWN_MS`` keeps all of them on the
    loop's thread; with the usual one the paths change within a world.
    """
    rng = Random(f"{seed}/pace")  # noqa: S311  # apart, so that old seeds keep everything else
    tight = Random(f"{seed}/tight")  # noqa: S311  # likewise
    return replace(
        limits,
        queued_writes_max=tight.choice((6, limits.queued_writes_max, limits.queued_writes_max)),
        replayed_max=rng.choice((*[limits.replayed_max] * 3, 8, 16, 64)),
        inline_commit_ms=rng.choice((0.0, limits.inline_commit_ms, 2 * UNKNOWN_MS)),
        max_response_size=rng.choice((_SMALL_PAGE, limits.max_response_size)),
        reclaim_after_s=rng.choice((0.05, 1.0, limits.reclaim_after_s)),
    )


def _draw_garden(seed: int, *, is_wanted: bool) -> dict[str, Any]:
    rng = Random(f"{seed}/garden")  # noqa: S311  # apart, so that old seeds keep everything else
    is_there = rng.random() < _GARDENS and is_wanted
    beds = rng.randint(1, _BEDS_MAX) if is_there else 0
    return {
        "beds": tuple([AggregateKey(_BED, _BED, UUID(int=n + 1)) for n in range(beds)]),
        "acts_max": rng.choice((4, 8, 12)) if is_there else 0,
    }


def _draw_views(seed: int, policy: Policy) -> dict[str, Any]:
    rng = Random(f"{seed}/views")  # noqa: S311  # likewise
    return {
        "views": rng.choice(("own", "own", "own", "slow", "shared")),
        "view_way_s": policy.attempt_timeout_s * rng.choice((0.01, 0.1)),
    }


def crowded(plan: Plan, rng: Random) -> Plan:
    """Many callers at once, two aggregates, and room for one of them wherever something is kept.

    What needs an aggregate that is dropped while it is busy hardly happens where few are. In half of
    these worlds the server forgets and its threads are slow; in the others it is the replicas'
    common projection, far away on a network that is fast and loses nothing.
    """
    way_s = plan.policy.attempt_timeout_s * rng.choice((0.03, 0.1))
    accounts = tuple(UUID(int=n + 1) for n in range(2))
    crowd = replace(
        plan,
        accounts=accounts,
        aggregates_max=1,
        views="shared",
        view_way_s=way_s,
        pause_s=way_s * 4,
        twice=1.0,
        copies=4,
        connections_max=10,
    )
    if rng.random() < 0.5:
        limits = replace(plan.limits, cached_heads_max=1, cached_marks_max=1, inline_commit_ms=0.0)
        wish = partial(_draw_wish, rng, accounts, plan.subject)
        return replace(crowd, callers=_draw_callers(rng, wish, least=_CROWD_MIN), limits=limits)
    # One of them is wanted most of the time, so that it is there, and the other drives it out.
    most = (*accounts, accounts[0], accounts[0])
    wish = partial(_draw_deposit, rng, most, plan.subject)
    callers = _draw_callers(rng, wish, least=_CROWD_MIN)
    # One batch a page in half of them, so that folding anew takes several steps.
    limits = Limits(max_response_size=rng.choice((_ONE_BATCH, Limits().max_response_size)))
    return replace(crowd, callers=callers, dials=CALM, disturb_every_s=0.0, limits=limits)


def _draw_deposit(rng: Random, accounts: tuple[UUID, ...], subject: Subject | None) -> Any:
    if subject is not None:
        return subject.wish(rng)
    return Deposit(rng.choice(accounts), rng.randint(1, 100))


def _draw_callers(
    rng: Random, draw_wish: Callable[[], Any], *, least: int = 1
) -> tuple[tuple[Request, ...], ...]:
    callers: list[tuple[Request, ...]] = []
    number = 0
    for _ in range(rng.randint(least, least + _CALLERS_MAX - 1)):
        requests: list[Request] = []
        for _ in range(rng.randint(1, _REQUESTS_MAX)):
            number += 1
            event_id = UUID(int=rng.getrandbits(127) | 1)
            if requests and rng.random() < 0.05:
                event_id = requests[-1].event_id  # a caller that breaks the rules of keys
            requests.append(Request(number, EventId(event_id), draw_wish()))
        callers.append(tuple(requests))
    return tuple(callers)


def _draw_wish(rng: Random, accounts: tuple[UUID, ...], subject: Subject | None) -> Any:
    return _draw_order(rng, accounts) if subject is None else subject.wish(rng)


def _draw_order(rng: Random, accounts: tuple[UUID, ...]) -> Order:
    account = rng.choice(accounts)
    cents = rng.randint(1, 100)
    kind = rng.random()
    if kind < 0.5:
        return Deposit(account, cents)
    if kind < 0.7 or len(accounts) < 2:
        return Withdrawal(account, cents)
    other = rng.choice([one for one in accounts if one != account])
    return Transfer(account, other, cents)
