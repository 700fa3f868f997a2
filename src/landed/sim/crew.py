"""Many worlds over several processes. A world is a function of its seed, so nothing is shared."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Final

from landed.sim.explore import Report, explore
from landed.sim.plan import EngineName
from landed.sim.subject import Subject, load_subject

_CHUNK: Final = 25
"""Seeds handed over at once: half a second of work, so that a failure stops all of it soon."""


def explore_together(
    seeds: range,
    *,
    jobs: int,
    replicas: int | None = 2,
    engine: EngineName | None = "memory",
    app: str | None = None,
) -> Iterator[Report]:
    """Run one world a seed on ``jobs`` processes. Reports come as they are ready.

    With one job nothing is started, and reports come in the order of the seeds. Stop iterating,
    and what has not begun is not begun any more. ``app`` names a user's own subject.
    """
    if jobs == 1 or len(seeds) <= _CHUNK:
        yield from explore(seeds, replicas=replicas, engine=engine, subject=_load(app))
        return
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    executor = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures: list[Future[list[Report]]] = [
            executor.submit(_explore_chunk, chunk, replicas, engine, app) for chunk in chunks
        ]
        for future in as_completed(futures):
            yield from future.result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _explore_chunk(
    seeds: range, replicas: int | None, engine: EngineName | None, app: str | None
) -> list[Report]:
    return list(explore(seeds, replicas=replicas, engine=engine, subject=_load(app)))


def _load(app: str | None) -> Subject | None:
    return None if app is None else load_subject(app)
