"""Another service, which writes to the same accounts without a guard and knows nothing of the fleet.

It is the easy kind of writer: it numbers its own events, never renumbers them, and sends each one
until it hears that it is in the log. Without a guard, what it repeats meets the log's other key:
a number that is taken (2002) or in flight (2013).
"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

from landed.accounts.domain import Kind, Movement, account_key, encode
from landed.client.options import PoolOptions
from landed.client.pool import Pool
from landed.errors import LandedError, SequenceTakenError
from landed.ids import AggregateKey, EventId
from landed.log import ANY, Event, Read, ReadFilters, Write
from landed.sim.history import History, Shipped
from landed.sim.loop import sim_loop
from landed.sim.plan import Plan
from landed.sim.watched import WatchedLog

CLIENT: Final = UUID("57ae9e50-0000-4000-8000-000000000002")
HOST: Final = "stranger"
_SENDINGS_MAX: Final = 8
_ANSWER_S: Final = 1.0


async def be_a_stranger(plan: Plan, history: History, address: str) -> None:
    """Send a few deposits to one account, each until it is in or patience ends.

    Call it on the host it is to live on.
    """
    rng = sim_loop().stream(HOST)
    key = account_key(rng.choice(plan.accounts))
    options = PoolOptions(addresses=(address,), busy_retries=plan.busy_retries)
    pool = Pool(options, jitter=rng, note=history.noter(HOST))
    log = WatchedLog(pool, history, HOST)
    try:
        for number in range(1, rng.randint(2, 5)):
            await asyncio.sleep(plan.pause_s * rng.random())
            # It may well stamp the id of the same upstream request as the fleet does.
            event_id = rng.choice(rng.choice(plan.callers)).event_id
            cents = rng.randint(1, 100)
            event = Event.new(
                Kind.DEPOSITED,
                encode(Movement(Kind.DEPOSITED, cents)),
                client_seq=number,
                event_id=event_id,
            )
            write = Write.to(key, [event], client_id=CLIENT, expected_version=ANY)
            for _ in range(_SENDINGS_MAX):
                # A short patience, so that it asks again while the first copy is still in flight.
                is_in = await _send(log, write, key, event_id, patience_s=_ANSWER_S * rng.random())
                if is_in:
                    history.shipped.append(Shipped(key, number, event_id, cents))
                    break
                await asyncio.sleep(plan.policy.backoff_first_s * rng.random())
            else:
                return  # never skip ahead: a number above would close this one for ever
    finally:
        await pool.close()


async def _send(
    log: WatchedLog, write: Write, key: AggregateKey, event_id: EventId, *, patience_s: float
) -> bool:
    """Send once. True if the event is known to be in the log."""
    try:
        await log.write(write, timeout_s=max(patience_s, 0.001))
    except SequenceTakenError:
        return await _is_ours(log, write, key, event_id)
    except LandedError:
        return False
    return True


async def _is_ours(log: WatchedLog, write: Write, key: AggregateKey, event_id: EventId) -> bool:
    """With one writer a taken number can only be its own; ask the log all the same."""
    seq = write.legs[0].events[0].client_seq
    filters = ReadFilters(min_client_seq=seq, max_client_seq=seq, include_client=write.client_id)
    try:
        page = await log.read(Read(key, filters), timeout_s=_ANSWER_S)
    except LandedError:
        return False
    return any(event.event_id == event_id for batch in page.batches for event in batch.events)
