"""``landed serve``: a log on a port."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ipaddress
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from landed.cli.logs import LogFormat

if TYPE_CHECKING:
    from landed.facts import Note
    from landed.limits import Limits

DEFAULT_LISTEN: Final = "127.0.0.1:10000"
_HEAP_OPTIONS: Final = ((-8, 1), (-3, 1 << 20), (-1, 4 << 20))
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of ``mallopt``: one heap; blocks from a mebibyte
on are mapped alone and given back when they are freed; the heap keeps four at its end."""
_SPARE_DESCRIPTORS: Final = 128
"""For the store's files, the log, the operator's port and the interpreter."""


class LoopChoice(StrEnum):
    """Which event loop serves."""

    AUTO = "auto"
    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServeOptions(NamedTuple):
    """What one server was asked to do."""

    listen: Address
    engine: str
    extra: Mapping[str, str]
    """Options of the engine, besides those of its URL."""
    admin: Address | None
    limits: Limits
    log_format: LogFormat
    is_verbose: bool


def serve(
    *,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="URL",
            help="memory:, sqlite:///path/to/file or postgresql://user@host/database",
        ),
    ],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Port 0 picks one.")
    ] = DEFAULT_LISTEN,
    admin: Annotated[
        str | None,
        typer.Option("--admin", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen beyond loopback although whoever reaches the port may do everything.",
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="LIMIT=VALUE", help="Change a limit; may be repeated."),
    ] = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="PostgreSQL: serve although the server's settings may lose acknowledged writes.",
        ),
    ] = False,
    loop: Annotated[
        LoopChoice, typer.Option("--loop", help="auto: uvloop where it is installed.")
    ] = LoopChoice.AUTO,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log on standard error.")
    ] = LogFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every flush as well.")] = False,
) -> None:
    """Serve a log on a port, until SIGTERM or Ctrl-C.

    Then it accepts nothing more, finishes and answers what it has received whole, and leaves.

    Example: landed serve --engine sqlite:///log.db --admin 127.0.0.1:9000
    """
    from landed.limits import Limits, with_settings

    options = ServeOptions(
        listen=parse_address(listen, "--listen"),
        engine=engine,
        extra={"accept_data_loss": "true"} if accept_data_loss else {},
        admin=None if admin is None else parse_address(admin, "--admin"),
        limits=with_settings(Limits(), settings or ()),
        log_format=log_format,
        is_verbose=verbose,
    )
    for address in filter(None, (options.listen, options.admin)):
        _refuse_open_address(address, insecure=insecure)
    _allow_descriptors(options.limits.connections_max)
    _one_heap()
    _calm_collector()
    run_on(loop, lambda: _serve(options))


def parse_address(text: str, flag: str) -> Address:
    """Read HOST:PORT; an IPv6 host stands in brackets.

    Raises:
        ConfigurationError: it is neither.
    """
    from landed.errors import ConfigurationError

    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_number = port.isascii() and port.isdecimal()
    if not colon or not bare or (":" in bare) != is_bracketed or not is_number:
        raise ConfigurationError(f"{flag} takes HOST:PORT, such as {DEFAULT_LISTEN}: {text!r}")
    if int(port) > 65_535:
        raise ConfigurationError(f"{flag}: there is no port {port}")
    return Address(bare, int(port))


def run_on(choice: LoopChoice, main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a coroutine on the chosen event loop.

    Raises:
        ConfigurationError: uvloop was asked for and is not installed.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if choice is not LoopChoice.ASYNCIO:
        try:
            import uvloop
        except ImportError:
            if choice is LoopChoice.UVLOOP:
                from landed.errors import ConfigurationError

                raise ConfigurationError(
                    "uvloop is not installed: pip install 'landed[speed]', or --loop asyncio"
                ) from None
        else:
            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


async def _serve(options: ServeOptions) -> None:
    """Open, listen, wait for the end, and close in the reverse order."""
    from landed.cli.logs import log_to
    from landed.clock import SystemClock
    from landed.connect import open_engine
    from landed.errors import StorageError
    from landed.server import serve as serve_engine
    from landed.server.admin import serve_admin
    from landed.server.metrics import FactCounts, pages

    ending = _ending_of_process()
    clock = SystemClock()
    facts = FactCounts(log_to(options.log_format, clock, is_verbose=options.is_verbose))
    asyncio.get_running_loop().set_exception_handler(_noting(facts))
    async with AsyncExitStack() as stack:
        engine = await open_engine(
            options.engine, limits=options.limits, clock=clock, note=facts, **options.extra
        )
        stack.push_async_callback(engine.close)
        host, port = options.listen
        server = await serve_engine(
            engine, host=host, port=port, limits=options.limits, clock=clock, note=facts
        )
        stack.push_async_callback(server.close)
        operator = None
        if options.admin is not None:
            host, port = options.admin
            operator = await serve_admin(pages(server, facts), host=host, port=port)
            stack.push_async_callback(operator.close)
            facts("admin.listening", {"host": operator.host, "port": operator.port})
            # Once more, so that it happens first and /readyz can say what is going on.
            stack.push_async_callback(server.close)
        typer.echo(f"landed: listening on {Address(server.host, server.port)}")
        if operator is not None:
            typer.echo(f"landed: metrics on http://{Address(operator.host, operator.port)}/metrics")
        await _first_of(ending, server.wait_stopped())
    if engine.is_stopped:
        raise StorageError(
            "the storage failed during a commit and nobody knows what it left behind; "
            "start again to see what landed",
            is_outcome_known=False,
        )


def _noting(note: Note) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Turn what goes wrong outside every session into a fact, with its traceback."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        trace = "".join(traceback.format_exception(error)) if error else ""
        note("loop.failed", {"message": context.get("message", ""), "trace": trace})

    return handle


def _refuse_open_address(address: Address, *, insecure: bool) -> None:
    """Listen on this machine only, unless the user takes the risk aloud."""
    from landed.errors import ConfigurationError

    if insecure or address.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and this version has neither "
            "authentication nor encryption: whoever reaches it may read and write everything. "
            "Listen on 127.0.0.1, or say --insecure if the network itself is trusted"
        )


def _allow_descriptors(connections: int) -> None:
    """Raise the soft limit of open files as far as the connections need it and we may."""
    try:
        import resource
    except ImportError:
        return
    wanted = connections + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _calm_collector() -> None:
    """Look for cycles seldom: almost nothing here makes any.

    With Python's own thresholds the collector walks the requests of every flush several times and
    all cached heads now and then, which was a quarter of the server's time and its longest pauses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _one_heap() -> None:
    """Have the C library keep one heap and give large blocks back, where it is glibc.

    By itself it gives each thread a heap of its own and keeps more after each large block that was
    freed: some 30 MB above what was in use, for every cache that is copied when it is cut and for
    every thread's pages. Nothing here is bound by allocations outside of Python's own.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        for option in _HEAP_OPTIONS:
            set_option(*option)


def _ending_of_process() -> asyncio.Future[None]:
    """Done when the process is told to end; the signal does nothing else."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ending.done():
            ending.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ending


async def _first_of(ending: asyncio.Future[None], stopped: Coroutine[None, None, None]) -> None:
    watch = asyncio.ensure_future(stopped)
    try:
        await asyncio.wait((ending, watch), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
