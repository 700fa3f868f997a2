"""The nodes of one pool and what they share: a loop, a process, a timer, the guess at the leader."""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from random import Random

from landed.client.call import Call, Policy
from landed.client.exchange import Ended, Exchange, Kind
from landed.client.node import Node, NodeStats
from landed.client.options import Address, PoolOptions, parse_address
from landed.client.walk import AddressBook
from landed.errors import ConfigurationError, PoolClosedError, PoolExhaustedError
from landed.facts import Note
from landed.limits import Limits
from landed.wire.connection import ClientConnection
from landed.wire.messages import WireRequest, operation_of


class Cluster:
    """Carries one request at a time to one node, and says what became of it.

    Args:
        options: checked.
        note: takes facts.
        jitter: draws waits, ages and the prefix of correlation ids.
    """

    def __init__(self, options: PoolOptions, *, note: Note, jitter: Random) -> None:
        self.options = options
        self.note = note
        self.jitter = jitter
        self.book = AddressBook([parse_address(text) for text in options.addresses])
        self.is_closed = False
        self._limits = replace(
            Limits(),
            max_request_size=options.max_request_bytes,
            max_frame_size=options.max_response_bytes,
        )
        self._encoder = ClientConnection(self._limits)
        self._nodes: dict[Address, Node] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._prefix = jitter.randbytes(8)
        self._stamped = 0

    # --- one call -----------------------------------------------------------------------------

    def begin(self, policy: Policy, timeout_s: float | None) -> Call:
        """Begin a call, if the pool may be used here and now.

        Raises:
            PoolClosedError: it is closed.
            PoolExhaustedError: the call has no time at all.
            ConfigurationError: another loop, or a forked child (CP-1).
        """
        self._check_home()
        if self.is_closed:
            raise PoolClosedError
        if timeout_s is None:
            timeout_s = self.options.total_timeout_s
        if timeout_s is None:
            return Call(policy, ends_at=math.inf, guess=self.book.leader)
        if not timeout_s > 0:
            raise PoolExhaustedError(f"no time for the call: {timeout_s} s")
        return Call(policy, ends_at=self.now() + timeout_s, guess=self.book.leader)

    async def exchange(
        self, address: Address, request: WireRequest, kind: Kind, call: Call, *, wait_s: float = 0.0
    ) -> Ended:
        """Send a request to one node, at most once, and wait for what becomes of it.

        Args:
            address: of the node.
            request: what to send; stamped with a fresh correlation id (CP-16, CP-37).
            kind: whom it may share a link with.
            call: whose time it takes.
            wait_s: how long the node itself may wait before it answers.

        Raises:
            RequestTooLargeError, LocalProtocolError: nothing was sent, nor will it ever be.
            asyncio.CancelledError: if it was sent, nobody knows; its link is not used again.
        """
        self._stamped += 1
        correlation = self._prefix + self._stamped.to_bytes(8, "big")
        frame = self._encoder.request(request, correlation)
        assert self._loop is not None
        exchange = Exchange(
            operation_of(request),
            kind,
            frame,
            correlation,
            self._loop.create_future(),
            wait_until=self._loop.time() + self.options.acquire_timeout_s,
            answer_s=self.options.request_timeout_s + wait_s,
            give_up_at=call.ends_at,
        )
        node = self.node(address)
        node.submit(exchange)
        try:
            return await exchange.future
        except asyncio.CancelledError:
            if exchange.future.cancelled():
                node.forsake(exchange)
            raise
        finally:
            if exchange.sent_over is not None:
                call.attempts += 1
                call.served_by = node.name

    def node(self, address: Address) -> Node:
        """The node at an address; made when it is first asked for."""
        node = self._nodes.get(address)
        if node is None:
            assert self._loop is not None
            self._forget_strangers()
            node = self._nodes[address] = Node(
                address,
                options=self.options,
                limits=self._limits,
                loop=self._loop,
                watch=self._watch,
                note=self.note,
                jitter=self.jitter,
            )
        return node

    def _forget_strangers(self) -> None:
        """Drop nodes that the book has dropped, so that redirects to ever new ones add up to nothing."""
        known = self.book.known
        for address, node in list(self._nodes.items()):
            if address not in known and node.is_quiet:
                del self._nodes[address]

    def now(self) -> float:
        """Loop time."""
        assert self._loop is not None
        return self._loop.time()

    def stats(self) -> dict[str, NodeStats]:
        """Every node that was ever asked, by address."""
        return {node.name: node.stats() for node in self._nodes.values()}

    # --- the end ------------------------------------------------------------------------------

    async def close(self, grace_s: float) -> None:
        """Refuse new work, let what was sent finish for so long, then cut it off (CP-54)."""
        if self._loop is not None:
            self._check_home()
        self.is_closed = True
        nodes = list(self._nodes.values())
        for node in nodes:
            node.begin_close()
        try:
            async with asyncio.timeout(grace_s):
                for node in nodes:
                    await node.gone()
        except TimeoutError:
            self.note("pool.cut_off", {"grace_s": grace_s})
        finally:
            for node in nodes:
                node.cut()
        for node in nodes:
            await node.gone()
        if self._timer is not None:
            self._timer.cancel()

    # --- home and timer -----------------------------------------------------------------------

    def _check_home(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._process = os.getpid()
        elif self._loop is not loop:
            raise ConfigurationError("this pool belongs to another event loop; make one a loop")
        elif self._process != os.getpid():
            raise ConfigurationError("this pool belongs to the parent process; make one after fork")

    def _watch(self, at: float) -> None:
        """See to it that ``_expire`` runs at that time or before: one timer for everything."""
        if at < self._timer_at and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        now = self.now()
        for node in self._nodes.values():
            self._watch(node.expire(now))
