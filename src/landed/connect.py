"""``connect``: one URL in, one ``Log`` out. Rooms are imported only when their scheme is used."""

# ruff: noqa: PLC0415  # a scheme that is not used costs nothing and needs nothing installed

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote

from landed.clock import Clock, SystemClock
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.limits import Limits, with_settings

if TYPE_CHECKING:
    from landed.client.log import Log
    from landed.engines.port import Engine

POSSIBLE: Final = (
    "memory:  sqlite:///relative/path  sqlite:////absolute/path  "
    "postgresql://user@host/database  landed://host:port[,host:port]"
)
_POSTGRES_SCHEMES: Final = ("postgresql", "postgres")
_ENGINES: Final = ("memory", "sqlite", *_POSTGRES_SCHEMES)
_LIMITS: Final = frozenset(field.name for field in fields(Limits))
_HOW: Final = (
    "an engine is memory:, sqlite:///path (four slashes for an absolute one) or "
    "postgresql://user@host/database"
)


async def connect(
    url: str,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    note: Note = forget,
    **options: object,
) -> Log:
    """Open the log that a URL names.

    Close it when done, or let a block do so: ``async with await connect(url) as log: ...``

    Args:
        url: ``memory:`` (gone with the process), ``sqlite:///path`` (a file that this process
            alone owns), ``postgresql://user@host/database`` (a database that any number of
            processes write), or ``landed://host:port[,host:port]`` (nodes that ``landed serve``
            runs; the port is 10000 unless said).
        limits: of an engine in this process; ``Limits()`` if None.
        clock: of an engine in this process; the machine's if None.
        note: takes facts.
        options: as keywords or as the URL's query, keywords winning. For an engine in this process
            the names of ``Limits``, and for PostgreSQL also those of libpq, ``accept_data_loss``
            and ``prepare``; for ``landed:`` those of ``PoolOptions``.

    Raises:
        ConfigurationError: no such scheme or option, or a value that cannot work.
        StorageError: the log cannot be opened: in use, damaged, not ours, or no server.

    Source: design decision 1.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in {*_ENGINES, "landed"}:
        raise ConfigurationError(f"no log is at {url!r}; possible are  {POSSIBLE}")
    if scheme == "landed":
        place, _, query = rest.partition("?")
        return _far(place, note, {**_parse_query(query), **options})
    from landed.client.embedded import EmbeddedLog

    engine = await open_engine(
        url, limits=limits or Limits(), clock=clock or SystemClock(), note=note, **options
    )
    return EmbeddedLog(engine)


async def open_engine(
    url: str, *, limits: Limits, clock: Clock, note: Note = forget, **options: object
) -> Engine:
    """Open the engine that a URL names, in this process.

    Args:
        url: ``memory:``, ``sqlite:///path`` or ``postgresql://user@host/database``, with options as
            its query.
        limits: of this process; options of the URL and keywords change them.
        clock: of this process.
        note: takes facts.
        options: as for ``connect``.

    Raises:
        ConfigurationError: no engine has such a URL, or an option cannot work.
        StorageError: the log cannot be opened.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in _ENGINES:
        raise ConfigurationError(f"{_HOW}: {url!r}")
    place, _, query = rest.partition("?")
    chosen = {**_parse_query(query), **options}
    bounds = {name: chosen.pop(name) for name in list(chosen) if name in _LIMITS}
    limits = with_settings(limits, [f"{name}={value}" for name, value in bounds.items()])
    if scheme in _POSTGRES_SCHEMES:
        return await _on_postgres(place, chosen, limits, clock, note)
    if chosen:
        raise ConfigurationError(
            f"{next(iter(chosen))!r} is no option of this engine; there are: "
            + ", ".join(sorted(_LIMITS))
        )
    if scheme == "memory":
        if place:
            raise ConfigurationError(f"a log in memory has no name; {_HOW}: {url!r}")
        from landed.engines.memory import open_memory

        return await open_memory(limits=limits, clock=clock, note=note)
    path = unquote(place.removeprefix("///"))
    if not place.startswith("///") or not path:
        raise ConfigurationError(f"a log on SQLite is named by its file: sqlite:///path: {url!r}")
    from landed.engines.sqlite import open_sqlite

    return await open_sqlite(path, limits=limits, clock=clock, note=note)


async def _on_postgres(
    place: str, options: dict[str, object], limits: Limits, clock: Clock, note: Note
) -> Engine:
    from landed.postgres.dsn import SCHEME, parse_dsn

    own = ("accept_data_loss", "prepare")
    query = "&".join(f"{name}={quote(str(value))}" for name, value in options.items())
    dsn = parse_dsn(f"{SCHEME}{place.removeprefix('//')}?{query}", own=own)
    # Only now: without the driver this room cannot be imported, and parsing has just told so.
    from landed.engines.postgres import open_postgres

    return await open_postgres(dsn, limits=limits, clock=clock, note=note)


def _parse_query(query: str) -> dict[str, object]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigurationError(f"options are written name=value&name=value: {query!r}") from None
    return dict(pairs)


def _far(place: str, note: Note, options: dict[str, object]) -> Log:
    from random import Random

    from landed.client.options import PORT, parse_address, pool_options
    from landed.client.pool import Pool

    nodes = place.removeprefix("//").rstrip("/")
    if not place.startswith("//") or not nodes or "/" in nodes or "@" in nodes:
        raise ConfigurationError(f"nodes are named host:port[,host:port], not {place!r}")
    addresses = [str(parse_address(text, default_port=PORT)) for text in nodes.split(",")]
    return Pool(pool_options(addresses, options), jitter=Random(), note=note)  # noqa: S311  # no secret
