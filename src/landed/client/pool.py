"""``Pool``: a log on nodes far away. Sends a change for good once, and says what it knows of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from types import TracebackType
from typing import Self

from landed.client.call import Policy
from landed.client.cluster import Cluster
from landed.client.exchange import Kind
from landed.client.log import LogInfo
from landed.client.node import NodeStats
from landed.client.options import Consistency, PoolOptions
from landed.client.pages import batches_of
from landed.client.routing import Question, Seen, change, look
from landed.client.shape import check_shape, from_the_start
from landed.facts import Note, forget
from landed.ids import AggregateKey
from landed.log import (
    Batch,
    Delete,
    Details,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Page,
    Read,
    Trim,
    Write,
)
from landed.wire.messages import LogFacts, Probe


class Pool:
    """A ``Log`` over connections to one or more nodes.

    It belongs to the event loop and the process in which it is first used. It never makes up a
    client id, a sequence or an event id, and never sends a change again after it may have been
    received: what to do then is the caller's to decide.

    A change under ``asyncio.timeout``, or cancelled otherwise, may have landed. Prefer
    ``timeout_s``: the error then says in which phase the time ran out.

    Args:
        options: where the nodes are, and every bound.
        jitter: draws waits, ages and the prefix of correlation ids.
        note: takes facts: ``pool.dialled``, ``pool.dial_failed``, ``pool.discarded``,
            ``pool.redirected``, ``pool.unknown``, ``pool.cut_off``.

    Source: pool rules CP, design decisions 7 and 14.
    """

    def __init__(self, options: PoolOptions, *, jitter: Random, note: Note = forget) -> None:
        self._cluster = Cluster(options, note=note, jitter=jitter)
        self._policy = Policy(options.consistency, options.busy_retries)

    @property
    def options(self) -> PoolOptions:
        """What it was made with."""
        return self._cluster.options

    def for_decisions(self) -> Pool:
        """The same pool for whoever decides: strict reads, and no waiting for a busy node."""
        strict = Pool.__new__(Pool)
        strict._cluster = self._cluster
        strict._policy = Policy(Consistency.LEADER_STRICT, 0)
        return strict

    # --- the face of Log ----------------------------------------------------------------------

    async def write(self, write: Write, *, timeout_s: float | None = None) -> Landed:
        """Append, all or nothing. See ``Log.write``."""
        call = self._cluster.begin(self._policy, timeout_s)
        check_shape(write)
        done = await change(self._cluster, write, call)
        assert isinstance(done, Landed)
        return done

    async def trim(self, trim: Trim, *, timeout_s: float | None = None) -> None:
        """Raise the floor. See ``Log.trim``."""
        await change(self._cluster, trim, self._cluster.begin(self._policy, timeout_s))

    async def delete(self, delete: Delete, *, timeout_s: float | None = None) -> None:
        """End the aggregates' lives. See ``Log.delete``."""
        call = self._cluster.begin(self._policy, timeout_s)
        check_shape(delete)
        await change(self._cluster, delete, call)

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        """One page. See ``Log.read``."""
        seen = await self._look(from_the_start(read), Kind.READ, timeout_s)
        assert isinstance(seen, Page)
        return seen

    def read_all(self, read: Read) -> AsyncIterator[Batch]:
        """Every batch, page after page. See ``Log.read_all``.

        A connection is used a page, not held between pages (CP-58). Pages may be large, so they
        share their connection with nobody.
        """
        return batches_of(read, self._read_page)

    async def details(self, key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        """State without events. See ``Log.details``."""
        seen = await self._look(GetDetails(key), Kind.READ, timeout_s)
        assert isinstance(seen, Details)
        return seen

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        """Changes of the whole log after a position. See ``Log.feed``.

        Raises:
            NoFeedError: the node is not one of this product's.
        """
        wait_s = read.wait_ms / 1000
        seen = await self._look(read, Kind.ALONE, timeout_s, wait_s=wait_s)
        assert isinstance(seen, FeedPage)
        return seen

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:
        """Which log this is.

        Raises:
            NoFeedError: the node is not one of this product's, so it cannot say.
        """
        facts = await self._look(Probe(), Kind.ALONE, timeout_s)
        assert isinstance(facts, LogFacts)
        return LogInfo(facts.log_id, facts.restore_epoch, facts.position)

    async def close(self, *, grace_s: float | None = None) -> None:
        """Refuse new work, let what was sent finish, then cut it off. Idempotent (CP-54).

        Args:
            grace_s: how long to wait; ``close_grace_s`` of the options if None. A change that is
                cut off is unknown to its caller.
        """
        await self._cluster.close(self.options.close_grace_s if grace_s is None else grace_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- how it is doing ----------------------------------------------------------------------

    def stats(self) -> dict[str, NodeStats]:
        """Every node that was ever asked, by address."""
        return self._cluster.stats()

    def __repr__(self) -> str:
        nodes = "; ".join(
            f"{name}: {node.idle} idle, {node.busy} busy, {node.unanswered} unanswered, "
            f"{node.dialling} dialling, {node.waiting} waiting, breaker {node.breaker.value}"
            for name, node in self.stats().items()
        )
        state = "closed" if self._cluster.is_closed else f"leader {self._cluster.book.leader}"
        return f"<Pool {state}; {nodes or 'not used yet'}>"

    # --- inside -------------------------------------------------------------------------------

    async def _look(
        self, question: Question, kind: Kind, timeout_s: float | None, *, wait_s: float = 0.0
    ) -> Seen:
        call = self._cluster.begin(self._policy, timeout_s)
        return await look(self._cluster, question, kind, call, wait_s=wait_s)

    async def _read_page(self, read: Read) -> Page:
        page = await self._look(read, Kind.ALONE, None)
        assert isinstance(page, Page)
        return page
