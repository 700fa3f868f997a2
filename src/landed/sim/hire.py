"""Processes to live worlds in."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def hired(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes to live worlds in. What has not begun in the end is not begun any more."""
    crew = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_settle_in
    )
    try:
        yield crew
    finally:
        crew.shutdown(wait=True, cancel_futures=True)


def _settle_in() -> None:
    """As in ``collected_between_worlds``, for as long as the process lives."""
    gc.collect()
    gc.freeze()
    gc.disable()
