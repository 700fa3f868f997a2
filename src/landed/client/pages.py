"""Page after page of one aggregate: each batch once, in version order, whatever breaks between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from landed.client.shape import from_the_start
from landed.errors import ConnectionLostError, RemoteProtocolError
from landed.log import Batch, Page, Read

RESUMES_MAX: Final = 3
"""Connections lost in a row, without a page between, before the reader is told. A node that is
restarted costs one; more than a few are no accident."""


async def batches_of(read: Read, fetch: Callable[[Read], Awaitable[Page]]) -> AsyncIterator[Batch]:
    """Yield every batch that a read selects.

    Nothing is held between pages: no connection, so that a slow consumer pins none and may write
    while it iterates, even through a pool of one (pool rule CP-58).

    Args:
        read: where to start and what to select; version 0 counts as 1.
        fetch: reads one page.

    Raises:
        TrimmedError: history was trimmed ahead of the cursor. The gap is never skipped silently;
            what was yielded stays valid (CP-61).
        RemoteProtocolError: the cursor does not advance (CP-59).
        LandedError: what ``fetch`` raises, a lost connection only after ``RESUMES_MAX`` resumes.

    Source: pool rules CP-58 to CP-62.
    """
    read = from_the_start(read)
    yielded = 0
    lost = 0
    while True:
        try:
            page = await fetch(read)
        except ConnectionLostError:
            lost += 1
            if lost > RESUMES_MAX:
                raise
            continue
        lost = 0
        for batch in page.batches:
            if batch.version > yielded:
                yielded = batch.version
                yield batch
        if page.next_version is None:
            return
        if page.next_version <= read.filters.from_version:
            raise RemoteProtocolError(
                f"a page from version {read.filters.from_version} goes on at {page.next_version}"
            )
        read = read._replace(filters=read.filters._replace(from_version=page.next_version))
