"""One node: its links, its dials, and who waits. Exact slots, first come first served."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from landed.client.assign import BreakerState, Terms, assign, is_stale
from landed.client.breaker import Breaker
from landed.client.exchange import Exchange, NotSent
from landed.client.link import Link, flush_all
from landed.client.options import Address, PoolOptions
from landed.errors import (
    CircuitOpenError,
    ConnectFailedError,
    ConnectTimeoutError,
    NotSentError,
    PoolClosedError,
    PoolExhaustedError,
)
from landed.facts import Note
from landed.limits import Limits

AGE_JITTER: Final = 0.1
"""Connections of one age are not all closed at once."""


_ENDED_THERE: Final = frozenset({"eof", "reset", "unsolicited"})


class NodeStats(NamedTuple):
    """One node at a glance."""

    idle: int
    busy: int
    """Links with unanswered requests, those on their way out included."""
    unanswered: int
    dialling: int
    waiting: int
    breaker: BreakerState
    dials: int
    """Begun since the pool was made."""
    reuses: int
    """Requests sent over a link that had carried one before."""
    discards: dict[str, int]
    """Links closed, by reason."""


class Node:
    """Carries requests to one address.

    Args:
        address: where it listens.
        options: of the pool.
        limits: sizes for the wire.
        loop: the loop everything runs on.
        watch: asks the pool to call ``expire`` at that loop time or earlier.
        note: takes facts.
        jitter: spreads the ages of links.
    """

    def __init__(
        self,
        address: Address,
        *,
        options: PoolOptions,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        watch: Callable[[float], None],
        note: Note,
        jitter: Random,
    ) -> None:
        self.address = address
        self.name = str(address)
        self.has_extensions = False
        """It once answered an extension message."""
        self._options = options
        self._limits = limits
        self._loop = loop
        self._watch = watch
        self._note = note
        self._jitter = jitter
        self._terms = Terms(
            cap=options.max_connections,
            dials_max=options.max_concurrent_dials,
            depth=options.pipeline_depth,
            bytes_max=options.pipeline_bytes,
            idle_s=options.idle_timeout_s,
        )
        self._breaker = Breaker(options.breaker_cooldown_s)
        self._waiting: dict[Exchange, None] = {}
        self._links: dict[Link, None] = {}
        self._dials: dict[asyncio.Task[None], None] = {}
        self._covered = 0
        self._is_scheduled = False
        self._is_closed = False
        self._gone = asyncio.Event()
        self._dials_begun = 0
        self._reuses = 0
        self._discards: Counter[str] = Counter()

    # --- what the pool asks -------------------------------------------------------------------

    def submit(self, exchange: Exchange) -> None:
        """Take a request; it is sent in the next turn of the loop at the earliest.

        In between, the end of an idle connection that is already known to the kernel becomes known
        to its link, so that nothing is sent into it (CP-12).
        """
        if self._is_closed:
            exchange.end(NotSent(PoolClosedError()))
            return
        self._waiting[exchange] = None
        self._watch(exchange.due)
        self._schedule()

    def forsake(self, exchange: Exchange) -> None:
        """The caller of a request is gone."""
        if exchange in self._waiting:
            self._drop(exchange)
            self._schedule()  # it may have stood in somebody's way
        elif isinstance(exchange.sent_over, Link):
            exchange.sent_over.forsake(exchange, "cancelled")

    def expire(self, now: float) -> float:
        """End what has waited too long, close what was idle too long; returns when to come again."""
        next_due = math.inf
        # Looked at before somebody leaves and all behind him move up.
        covered = set(islice(self._waiting, self._covered))
        for exchange in list(self._waiting):
            is_covered = exchange in covered
            due = exchange.give_up_at if is_covered else exchange.due
            if due <= now:
                exchange.end(NotSent(_waited_error(self.name, is_covered=is_covered)))
                self._drop(exchange)
            else:
                next_due = min(next_due, due)
        for link in list(self._links):
            next_due = min(next_due, link.expire(now))
            if link.is_open and not link.unanswered:
                if is_stale(link, now, self._terms.idle_s):
                    link.close("expired")
                else:
                    next_due = min(next_due, link.idle_since + self._terms.idle_s, link.ends_at)
        self._schedule()
        return next_due

    def begin_close(self) -> None:
        """Refuse who waits and whoever comes, stop dialling, close what is idle (CP-54)."""
        self._is_closed = True
        for exchange in self._waiting:
            exchange.end(NotSent(PoolClosedError()))
        self._waiting.clear()
        for dial in self._dials:
            dial.cancel()
        for link in list(self._links):
            if not link.unanswered:
                link.close("closing")
        self._tell_gone()

    def cut(self) -> None:
        """Close every link, whoever waits for an answer on it."""
        for link in list(self._links):
            link.abort("closing")

    async def gone(self) -> None:
        """Return once no link and no dial is left."""
        await self._gone.wait()

    @property
    def is_quiet(self) -> bool:
        """Nobody waits, nothing is dialled, no link is left."""
        return not (self._waiting or self._dials or self._links)

    def stats(self) -> NodeStats:
        """Count what is there."""
        busy = sum(1 for link in self._links if link.unanswered)
        return NodeStats(
            idle=len(self._links) - busy,
            busy=busy,
            unanswered=sum(link.unanswered for link in self._links),
            dialling=len(self._dials),
            waiting=len(self._waiting),
            breaker=self._breaker.state(self._loop.time()),
            dials=self._dials_begun,
            reuses=self._reuses,
            discards=dict(self._discards),
        )

    # --- one turn -----------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Decide, then act, without anything in between."""
        self._is_scheduled = False
        for link in self._links:
            link.notice_end()
        now = self._loop.time()
        plan = assign(
            self._awaited(now),
            list(self._links),
            dialling=len(self._dials),
            breaker=self._breaker.state(now),
            now=now,
            terms=self._terms,
        )
        for link in plan.closes:
            link.close("expired")
        earliest = math.inf
        for exchange, link in plan.sends:
            del self._waiting[exchange]
            if link.carried:
                self._reuses += 1
            link.send(exchange, now)
            earliest = min(earliest, exchange.due)
        flush_all([link for _exchange, link in plan.sends])
        self._watch(earliest)
        for _ in range(plan.dials):
            self._begin_dial()
        if plan.covered < self._covered:
            self._watch(now)  # whose dial is gone may have waited long enough already
        self._covered = plan.covered
        if plan.refuses_rest:
            for exchange in list(self._awaited(now))[plan.covered :]:
                del self._waiting[exchange]
                exchange.end(NotSent(CircuitOpenError(f"{self.name} failed a moment ago")))

    def _awaited(self, now: float) -> Iterator[Exchange]:
        """Who waits, without those who are about to leave.

        Some were cancelled in this very turn (CP-20); some have no time left, and sending would only
        turn "not sent" into "nobody knows" (CP-28).
        """
        return (
            exchange
            for exchange in self._waiting
            if exchange.is_awaited and exchange.give_up_at > now
        )

    def _drop(self, exchange: Exchange) -> None:
        """Take somebody out of the queue. A dial that nobody is left to use is given up."""
        place = next(at for at, waiting in enumerate(self._waiting) if waiting is exchange)
        del self._waiting[exchange]
        if place < self._covered:
            self._covered -= 1
            if len(self._dials) > len(self._waiting):
                next(reversed(self._dials)).cancel()

    # --- dials --------------------------------------------------------------------------------

    def _begin_dial(self) -> None:
        self._dials_begun += 1
        dial = self._loop.create_task(self._dial(), name=f"dial {self.name}")
        self._dials[dial] = None
        dial.add_done_callback(self._dial_over)

    async def _dial(self) -> None:
        """Open one link. Its slot passes from the dial to the link in one step (CP-19)."""
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                link = await self._connect()
        except TimeoutError:
            text = f"{self.name} did not answer within {self._options.connect_timeout_s:g} s"
            self._dial_failed(lambda: ConnectTimeoutError(text))
        except (OSError, UnicodeError) as failure:
            text = f"{self.name}: {failure}"
            self._dial_failed(lambda: ConnectFailedError(text))
        else:
            self._breaker.succeeded()
            self._join(link)

    async def _connect(self) -> Link:
        """Try every address of the name, within the budget of the dial (CP-24)."""
        host, port = self.address
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        places = list(dict.fromkeys(info[4][:2] for info in found))
        loop = self._loop
        ends_at = loop.time() + self._options.connect_timeout_s
        failure: OSError = OSError(f"the name {host!r} has no address")
        for at, place in enumerate(places):
            share_s = (ends_at - loop.time()) / (len(places) - at)
            try:
                async with asyncio.timeout(share_s):
                    transport, link = await loop.create_connection(self._make_link, *place)
            except OSError as error:
                failure = error
            else:
                link.connection_made(transport)
                return link
        raise failure

    def _make_link(self) -> Link:
        return Link(self._loop, self._limits, on_settled=self._settled, on_gone=self._link_gone)

    def _join(self, link: Link) -> None:
        age_s = self._options.max_connection_age_s
        if age_s is not None:
            spread = 1 + AGE_JITTER * (2 * self._jitter.random() - 1)
            link.ends_at = self._loop.time() + age_s * spread
        self._links[link] = None
        self._note("pool.dialled", {"node": self.name})
        self._settled(link)

    def _dial_failed(self, error: Callable[[], NotSentError]) -> None:
        self._breaker.failed(self._loop.time())
        self._note("pool.dial_failed", {"node": self.name, "error": str(error())})
        self._fail_waiters(error)

    def _fail_waiters(self, error: Callable[[], NotSentError]) -> None:
        """Tell as many as one link would have served why it is not there, unless others are."""
        if any(link.is_open for link in self._links):
            return
        for exchange in list(self._waiting)[: self._terms.depth]:
            del self._waiting[exchange]
            exchange.end(NotSent(error()))
        self._covered = max(0, self._covered - self._terms.depth)

    def _dial_over(self, dial: asyncio.Task[None]) -> None:
        del self._dials[dial]
        self._schedule()
        self._tell_gone()
        if not dial.cancelled() and (bug := dial.exception()) is not None:
            raise bug

    # --- links --------------------------------------------------------------------------------

    def _settled(self, link: Link) -> None:
        """A link has more room than before."""
        if self._is_closed and link.is_open and not link.unanswered:
            link.close("closing")
        elif not link.unanswered:
            self._watch(link.idle_since + self._terms.idle_s)
        self._schedule()

    def _link_gone(self, link: Link) -> None:
        """Its socket is closed, so its slot is free (CP-18)."""
        if link not in self._links:
            return  # it never joined: the dial was given up while it connected
        del self._links[link]
        self._discards[link.reason] += 1
        self._note("pool.discarded", {"node": self.name, "reason": link.reason})
        if not link.carried and link.reason in _ENDED_THERE:
            # As good as refused. Without this, waiters would have it dialled on and on.
            text = f"{self.name} closed a new connection ({link.reason})"
            self._fail_waiters(lambda: ConnectFailedError(text))
        self._schedule()
        self._tell_gone()

    def _tell_gone(self) -> None:
        if self._is_closed and not self._links and not self._dials:
            self._gone.set()


def _waited_error(name: str, *, is_covered: bool) -> NotSentError:
    if is_covered:
        return ConnectTimeoutError(f"{name} could not be reached within the time of the call")
    return PoolExhaustedError(f"no connection to {name} became free in time")
