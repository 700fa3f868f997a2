"""Many worlds over several processes. A world is a function of its seed, so nothing is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from functools import partial
from typing import Final

from landed.sim.explore import Report, explore
from landed.sim.hire import hired
from landed.sim.plan import EngineName
from landed.sim.subject import load_subject

Work = Callable[[range], Iterable[Report]]

_CHUNK: Final = 25
"""Seeds handed over at once: half a second of work, so that a failure stops all of it soon."""
_DAYS: Final = 2
"""The same of days of the shop, which take longer."""


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
    work = partial(_explore, replicas=replicas, engine=engine, app=app)
    yield from _share(seeds, work, jobs, _CHUNK)


def live_days_together(seeds: range, *, jobs: int) -> Iterator[Report]:
    """Live one day of the shop a seed, likewise."""
    yield from _share(seeds, _live_days, jobs, _DAYS)


def _share(seeds: range, work: Work, jobs: int, size: int) -> Iterator[Report]:
    if jobs == 1 or len(seeds) <= size:
        yield from work(seeds)
        return
    chunks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    with hired(jobs) as crew:
        futures: list[Future[list[Report]]] = [
            crew.submit(_listed, work, chunk) for chunk in chunks
        ]
        for future in as_completed(futures):
            yield from future.result()


def _listed(work: Work, seeds: range) -> list[Report]:
    return list(work(seeds))


def _live_days(seeds: range) -> Iterator[Report]:
    from landed.sim.days import explore_days  # noqa: PLC0415  # needs the handling wing's extra

    return explore_days(seeds)


def _explore(
    seeds: range, *, replicas: int | None, engine: EngineName | None, app: str | None
) -> Iterator[Report]:
    subject = None if app is None else load_subject(app)
    return explore(seeds, replicas=replicas, engine=engine, subject=subject)
