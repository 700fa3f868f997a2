"""Other writers, who do what the fleet never does: several events in a batch, trims and deletes.

Each has aggregates in common with the others, its *beds*, and a client id of its own. It writes
over several beds at once, sends old writes again, trims, deletes and plants anew; and a visitor
reads whatever there is, all the time. None of them minds an answer: every answer was held against
the rules when the engine gave it (``durable.py``), and what was heard is held against the log at
the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from landed.client.assign import BreakerState
from landed.client.options import PoolOptions
from landed.client.pool import Pool
from landed.errors import AggregateMissingError, LandedError, TrimmedError
from landed.ids import AggregateKey, ClientId, EventId
from landed.log import ANY, Delete, DeleteLeg, Event, FeedRead, Leg, Read, ReadFilters, Trim, Write
from landed.sim.history import History, Tended
from landed.sim.loop import sim_loop
from landed.sim.plan import Plan
from landed.sim.watched import WatchedLog

HOST: Final = "gardener"
CLIENTS: Final = (
    ClientId(UUID("9a2de4e2-0000-4000-8000-000000000001")),
    ClientId(UUID("9a2de4e2-0000-4000-8000-000000000002")),
)
_ANSWER_S: Final = 2.0
_LOOKS_ON: Final = 0.5
_LOOKS: Final = 4
_LEGS_MAX: Final = 3
_EVENTS_MAX: Final = 3
_OLD_NUMBERS: Final = 0.15
_DETAILS: Final = 0.4
_READS: Final = 0.9
"""A visitor asks for details below the one, for a page below the other, for the feed above both."""
_KINDS: Final = ("write", "write", "write", "again", "trim", "delete")


class _Kept(NamedTuple):
    """What a gardener remembers of its beds, whether it was told so or not."""

    seqs: dict[AggregateKey, int]
    """The highest sequence used."""
    versions: dict[AggregateKey, int]
    """The newest version heard of."""
    writes: list[Write]


async def be_gardeners(plan: Plan, history: History, address: str) -> None:
    """Tend the beds of a plan until every act is done.

    Call it on the host they are to live on.
    """
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as everybody:
        visitor = everybody.create_task(_visit(plan, history, address, is_over))
        async with asyncio.TaskGroup() as gardeners:
            for number, client_id in enumerate(CLIENTS, start=1):
                gardeners.create_task(_tend(plan, history, address, number, client_id))
        is_over.set()
        await visitor


async def _tend(
    plan: Plan, history: History, address: str, number: int, client_id: ClientId
) -> None:
    rng = sim_loop().stream(f"{HOST}/{number}")
    options = PoolOptions(addresses=(address,), busy_retries=plan.busy_retries)
    pool = Pool(options, jitter=rng, note=history.noter(HOST))
    log = WatchedLog(pool, history, HOST)
    kept = _Kept({}, {}, [])
    try:
        for _ in range(plan.acts_max):
            await asyncio.sleep(plan.pause_s * rng.random())
            request = _draw_act(plan.beds, client_id, kept, rng)
            tended = Tended(request)
            history.tended.append(tended)
            async with asyncio.TaskGroup() as both:
                timeout_s = max(0.001, _ANSWER_S * rng.random())
                both.create_task(_act(log, history, tended, kept, timeout_s))
                if rng.random() < _LOOKS_ON:
                    both.create_task(_look_on(pool, plan, _keys_of(request), rng))
    finally:
        await pool.close()


async def _act(
    log: WatchedLog, history: History, tended: Tended, kept: _Kept, timeout_s: float
) -> None:
    if not isinstance(tended.request, Write):  # which the log notes
        names = " and ".join(history.names[key] for key in _keys_of(tended.request))
        keep_from = tended.request.keep_from if isinstance(tended.request, Trim) else 0
        what = "garden.trim" if keep_from else "garden.delete"
        history.note(HOST, what, keys=names, keep_from=keep_from)
    try:
        match tended.request:
            case Write() as write:
                kept.writes.append(write)
                landed = await log.write(write, timeout_s=timeout_s)
                if landed.versions:
                    kept.versions[write.legs[0].key] = landed.versions[0]
            case Trim() as trim:
                await log.trim(trim, timeout_s=timeout_s)
            case Delete() as delete:
                await log.delete(delete, timeout_s=timeout_s)
    except LandedError as error:
        answer = type(error).__name__.removesuffix("Error")
    else:
        answer, tended.is_told = "done", True
    if not isinstance(tended.request, Write):
        history.note(HOST, "garden.told", answer=answer)


def _keys_of(request: Write | Trim | Delete) -> list[AggregateKey]:
    return [request.key] if isinstance(request, Trim) else [leg.key for leg in request.legs]


async def _look_on(pool: Pool, plan: Plan, busy: list[AggregateKey], rng: Random) -> None:
    """Ask for something else and then for what is being changed: a small cache must hold both."""
    latest_s = plan.dials.latency_s[1] + plan.dials.executor_s[1]
    others = [key for key in (*plan.beds, *plan.keys) if key not in busy]
    for _ in range(_LOOKS):
        for keys in (others, busy):
            await asyncio.sleep(latest_s * rng.random())
            if keys:
                with suppress(LandedError):
                    await pool.details(rng.choice(keys), timeout_s=_ANSWER_S)


def _draw_act(
    beds: tuple[AggregateKey, ...], client_id: ClientId, kept: _Kept, rng: Random
) -> Write | Trim | Delete:
    kind = rng.choice(_KINDS)
    if kind == "again" and kept.writes:
        write = rng.choice(kept.writes)
        # As a writer does who has refreshed its guard: otherwise the guard answers (log rule I13).
        return write._replace(
            legs=tuple([leg._replace(expected_version=ANY) for leg in write.legs])
        )
    key = rng.choice(beds)
    if kind == "trim":
        return Trim(key, rng.randint(1, kept.versions.get(key, 1) + 1), client_id)
    chosen = rng.sample(beds, rng.randint(1, min(_LEGS_MAX, len(beds))))
    if kind == "delete":
        legs = [
            DeleteLeg(one, _guard(one, kept, rng), rng.random() < 0.9, rng.random() < 0.5)
            for one in chosen[:2]
        ]
        return Delete(client_id, tuple(legs))
    return Write(client_id, tuple([_draw_leg(one, kept, rng) for one in chosen]))


def _guard(key: AggregateKey, kept: _Kept, rng: Random) -> int | None:
    return kept.versions.get(key, 0) if rng.random() < 0.2 else ANY


def _draw_leg(key: AggregateKey, kept: _Kept, rng: Random) -> Leg:
    events = []
    before = kept.seqs.get(key, 0)
    for _ in range(rng.randint(1, _EVENTS_MAX)):
        seq = kept.seqs[key] = kept.seqs.get(key, 0) + rng.choice((1, 1, 2))
        event_id = EventId(UUID(int=rng.getrandbits(127) | 1))
        events.append(Event.new(1, b"%d" % seq, client_seq=seq, event_id=event_id))
    rng.shuffle(events)
    if before and rng.random() < _OLD_NUMBERS:
        # Behind one that was not used before: the lowest of a batch is checked (log rule I6).
        seq = rng.randint(1, before)
        event_id = EventId(UUID(int=rng.getrandbits(127) | 1))
        events.append(Event.new(1, b"%d" % seq, client_seq=seq, event_id=event_id))
    is_enforced = rng.random() < 0.9
    return Leg(key, tuple(events), _guard(key, kept, rng), rng.random() < 0.95, is_enforced)


async def _visit(plan: Plan, history: History, address: str, is_over: asyncio.Event) -> None:
    """Read beds and accounts again and again, so that many are cold and some are busy."""
    rng = sim_loop().stream("visitor")
    pool = Pool(PoolOptions(addresses=(address,)), jitter=rng, note=history.noter("visitor"))
    keys = (*plan.beds, *plan.beds, *plan.keys)
    after = 0
    try:
        while not is_over.is_set():
            await asyncio.sleep(plan.pause_s * rng.random() / 4)
            key, kind = rng.choice(keys), rng.random()
            # From somewhere, as if a page had been read before.
            since = rng.choice((1, 1, 2, 4)) if _DETAILS <= kind < _READS else 0
            if _is_shut(pool):
                continue
            try:
                if since:
                    await _read(pool, key, since)
                elif kind < _DETAILS:
                    await pool.details(key, timeout_s=_ANSWER_S)
                else:
                    after = (await pool.feed(FeedRead(after), timeout_s=_ANSWER_S)).next_after
            except LandedError:
                continue
    finally:
        await pool.close()


def _is_shut(pool: Pool) -> bool:
    """Say whether it would refuse without asking anybody: most visits of all worlds are such ones."""
    nodes = pool.stats().values()
    return bool(nodes) and all(
        node.breaker is BreakerState.OPEN and not (node.idle or node.busy or node.dialling)
        for node in nodes
    )


async def _read(pool: Pool, key: AggregateKey, since: int) -> None:
    """A page from a version on; from the floor if that is trimmed."""
    try:
        await pool.read(Read(key, ReadFilters(since)), timeout_s=_ANSWER_S)
    except TrimmedError as trimmed:
        if trimmed.first_version is not None:
            filters = ReadFilters(trimmed.first_version)
            await pool.read(Read(key, filters), timeout_s=_ANSWER_S)
    except AggregateMissingError:
        return
