"""Processes to live worlds in."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
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
    """As in ``collected_between_worlds``, for as long as the process lives; and no longer than its hirer."""
    gc.collect()
    gc.freeze()
    gc.disable()
    threading.Thread(target=_leave_with_the_hirer, daemon=True).start()


def _leave_with_the_hirer() -> None:
    """A hirer that is killed tells nobody to stop, and his crew would wait for work for ever."""
    hirer = multiprocessing.parent_process()
    assert hirer is not None
    hirer.join()
    os._exit(1)
