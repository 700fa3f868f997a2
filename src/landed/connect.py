"""``connect``: one URL in, one ``Log`` out. Rooms are imported only when their scheme is used."""

# ruff: noqa: PLC0415  # a scheme that is not used costs nothing and needs nothing installed

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from landed.clock import Clock, SystemClock
from landed.errors import ConfigurationError
from landed.facts import Note, forget
from landed.limits import Limits, with_settings

if TYPE_CHECKING:
    from landed.client.log import Log

POSSIBLE: Final = (
    "memory:  sqlite:///relative/path  sqlite:////absolute/path  landed://host:port[,host:port]"
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
            alone owns), or ``landed://host:port[,host:port]`` (nodes that ``landed serve`` runs;
            the port is 10000 unless said).
        limits: of an engine in this process; ``Limits()`` if None.
        clock: of an engine in this process; the machine's if None.
        note: takes facts.
        options: as keywords or as the URL's query, keywords winning. For ``memory:`` and
            ``sqlite:`` the names of ``Limits``, for ``landed:`` those of ``PoolOptions``.

    Raises:
        ConfigurationError: no such scheme or option, or a value that cannot work.
        StorageError: the file cannot be opened: in use, damaged, or not ours.

    Source: design decision 1.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in {"memory", "sqlite", "landed"}:
        raise ConfigurationError(f"no log is at {url!r}; possible are  {POSSIBLE}")
    place, _, query = rest.partition("?")
    options = {**_parse_query(query), **options}
    if scheme == "landed":
        return _far(place, note, options)
    settings = [f"{name}={value}" for name, value in options.items()]
    limits = with_settings(limits or Limits(), settings)
    return await _here(scheme, place, limits, clock or SystemClock(), note)


async def _here(scheme: str, place: str, limits: Limits, clock: Clock, note: Note) -> Log:
    from landed.client.embedded import EmbeddedLog

    if scheme == "memory":
        if place:
            raise ConfigurationError("a log in memory has no name: memory:")
        from landed.engines.memory import open_memory

        return EmbeddedLog(await open_memory(limits=limits, clock=clock, note=note))
    path = unquote(place.removeprefix("///"))
    if not place.startswith("///") or not path:
        raise ConfigurationError("a log on SQLite is named by its file: sqlite:///path")
    from landed.engines.sqlite import open_sqlite

    return EmbeddedLog(await open_sqlite(path, limits=limits, clock=clock, note=note))


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
