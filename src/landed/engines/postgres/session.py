"""Connections that are ready to work: the server is good enough, and each knows our parameters."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from landed.engines.port import LogIdentity
from landed.engines.postgres.place import settle_place
from landed.engines.postgres.schema import PART, STEPS
from landed.errors import ConfigurationError
from landed.facts import Note
from landed.limits import Limits
from landed.postgres.checks import Server, check, look, open_connection
from landed.postgres.dsn import Dsn
from landed.postgres.migrate import migrate

OPTIONS: Final = ("accept_data_loss", "prepare")
"""Of an address, besides libpq's: accept servers that may lose what they acknowledged; and whether
statements are prepared (``off`` for a pooler that cannot keep them)."""

_WEAK_COMMITS: Final = ("local", "remote_write")


class Sessions:
    """Opens connections to one log."""

    def __init__(
        self, dsn: Dsn, *, limits: Limits, note: Note, accept_data_loss: bool = False
    ) -> None:
        """Nothing is opened yet."""
        self.dsn = dsn
        self._limits = limits
        self._note = note
        self._accepts_loss = accept_data_loss or _switch(dsn, "accept_data_loss", default=False)
        self.prepares = _switch(dsn, "prepare", default=True)
        """Whether statements are prepared."""
        self._is_first = True

    def open_writer(self) -> tuple[psycopg.Connection[Any], LogIdentity, str]:
        """Open a connection for commits; the first one makes the tables, or brings them up to date.

        Returns:
            The connection, which log it leads to, and the ``synchronous_commit`` to commit with.

        Raises:
            ConfigurationError: the server is too old, takes no writes, or may lose what it
                acknowledged, which nobody accepted.
            StorageForeignError: the tables are a newer version's, or placed by other shards.
            StorageError: no connection, or the database failed.
        """
        connection = self.open_reader()
        try:
            server = look(connection)
            check(server)
            commits = self._commits_of(server)
            if self._is_first:
                migrate(connection, PART, STEPS)
            identity = settle_place(connection, self._limits)
        except BaseException:
            connection.close()
            raise
        if self._is_first:
            self._is_first = False
            self._note(
                "engine.opened", {"place": self.dsn.place, "acknowledged": meaning_of(server)}
            )
        return connection, identity, commits

    def open_reader(self) -> psycopg.Connection[Any]:
        """Open a connection for reads.

        Raises:
            StorageError: no connection.
        """
        connection = open_connection(self.dsn)
        # What is worth it is prepared in exchange.py, and the driver would take it away again.
        connection.prepare_threshold = None
        return connection

    def stop_preparing(self) -> None:
        """A pooler hands sessions on without what was prepared in them: from now on, do without."""
        if self.prepares:
            self.prepares = False
            self._note("engine.unprepared", {"why": "a pooler does not keep prepared statements"})

    def _commits_of(self, server: Server) -> str:
        """Choose how to commit: as the server does, but never weaker than its own disk."""
        if server.losing and not self._accepts_loss:
            raise ConfigurationError(
                f"the server may lose what it acknowledged ({', '.join(server.losing)}): change "
                "that, or say --accept-data-loss (in a URL: ?accept_data_loss=true)"
            )
        setting = server.synchronous_commit
        return "on" if setting in _WEAK_COMMITS else setting


def meaning_of(server: Server) -> str:
    """Say in one sentence what an acknowledgement of this server means."""
    if server.losing:
        return (
            f"next to nothing: with {', '.join(server.losing)} a crash of the server may take "
            "acknowledged writes with it"
        )
    if server.standby_names:
        return (
            "the write is on the primary's disk and on those of the synchronous standbys that "
            f"synchronous_standby_names={server.standby_names!r} asks for; it survives the loss of "
            "the primary"
        )
    return (
        "the write is on this server's disk; it survives a crash of the server, not the loss of its "
        "disk, since no synchronous standby is set up"
    )


def _switch(dsn: Dsn, name: str, *, default: bool) -> bool:
    text = dsn.options.get(name)
    if text is None:
        return default
    if text.lower() in {"on", "true", "yes", "1"}:
        return True
    if text.lower() in {"off", "false", "no", "0"}:
        return False
    raise ConfigurationError(f"{name} is true or false, not {text!r}")
