"""Contracts as they were when effects were bound to them: by digest, never changed (rule CT-5)."""

from __future__ import annotations

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.effects.contract import Contract, contract_of
from landed.records.session import Books, is_postgres
from landed.records.tables import contracts


def register(conn: Connection, books: Books, recipient: str, contract: Contract) -> bytes:
    """Remember a contract, once; returns its digest."""
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    digest = contract.digest()
    conn.execute(
        dialect.insert(contracts)
        .values(
            digest=digest,
            recipient=recipient,
            declaration=contract.declaration(),
            registered_at=books.at(conn),
        )
        .on_conflict_do_nothing()
    )
    return digest


def load(conn: Connection, digest: bytes) -> Contract | None:
    """The contract with a digest, if it was ever registered here."""
    declaration = conn.execute(
        select(contracts.c.declaration).where(contracts.c.digest == digest)
    ).scalar()
    return None if declaration is None else contract_of(declaration)


def load_all(conn: Connection) -> dict[bytes, Contract]:
    """Every contract that an effect may still be bound to, by digest."""
    rows = conn.execute(select(contracts.c.digest, contracts.c.declaration))
    return {row.digest: contract_of(row.declaration) for row in rows}
