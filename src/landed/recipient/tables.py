"""The recipient's own tables. They lie beside the service's, and share nothing with a sender's."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

from landed.fingerprint import digest_parts

metadata: Final = MetaData()

keys: Final = Table(
    "landed_r_keys",
    metadata,
    Column("key_digest", LargeBinary, primary_key=True),  # of scope and key; outlives a scrub
    Column("scope", Text, nullable=False),
    Column("key", Text),  # emptied by a scrub
    Column("state", Text, CheckConstraint("state IN ('acted', 'sealed')"), nullable=False),
    Column("fingerprint", LargeBinary),
    Column("status", Integer),
    Column("content_type", Text),
    Column("body", LargeBinary),  # emptied by a scrub
    Column("recorded_at", BigInteger, nullable=False, index=True),
    Column("scrubbed_at", BigInteger),
)
"""Key records and tombstones: one row says for ever which of the two a key became."""

fences: Final = Table(
    "landed_r_fences",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("domain", Text, primary_key=True),
    Column("fence_key", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("taken_by", LargeBinary, nullable=False),  # the key digest of what took it
    Column("taken_at", BigInteger, nullable=False),
)
"""The newest version taken, per order key."""


migrations: Final = Table(
    "landed_r_migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
)
"""Which steps of migrations.py were applied."""


def key_digest(scope: str, key: str) -> bytes:
    """What a key is remembered by: SHA-256 over its parts, 32 bytes."""
    return digest_parts(scope.encode(), key.encode())
