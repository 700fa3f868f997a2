"""What the operators' commands share: a database to look at, who acts, and how answers are printed."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import typer

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from landed.ledger import Ledger
    from landed.records.actions import Action
    from landed.records.session import Books

T = TypeVar("T")

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="sqlite:///PATH or postgresql://…"),
]
LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="MODULE:LEDGER", help="Where the ledger is declared."),
]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who acts; this user by default.")
]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept with the act.")]
ActionOption = Annotated[
    str | None,
    typer.Option("--action-id", metavar="UUID", help="Repeats with one id are one act."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Desk(NamedTuple):
    """An opened database. ``ledger`` is there only where it was named."""

    engine: Engine
    books: Books
    ledger: Ledger | None

    def transact(self, work: Callable[[Connection], T], *, is_durable: bool = True) -> T:
        """Run one transaction."""
        from landed.records.session import transact

        return transact(self.engine, work, is_durable=is_durable)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction that only reads."""
        return self.transact(work, is_durable=False)

    def declared(self) -> Ledger:
        """The ledger's declarations.

        Raises:
            ConfigurationError: it was not named.
        """
        from landed.errors import ConfigurationError

        if self.ledger is None:
            raise ConfigurationError(
                "this needs the program's declarations as well: say --ledger module:ledger"
            )
        return self.ledger


@contextmanager
def opened(database: str | None, ledger: str | None = None) -> Iterator[Desk]:
    """Open a ledger's database for looking and deciding; migrates nothing.

    Raises:
        ConfigurationError: neither is named, there is none, or it holds no ledger.
        StorageError: it cannot be reached.
    """
    from landed.errors import ConfigurationError

    if ledger is not None:
        from landed.cli.loading import load_ledger

        declared = load_ledger(ledger, database)
        _refuse_missing(declared.engine.url.render_as_string(hide_password=False))
        _name_of(declared.engine)
        declared.prepare(is_migrating=False)
        try:
            yield Desk(declared.engine, declared.books, declared)
        finally:
            declared.close()
        return
    if database is None:
        raise ConfigurationError("say which database: --database URL, or --ledger module:ledger")
    from landed.records.session import Books, open_engine

    _refuse_missing(database)
    engine = open_engine(database)
    try:
        # No identity is digested here, so the digest key plays no part.
        yield Desk(engine, Books(_name_of(engine), b""), None)
    finally:
        engine.dispose()


def _refuse_missing(url: str) -> None:
    """SQLite would make an empty file of a mistyped path."""
    from landed.errors import ConfigurationError

    path = url.partition("///")[2].partition("?")[0]
    if url.startswith("sqlite") and path and not Path(path).exists():
        raise ConfigurationError(f"there is no database {path}")


def _name_of(engine: Engine) -> str:
    from landed.errors import ConfigurationError, StorageError
    from landed.records import meta, migrations
    from landed.records.session import ping, transact

    ping(engine)
    try:
        transact(engine, migrations.check_version, is_durable=False)
        name = transact(engine, lambda conn: meta.read(conn, meta.LEDGER), is_durable=False)
    except StorageError as e:
        raise ConfigurationError(f"this database holds no ledger of this version: {e}") from None
    if name is None:
        raise ConfigurationError("no ledger has started on this database yet")
    return name


def action_of(by: str | None, why: str, action_id: str | None) -> Action:
    """Who acts and why.

    Raises:
        ConfigurationError: not an id.
    """
    from landed.records.actions import Action

    return Action(
        action_id=uuid4() if action_id is None else id_of(action_id, "--action-id"),
        actor=actor_of(by),
        reason=why,
    )


def actor_of(by: str | None) -> str:
    """Who acts: as told, or this user."""
    from landed.errors import ConfigurationError

    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise ConfigurationError("say who acts: --by NAME") from None


def id_of(text: str, what: str = "ID") -> UUID:
    """Read an id.

    Raises:
        ConfigurationError: it is none.
    """
    from landed.errors import ConfigurationError

    try:
        return UUID(text)
    except ValueError:
        raise ConfigurationError(
            f"{what} takes a UUID, such as the one in Landed-Receipt: {text!r}"
        ) from None


def say(document: Any, lines: list[str], *, as_json: bool) -> None:
    """Print an answer: as JSON, or as lines."""
    if as_json:
        typer.echo(json.dumps(document, default=plain, ensure_ascii=False))
    else:
        for line in lines:
            typer.echo(line)


def plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def when(at_us: int | None) -> str:
    """Microseconds since 1970, for people."""
    if at_us is None:
        return "-"
    return (
        datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    )
