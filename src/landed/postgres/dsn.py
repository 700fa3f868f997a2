"""Where a database is: our URL, taken apart for the driver.

``postgresql://user@host[:port][,host2[:port]]/database?option=value``. Options of libpq pass through;
those of the room that opens it are taken off. A password is never in a URL, where shells and process
lists show it: it comes from ``PGPASSWORD``, ``PGPASSFILE``, ``~/.pgpass`` or the option ``passfile``.
Without the driver this module can still be imported, the others of the room cannot: ask
``require_driver`` first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from landed.errors import ConfigurationError

SCHEME: Final = "postgresql://"
EXTRA: Final = "PostgreSQL needs an extra: pip install 'landed[postgres]'"
HOW: Final = "postgresql://user@host[:port][,host2[:port]]/database?option=value"

_SECRETS: Final = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
_DEFAULTS: Final = {
    "connect_timeout": "5",
    "fallback_application_name": "landed",
    # A server that vanished is noticed in 25 s instead of the system's two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""What libpq is told unless the URL says otherwise: no wait without a bound."""


@dataclass(frozen=True, slots=True)
class Dsn:
    """A database's address, parsed. Holds no secret, so it may be shown."""

    conninfo: str
    """For ``psycopg.connect``."""
    options: Mapping[str, str]
    """The room's own options, as text."""
    place: str
    """Hosts and database, for messages."""

    def with_settings(self, settings: Mapping[str, str]) -> Dsn:
        """The same address for sessions that begin with these settings of the server.

        They are said when a session begins and never changed in it, so a pooler that hands sessions
        on cannot hand them to somebody else: it refuses them.
        """
        from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415

        words = [str(conninfo_to_dict(self.conninfo).get("options") or "")]
        words += [f"-c {name}={value}" for name, value in settings.items()]
        return replace(self, conninfo=make_conninfo(self.conninfo, options=" ".join(words).strip()))


def require_driver() -> None:
    """Say in one sentence what is missing.

    Raises:
        ConfigurationError: the extra is not installed.
    """
    try:
        import psycopg  # noqa: F401, PLC0415  # optional: the extra "postgres"
    except ImportError as e:
        raise ConfigurationError(f"{EXTRA} ({e})") from None


def parse_dsn(url: str, *, own: Collection[str] = ()) -> Dsn:
    """Take a URL apart.

    With several hosts the one that takes writes is looked for (``target_session_attrs``), so that a
    failover needs no change of the URL.

    Args:
        url: beginning with ``postgresql://``.
        own: names of options that are not libpq's.

    Raises:
        ConfigurationError: it cannot be read, has an unknown option, or holds a secret; or the extra
            is not installed. The message never shows what may be a secret.
    """
    require_driver()
    from psycopg import ProgrammingError  # noqa: PLC0415  # optional: the extra "postgres"
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415
    from psycopg.pq import Conninfo  # noqa: PLC0415

    if not url.startswith(SCHEME):
        raise ConfigurationError(f"a database is named {HOW}")
    address, _, query = url.partition("?")
    user, _, _ = address.removeprefix(SCHEME).rpartition("@")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    theirs, ours = _options(query, known, own)
    if ":" in user or _SECRETS & theirs.keys():
        raise ConfigurationError(
            "a password does not belong in a URL, where process lists show it: use PGPASSWORD, "
            "PGPASSFILE or ?passfile=FILE"
        )
    try:
        params = {**conninfo_to_dict(address), **theirs}
    except ProgrammingError:
        raise ConfigurationError(
            f"this URL of a database cannot be read; it is written {HOW}"
        ) from None
    hosts = str(params.get("host", "") or "")
    if "," in hosts:
        params.setdefault("target_session_attrs", "read-write")
    database = params.get("dbname") or params.get("service") or "the default database"
    return Dsn(
        make_conninfo("", **{**_DEFAULTS, **params}),
        ours,
        f"{database} at {hosts or 'the local server'}",
    )


def _options(
    query: str, known: Collection[str], own: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Part libpq's options from ours."""
    theirs: dict[str, str] = {}
    ours: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals:
            raise ConfigurationError(f"options are written name=value&name=value: {name!r}")
        if name in own:
            ours[name] = unquote(value)
        elif name in known:
            theirs[name] = unquote(value)
        else:
            also = f"; ours are {', '.join(sorted(own))}" if own else ""
            raise ConfigurationError(f"{name!r} is no option of a connection{also}")
    return theirs, ours
