"""Write the first migration's SQL from tables.py. Run by hand before a release, never after it.

.venv/bin/python tools/records_ddl.py
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from landed.records.tables import PREFIX, metadata

HOME = Path(__file__).parent.parent / "src/landed/records/migrations"

# Columns that stand once written. A payload may still be erased (design decision 27).
STANDING = {
    "quarantine": ["receipt_id", "reason", "owner", "opened_at"],
    "effects": [
        "effect_id",
        "recipient",
        "effect_type",
        "key_digest",
        "payload_form",
        "fingerprint",
        "idempotency_key",
        "created_at",
    ],
}
ERASABLE = {"quarantine": ["payload"], "effects": ["payload", "effect_key"]}
BLANKABLE = {"quarantine": ["detail"]}
"""Texts that may quote a payload, and so may be erased with it."""
KEPT = ("quarantine", "actions")
"""Rows that are never deleted; an action is never changed either."""

POSTGRES_EXTRAS = [
    (
        f"ALTER TABLE {PREFIX}schedule SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0,"
        " autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0,"
        " autovacuum_analyze_threshold = 5000, autovacuum_vacuum_cost_delay = 0)"
    ),
    f"ALTER TABLE {PREFIX}effects SET (fillfactor = 85)",
    f"ALTER TABLE {PREFIX}outbox SET (fillfactor = 85)",
]


def main() -> None:
    for name, dialect in (("sqlite", sqlite.dialect()), ("postgresql", postgresql.dialect())):
        parts = [*tables(dialect), *triggers(name)]
        if name == "postgresql":
            parts += POSTGRES_EXTRAS
        (HOME / f"0001_records.{name}.sql").write_text("\n\n".join(parts) + "\n")


def tables(dialect: Dialect) -> list[str]:
    parts = []
    for table in metadata.tables.values():
        parts.append(_tidy(str(CreateTable(table).compile(dialect=dialect))))
        parts += [
            _tidy(str(CreateIndex(index).compile(dialect=dialect)))
            for index in sorted(table.indexes, key=lambda index: str(index.name))
        ]
    return parts


def triggers(name: str) -> list[str]:
    parts = []
    for table, columns in STANDING.items():
        differs = [_differs(name, column) for column in columns] + [
            f"({_differs(name, column)} AND NEW.{column} IS NOT NULL)" for column in ERASABLE[table]
        ]
        differs += [
            f"({_differs(name, column)} AND NEW.{column} <> '')"
            for column in BLANKABLE.get(table, [])
        ]
        named = ", ".join([*columns, *ERASABLE[table], *BLANKABLE.get(table, [])])
        parts += _trigger(
            name,
            f"{PREFIX}{table}_stands",
            f"UPDATE OF {named} ON {PREFIX}{table}",
            " OR\n    ".join(differs),
            f"{PREFIX}{table}: what was recorded stands; a payload may only be erased",
        )
    for table in KEPT:
        parts += _trigger(
            name,
            f"{PREFIX}{table}_stays",
            f"DELETE ON {PREFIX}{table}",
            "",
            f"{PREFIX}{table}: rows are never deleted",
        )
    parts += _trigger(
        name,
        f"{PREFIX}actions_stands",
        f"UPDATE ON {PREFIX}actions",
        "",
        f"{PREFIX}actions: what was recorded stands",
    )
    return parts


def _differs(name: str, column: str) -> str:
    word = "IS NOT" if name == "sqlite" else "IS DISTINCT FROM"
    return f"NEW.{column} {word} OLD.{column}"


def _trigger(name: str, trigger: str, when: str, condition: str, message: str) -> list[str]:
    clause = f"\nWHEN ({condition})" if condition else ""
    if name == "sqlite":
        return [
            (
                f"CREATE TRIGGER {trigger} BEFORE {when}{clause}\n"
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
        ]
    return [
        (
            f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $$\n"
            f"BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation'; END\n"
            "$$"
        ),
        (
            f"CREATE TRIGGER {trigger} BEFORE {when}\nFOR EACH ROW{clause}\n"
            f"EXECUTE FUNCTION {trigger}()"
        ),
    ]


def _tidy(statement: str) -> str:
    lines = (line.rstrip().replace("\t", "    ") for line in statement.strip().splitlines())
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
