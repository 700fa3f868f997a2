"""Many worlds over several processes. A world is a function of its seed, so nothing is shared."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Final

from landed.sim.explore import Report, explore
from landed.sim.plan import EngineName

_CHUNK: Final = 25
"""Seeds handed over at once: half a second of work, so that a failure stops all of it soon."""


def explore_together(
    seeds: range, *, jobs: int, replicas: int = 2, engine: EngineName = "memory"
) -> Iterator[Report]:
    """Run one world a seed on ``jobs`` processes. Reports come as they are ready.

    With one job nothing is started, and reports come in the order of the seeds. Stop iterating,
    and what has not begun is not begun any more.
    """
    if jobs == 1 or len(seeds) <= _CHUNK:
        yield from explore(seeds, replicas=replicas, engine=engine)
        return
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    executor = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures: list[Future[list[Report]]] = [
            executor.submit(_explore_chunk, chunk, replicas, engine) for chunk in chunks
        ]
        for future in as_completed(futures):
            yield from future.result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _explore_chunk(seeds: range, replicas: int, engine: EngineName) -> list[Report]:
    return list(explore(seeds, replicas=replicas, engine=engine))
