"""``landed copy``: move a whole log to another engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from landed.errors import ConfigurationError

if TYPE_CHECKING:
    from landed.engines.copying import Copied, Progress, Source, Target
    from landed.postgres.dsn import Dsn

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")
_HOW: Final = "a log is copied from and to sqlite:///path and postgresql://user@host/database"


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The log as it is.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where it shall be; nothing yet.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy a whole log to another engine, compare both sides in full, and only then open it.

    Everything goes along under the same numbers: versions, events, clients, sequences, times, marks,
    floors, deletes, and the order of the feed. The copy is the same log with a higher restore epoch, so
    projections fold it anew. FROM is not changed. Stop its writers first: a file that is in use is
    refused, and writers on PostgreSQL are told busy until the copy is done; what is written to FROM
    after that is not in the copy.

    After a kill or an error run the same command again: it goes on where it was. Leaves with 1 if the
    two sides differ.

    Example: landed copy sqlite:///log.db postgresql://app@db/shop

    And back: landed copy postgresql://app@db/shop sqlite:////var/lib/shop/log.db
    """
    from landed.engines.copying import copy_log

    if source == target:
        raise ConfigurationError("FROM and TO are the same")
    with ExitStack() as open_now:
        original = open_now.enter_context(_source(source))
        place = open_now.enter_context(_target(target))
        with _watched() as progress:
            copied = copy_log(original, place, progress=progress)
    _print(copied, target, as_json=as_json)
    if copied.differences:
        raise typer.Exit(1)


@contextmanager
def _source(url: str) -> Iterator[Source]:
    if path := _path(url):
        from landed.engines.sqlite.copying import FileSource

        file = FileSource(path)
        try:
            yield file
        finally:
            file.close()
        return
    dsn = _dsn(url)
    from landed.engines.postgres.copying import TablesSource

    tables = TablesSource(dsn)
    try:
        yield tables
    finally:
        tables.close()


@contextmanager
def _target(url: str) -> Iterator[Target]:
    if path := _path(url):
        from landed.engines.sqlite.copying import FileTarget

        file = FileTarget(path)
        try:
            yield file
        finally:
            file.close()
        return
    dsn = _dsn(url)
    from landed.engines.postgres.copying import TablesTarget

    tables = TablesTarget(dsn)
    try:
        yield tables
    finally:
        tables.close()


def _path(url: str) -> str:
    """The file of a URL; empty where it names none."""
    if not url.startswith(_SQLITE):
        return ""
    path, _, query = url.removeprefix(_SQLITE).partition("?")
    if query or not path:
        raise ConfigurationError(f"a log on SQLite is named by its file, sqlite:///path: {url!r}")
    return unquote(path)


def _dsn(url: str) -> Dsn:
    from landed.postgres.dsn import SCHEME, parse_dsn

    for scheme in _POSTGRES:
        if url.startswith(scheme):
            # An option of the engine is no hindrance: what it says has no meaning here.
            own = ("accept_data_loss", "prepare")
            return parse_dsn(SCHEME + url.removeprefix(scheme), own=own)
    raise ConfigurationError(f"{_HOW}: {url!r}")


@contextmanager
def _watched() -> Iterator[Progress]:
    """A bar on standard error while somebody looks at it."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("copying", total=None)
        yield lambda what, done, all_: bar.update(
            task, description=what, completed=done, total=all_
        )


def _print(copied: Copied, target: str, *, as_json: bool) -> None:
    identity = copied.identity
    if as_json:
        found = copied._asdict()
        found["identity"] = (
            None
            if identity is None
            else {"log_id": str(identity.log_id), "restore_epoch": identity.restore_epoch}
        )
        typer.echo(json.dumps(found))
        return
    for difference in copied.differences:
        typer.echo(difference)
    counts = f"{copied.entries} entries, {copied.aggregates} aggregates, {copied.marks} marks"
    if identity is None:
        typer.echo(f"{counts}: the two sides differ, and {target} was not made a log")
        return
    if copied.resumed_after:
        typer.echo(f"gone on with behind position {copied.resumed_after}")
    typer.echo(f"{counts}: the same on both sides, digest {copied.digest}")
    typer.echo(
        f"log {identity.log_id} at restore epoch {identity.restore_epoch}, up to position "
        f"{copied.position}; what FROM takes from now on is not in it"
    )
