"""A device that saves and syncs until it is killed, and tells on standard output what it saved.

Run as ``python -m tests.integration.offline_device STORE URL SEED``. A line is printed only after
the save returned: what it names is promised.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from uuid import UUID

from landed.client.options import PoolOptions
from landed.client.pool import Pool
from landed.ids import AggregateKey
from landed.offline import AsyncQueue, DrainPolicy, QueueLimits

KEYS = [AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in range(3)]


async def main(store: str, port: int, seed: int) -> None:
    rng = random.Random(seed)
    queue = await AsyncQueue.open(
        store,
        limits=QueueLimits(run_events_max=rng.choice((1, 3, 50)), synced_kept=rng.choice((0, 50))),
        policy=DrainPolicy(backoff_first_s=0.01, backoff_max_s=0.1),
        rng=rng,
    )
    os.write(1, f"client {queue.client_id}\n".encode())
    pool = Pool(PoolOptions(addresses=(f"127.0.0.1:{port}",)), jitter=rng)
    syncing = asyncio.create_task(queue.keep_syncing(pool))
    while not syncing.done():
        wanted = [
            (rng.choice(KEYS), rng.randbytes(rng.randrange(2_000)))
            for _ in range(rng.choice((1, 1, 4)))
        ]

        def work(saving, wanted=wanted):
            return [saving.enqueue(key, 1, value) for key, value in wanted]

        for saved in await queue.save(work):
            os.write(1, f"saved {saved.client_seq} {saved.event_id} {saved.key}\n".encode())
        await asyncio.sleep(rng.random() * 0.004)
    syncing.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
