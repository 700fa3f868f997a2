"""A simulated network: hosts, ports, connections, and what the seed lets go wrong between them."""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

from landed.sim.address import Address, SimSocket, connection_error
from landed.sim.transport import SimTransport

if TYPE_CHECKING:
    from landed.facts import Note
    from landed.sim.faults import Dials

LOCALHOST: Final = "127.0.0.1"
HERE: contextvars.ContextVar[str] = contextvars.ContextVar("landed_sim_host", default=LOCALHOST)
_SELF: Final = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104
_FIRST_PORT: Final = 49_152
_BOTH_TOLD: Final = 0.5
"""How often the side that answers learns, too, that its answer has nowhere to go."""

Factory = Callable[[], asyncio.BaseProtocol]


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Run what follows, and every task begun in it, on the host of this name."""
    token = HERE.set(name)
    try:
        yield
    finally:
        HERE.reset(token)


def this_host() -> str:
    """The host on which the caller runs; 127.0.0.1 unless somebody said otherwise."""
    return HERE.get()


class SimServer(asyncio.AbstractServer):
    """A listening port."""

    def __init__(self, network: Network, factory: Factory, address: Address) -> None:
        self._network = network
        self._factory = factory
        self._address = address
        self._context = contextvars.copy_context()
        self._is_serving = False
        self._is_closed = False
        self._connections: set[SimTransport] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """The listening socket; none once closed."""
        return () if self._is_closed else (SimSocket(self._address, None),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it serves on."""
        return self._network.loop

    def is_serving(self) -> bool:
        """It accepts connections now."""
        return self._is_serving

    async def start_serving(self) -> None:
        """Accept connections from now on."""
        self._is_serving = not self._is_closed

    async def serve_forever(self) -> None:
        """Accept connections until cancelled or closed."""
        await self.start_serving()
        self._forever = self._network.loop.create_future()
        try:
            await self._forever
        finally:
            self._forever = None
            self.close()

    def close(self) -> None:
        """Stop listening. Connections live on."""
        if self._is_closed:
            return
        self._is_closed = True
        self._is_serving = False
        self._network.unlisten(self._address)
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()

    async def wait_closed(self) -> None:
        """Return once it is closed and its last connection is gone."""
        await self._idle.wait()

    def close_clients(self) -> None:
        """Close every connection it accepted."""
        for transport in self._in_order():
            transport.close()

    def abort_clients(self) -> None:
        """Abort every connection it accepted."""
        for transport in self._in_order():
            transport.abort()

    def _in_order(self) -> list[SimTransport]:
        return sorted(self._connections, key=lambda transport: transport.there)

    def accept(self, dialler: SimTransport) -> None:
        """Make the other end of a connection and hand it to a new protocol."""
        transport = SimTransport(
            self._network,
            here=dialler.there,
            there=dialler.here,
            is_dialler=False,
            context=self._context,
            on_lost=self._forget,
        )
        transport.peer, dialler.peer = dialler, transport
        self._connections.add(transport)
        self._network.ends[transport] = None
        self._idle.clear()
        transport.start(self._context.run(self._factory))

    def _forget(self, transport: SimTransport) -> None:
        self._connections.discard(transport)
        self._network.ends.pop(transport, None)
        if not self._connections:
            self._idle.set()


class Network:
    """Everything between the hosts of one world."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, dials: Dials, note: Note
    ) -> None:
        self.loop = loop
        self.dials = dials
        self._rng = rng
        self._note = note
        self._servers: dict[Address, SimServer] = {}
        self.ends: dict[SimTransport, None] = {}
        """Every end that lives, in the order in which they were made."""
        self._dark: set[str] = set()
        self.tells_arrivals = True
        """Note every segment that arrives; a world that nobody looks at does not."""
        self._next_port = _FIRST_PORT

    # --- listening and dialling ---------------------------------------------------------------

    def listen(self, factory: Factory, host: str | None, port: int | None) -> SimServer:
        """Bind a port of a host; 0 picks one.

        Raises:
            OSError: EADDRINUSE, somebody listens there.
        """
        address = (_resolve(host), port or self._take_port())
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, f"error while attempting to bind on address {address}")
        server = SimServer(self, factory, address)
        self._servers[address] = server
        return server

    def unlisten(self, address: Address) -> None:
        """Free a port."""
        self._servers.pop(address, None)

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Dial a host and port; half a round trip later the other side has it.

        Raises:
            ConnectionRefusedError: nobody listens there, or the seed says so.
        """
        dials, rng = self.dials, self._rng
        there = (_resolve(host), port)
        here = (this_host(), self._take_port())
        await asyncio.sleep(self._delay())
        is_deaf = dials.deaf > 0 and rng.random() < dials.deaf
        if is_deaf or there[0] in self._dark:
            self._tell("net.deaf", here, there)
            await self.loop.create_future()
        server = self._servers.get(there)
        is_refused = dials.refuse > 0 and rng.random() < dials.refuse
        if server is None or not server.is_serving() or is_refused:
            self._tell("net.refused", here, there)
            await asyncio.sleep(self._delay())
            raise connection_error(errno.ECONNREFUSED)
        transport = SimTransport(
            self,
            here=here,
            there=there,
            is_dialler=True,
            context=contextvars.copy_context(),
            on_lost=self._let_go,
        )
        self.ends[transport] = None
        server.accept(transport)
        try:
            await asyncio.sleep(self._delay())
            protocol = factory()
            transport.start(protocol)
            await asyncio.sleep(0)  # as on the real loop, the caller goes on after connection_made
        except BaseException:
            transport.abort()
            raise
        return transport, protocol

    def reset_host(self, host: str) -> None:
        """Reset every connection that begins or ends on a host; each side learns of it by itself."""
        for transport in list(self.ends):
            if transport.is_dialler and host in (transport.here[0], transport.there[0]):
                self.reset_later(transport)
                self.reset_later(transport.peer)

    def cut_off(self, host: str, *, is_silent: bool) -> None:
        """A machine dies: nothing it still does is seen.

        Its peers are told by a reset, as after the death of a process; or, if silent, by nobody,
        as after a power cut: until ``light`` nothing that is sent there is answered.
        """
        if is_silent:
            self._dark.add(host)
        for end in list(self.ends):
            if end.here[0] == host:
                end.is_cut = True
                if not is_silent:
                    self.reset_later(end.peer)
                end.fail(connection_error(errno.ECONNRESET))
        for address in [address for address in self._servers if address[0] == host]:
            self._servers[address].close()

    def light(self, host: str) -> None:
        """A machine runs again; it knows nothing of its former connections and resets them."""
        if host in self._dark:
            self._dark.discard(host)
            for end in list(self.ends):
                if end.there[0] == host and end.peer.is_cut:
                    self.reset_later(end)

    def _let_go(self, transport: SimTransport) -> None:
        self.ends.pop(transport, None)

    def _take_port(self) -> int:
        port = self._next_port
        self._next_port += 1
        return port

    # --- what a transport asks about each segment -----------------------------------------------

    def arrival(self) -> float:
        """When a segment sent now arrives, if nothing before it is late."""
        return self.loop.time() + self._delay()

    def merges(self) -> bool:
        """Whether a segment joins the one before it."""
        return self.dials.merge > 0 and self._rng.random() < self.dials.merge

    def landed(self, sender: SimTransport, count: int, *, is_end: bool, sent_at: float) -> None:
        """Note an arrival."""
        if self.tells_arrivals:
            self._tell(
                "net.landed", sender.here, sender.there, bytes=count, is_end=is_end, sent_at=sent_at
            )

    def meddle(self, sender: SimTransport, data: bytes) -> bool:
        """Let the seed do something to a segment. True if it took care of it."""
        dials, rng = self.dials, self._rng
        if sender.is_dialler:
            if dials.lose_before and rng.random() < dials.lose_before:
                self._break(sender, data, 0, "net.lost_before")
                return True
            if dials.lose_after and rng.random() < dials.lose_after:
                self._lose_answer(sender, data)
                return True
        if dials.reset and rng.random() < dials.reset:
            self._break(sender, data, rng.randint(0, len(data)), "net.reset")
            return True
        if dials.half_close and rng.random() < dials.half_close:
            count = rng.randint(0, len(data))
            self._tell("net.half_closed", sender.here, sender.there, after=count)
            if count:
                sender.fly(data[:count])
            sender.fly(b"", is_end=True)
            sender.is_cut = True
            return True
        if dials.split and len(data) > 1 and rng.random() < dials.split:
            count = rng.randint(1, len(data) - 1)
            sender.fly(data[:count])
            sender.fly(data[count:])
            return True
        return False

    def _break(self, sender: SimTransport, data: bytes, count: int, name: str) -> None:
        """Let only ``count`` bytes through; both sides are told, or nobody is."""
        is_silent = name == "net.lost_before" and self._rng.random() < self.dials.silence
        self._tell(name, sender.here, sender.there, after=count, silent=is_silent)
        if count:
            sender.fly(data[:count])
        sender.is_cut = True
        if not is_silent:
            sender.fly(b"", error=connection_error(errno.ECONNRESET))
            self.reset_later(sender)

    def _lose_answer(self, sender: SimTransport, data: bytes) -> None:
        is_silent = self._rng.random() < self.dials.silence
        self._tell("net.lost_after", sender.here, sender.there, silent=is_silent)
        sender.fly(data)
        sender.peer.is_cut = True
        if not is_silent:
            self.reset_later(sender)
            if self._rng.random() < _BOTH_TOLD:
                sender.fly(b"", error=connection_error(errno.ECONNRESET))

    def reset_later(self, end: SimTransport) -> None:
        """Tell one end, some time from now, that its connection was reset."""
        if end.there[0] in self._dark:
            return
        self.loop.call_at(
            self.arrival(), end.fail, connection_error(errno.ECONNRESET), context=end.context
        )

    def _delay(self) -> float:
        dials, rng = self.dials, self._rng
        low, high = dials.latency_s
        delay = low + (high - low) * rng.random()
        if dials.stall and rng.random() < dials.stall:
            low, high = dials.stall_s
            delay += low + (high - low) * rng.random()
        return delay

    def _tell(self, name: str, here: Address, there: Address, **fields: Any) -> None:
        self._note(name, {"from": here, "to": there, **fields})


def _resolve(host: str | None) -> str:
    return this_host() if host is None or host in _SELF else host
