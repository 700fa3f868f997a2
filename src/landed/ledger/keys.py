"""Where the digest key comes from: handed in, an environment variable, a file."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from landed.errors import ConfigurationError

ENVIRONMENT: Final = "LANDED_DIGEST_KEY"
FILE_ENVIRONMENT: Final = "LANDED_DIGEST_KEY_FILE"
KEY_BYTES_MIN: Final = 16
_NEW_BYTES: Final = 32


def digest_key(given: bytes | None, url: URL) -> tuple[bytes, str | None]:
    """Find the key that identities are digested with, and what to tell the user about it.

    In order: what was handed in, ``LANDED_DIGEST_KEY`` (text), the file that
    ``LANDED_DIGEST_KEY_FILE`` names, a file beside the SQLite database, which is made if the
    database is new. Losing the key stops the next start (design decision 25).

    Raises:
        ConfigurationError: there is none, or it is shorter than 16 bytes.
    """
    if given is not None:
        return _checked(given, "digest_key="), None
    if text := os.environ.get(ENVIRONMENT):
        return _checked(text.encode(), ENVIRONMENT), None
    if name := os.environ.get(FILE_ENVIRONMENT):
        return _from_file(Path(name)), None
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise ConfigurationError(
            f"no digest key: set {ENVIRONMENT} or {FILE_ENVIRONMENT} to a secret that stays the same "
            "for the life of this database"
        )
    path = Path(url.database + ".digest-key")
    if path.exists():
        return _from_file(path), None
    if Path(url.database).exists() and Path(url.database).stat().st_size > 0 and _is_begun(url):
        raise ConfigurationError(
            f"{path} is missing, and {url.database} was begun with some key: bring it back"
        )
    key = secrets.token_hex(_NEW_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _from_file(path), None
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    return key.encode(), f"made a new digest key in {path}: keep it with the database"


def _is_begun(url: URL) -> bool:
    """Say whether a SQLite file already remembers a key's check value."""
    conn = sqlite3.connect(f"file:{url.database}?mode=ro", uri=True)
    try:
        row = conn.execute("SELECT 1 FROM landed_meta WHERE name = 'digest_key_check'").fetchone()
    except sqlite3.OperationalError:
        return False
    finally:
        conn.close()
    return row is not None


def _from_file(path: Path) -> bytes:
    try:
        return _checked(path.read_text().strip().encode(), str(path))
    except OSError as e:
        raise ConfigurationError(f"the digest key cannot be read: {e}") from None


def _checked(key: bytes, where: str) -> bytes:
    if len(key) < KEY_BYTES_MIN:
        raise ConfigurationError(f"{where}: a digest key has at least {KEY_BYTES_MIN} bytes")
    return key
