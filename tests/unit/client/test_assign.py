"""The pass that decides who is sent over which link, against its stated invariants."""

import functools
import math
from collections import Counter
from dataclasses import dataclass
from random import Random

from landed.client.assign import BreakerState, Plan, Terms, assign, is_stale
from landed.client.exchange import Kind

NOW = 1_000.0
IDLE_S = 25.0
WORLDS = 4_000


@dataclass(eq=False)
class Waiter:
    kind: Kind
    size: int = 10


@dataclass(eq=False)
class Link:
    is_open: bool = True
    is_writable: bool = True
    kind: Kind | None = None
    unanswered: int = 0
    unanswered_bytes: int = 0
    idle_since: float = NOW - 1
    ends_at: float = math.inf


def some_link(rng):
    unanswered = rng.randint(0, 5)
    kind = rng.choice(list(Kind)) if unanswered else None
    return Link(
        is_open=rng.random() < 0.8,
        is_writable=rng.random() < 0.8,
        kind=kind,
        unanswered=1 if kind is Kind.ALONE else unanswered,
        unanswered_bytes=10 * unanswered,
        idle_since=NOW - rng.choice([0.5, 1.0, 2.0, IDLE_S, 60.0]),
        ends_at=rng.choice([math.inf, math.inf, NOW - 1, NOW + 1]),
    )


def world_of(seed):
    rng = Random(seed)
    terms = Terms(
        cap=rng.randint(1, 6),
        dials_max=rng.randint(1, 4),
        depth=rng.randint(1, 6),
        bytes_max=rng.choice([15, 45, 1000]),
        idle_s=IDLE_S,
    )
    held = [some_link(rng) for _ in range(rng.randint(0, terms.cap))]
    return {
        "waiting": [Waiter(rng.choice(list(Kind))) for _ in range(rng.randint(0, 12))],
        "links": held,
        "dialling": rng.randint(0, min(terms.cap - len(held), terms.dials_max)),
        "breaker": rng.choice(list(BreakerState)),
        "terms": terms,
    }


def explored(test):
    """Run a test over many worlds; a failure names the seed of its world."""

    @functools.wraps(test)
    def over_all():
        for seed in range(WORLDS):
            try:
                test(world_of(seed))
            except AssertionError as failure:
                failure.add_note(f"in world_of({seed})")
                raise

    del over_all.__wrapped__  # pytest would look for a fixture called world
    return over_all


def planned(world) -> Plan:
    given = dict(world)
    return assign(given.pop("waiting"), given.pop("links"), now=NOW, **given)


class Given:
    """What a plan gives to one link, added to what the link has."""

    def __init__(self, plan, link):
        self.new = [waiter for waiter, to in plan.sends if to is link]
        self.kinds = {waiter.kind for waiter in self.new} | ({link.kind} - {None})
        self.count = link.unanswered + len(self.new)
        self.bytes_before_last = link.unanswered_bytes + sum(w.size for w in self.new[:-1])


@explored
def test_a_link_mixes_kinds_only_when_no_slot_is_left_and_whoever_is_alone_stays_alone(world):
    plan = planned(world)
    for link in world["links"]:
        given = Given(plan, link)
        if given.new and len(given.kinds) > 1:
            slots = len(world["links"]) + world["dialling"] + plan.dials
            dials = world["dialling"] + plan.dials
            limit = 1 if world["breaker"] is BreakerState.TRIAL else world["terms"].dials_max
            is_dialling_barred = world["breaker"] is BreakerState.OPEN or dials >= limit
            assert slots == world["terms"].cap or is_dialling_barred
        if given.new and Kind.ALONE in given.kinds:
            assert given.count == 1


@explored
def test_a_link_is_never_given_more_than_it_has_room_for(world):
    plan = planned(world)
    for link in world["links"]:
        given = Given(plan, link)
        if given.new:
            assert given.count <= world["terms"].depth
            if given.count > 1:
                assert given.bytes_before_last < world["terms"].bytes_max
            assert link.is_open
            assert link.is_writable
            assert link not in plan.closes
            assert link.ends_at > NOW


@explored
def test_slots_dials_and_the_breaker_hold(world):
    plan = planned(world)
    terms, dials = world["terms"], world["dialling"] + plan.dials
    assert len(world["links"]) + dials <= terms.cap
    assert dials <= terms.dials_max
    if world["breaker"] is BreakerState.OPEN:
        assert plan.dials == 0
    if world["breaker"] is BreakerState.TRIAL and plan.dials:
        assert dials == 1
    assert plan.dials <= len(world["waiting"])


@explored
def test_nobody_overtakes_his_own_kind_or_somebody_without_hope(world):
    plan = planned(world)
    waiting = world["waiting"]
    sent = {id(waiter) for waiter, _link in plan.sends}
    assert [waiter for waiter in waiting if id(waiter) in sent] == [w for w, _ in plan.sends]
    assert len(sent) == len(plan.sends)
    left = [waiter for waiter in waiting if id(waiter) not in sent]
    assert 0 <= plan.covered <= len(left)
    for waiter in left:
        later = waiting[waiting.index(waiter) + 1 :]
        assert not [w for w in later if id(w) in sent and w.kind is waiter.kind]
    if plan.covered < len(left):
        hopeless = waiting.index(left[plan.covered])
        assert not [w for w in waiting[hopeless:] if id(w) in sent]


@explored
def test_the_idle_link_used_last_is_taken_and_stale_ones_are_closed(world):
    plan = planned(world)
    for link in world["links"]:
        is_due = link.is_open and is_stale(link, NOW, IDLE_S)
        assert (link in plan.closes) is is_due
    idle = [
        link
        for link in world["links"]
        if link.is_open and link.is_writable and not link.unanswered and link not in plan.closes
    ]
    used = [link.idle_since for link in idle if Given(plan, link).new]
    unused = [link.idle_since for link in idle if not Given(plan, link).new]
    if used and unused:
        assert min(used) >= max(unused)


@explored
def test_whoever_is_left_waiting_waits_for_something_or_is_refused(world):
    plan = planned(world)
    left = len(world["waiting"]) - len(plan.sends)
    is_beyond = left > plan.covered
    has_links = any(
        link.is_open and link not in plan.closes and link.ends_at > NOW for link in world["links"]
    )
    if plan.refuses_rest:
        assert is_beyond
        assert not has_links
        assert world["breaker"] is not BreakerState.CLOSED
    elif is_beyond:
        assert world["links"] or world["dialling"] + plan.dials
        if world["breaker"] is not BreakerState.CLOSED:
            assert has_links
    capacity = Counter(dials=(world["dialling"] + plan.dials) * world["terms"].depth)
    assert plan.covered <= capacity["dials"]


@explored
def test_a_pass_changes_nothing_by_itself(world):
    before = [tuple(vars(link).values()) for link in world["links"]]
    first, second = planned(world), planned(world)
    assert first == second
    assert before == [tuple(vars(link).values()) for link in world["links"]]


TERMS = Terms(cap=2, dials_max=2, depth=4, bytes_max=1000, idle_s=IDLE_S)


def plan_for(kinds, held, **changes):
    world = {"dialling": 0, "breaker": BreakerState.CLOSED, "terms": TERMS} | changes
    return assign([Waiter(kind) for kind in kinds], held, now=NOW, **world)


def test_the_fullest_link_of_the_same_kind_is_preferred():
    emptier, fuller = (Link(kind=Kind.READ, unanswered=n) for n in (1, 3))
    assert plan_for([Kind.READ], [emptier, fuller]).sends[0][1] is fuller


def test_another_kind_is_dialled_for_while_there_is_a_slot_and_joins_in_when_there_is_none():
    reading = Link(kind=Kind.READ, unanswered=1)
    assert plan_for([Kind.CHANGE], [reading]).dials == 1
    changing = plan_for([Kind.CHANGE], [reading], terms=TERMS._replace(cap=1))
    assert (changing.dials, [link for _waiter, link in changing.sends]) == (0, [reading])


def test_one_dial_covers_as_many_as_one_link_will_carry():
    plan = plan_for([Kind.READ] * 6, [])
    assert (plan.dials, plan.covered) == (2, 6)
    assert plan_for([Kind.READ] * 4, []).dials == 1
    assert plan_for([Kind.ALONE] * 2, []).dials == 2


def test_whoever_must_be_alone_is_not_overtaken_for_ever():
    reading = Link(kind=Kind.READ, unanswered=1)
    plan = plan_for([Kind.ALONE, Kind.READ], [reading], terms=TERMS._replace(cap=1))
    assert (plan.sends, plan.dials, plan.refuses_rest) == ([], 0, False)
