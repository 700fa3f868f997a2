"""Which paths a producer's fingerprints leave out, kept for as long as a receipt may name them (RC-8)."""

from __future__ import annotations

import json

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.deliveries.classify import form_name
from landed.intake.admission import Paths
from landed.records.session import is_postgres, transact
from landed.records.tables import forms
from landed.registry import Registry


def remember(engine: Engine, registry: Registry) -> dict[str, Paths]:
    """Write down the forms of today, and read those of all days."""
    declared = {
        form_name(producer.excluded_paths): producer.excluded_paths
        for producer in registry.producers.values()
        if producer.excluded_paths
    }

    def _work(conn: Connection) -> dict[str, Paths]:
        dialect = postgresql if is_postgres(conn.dialect) else sqlite
        if declared:
            conn.execute(
                dialect.insert(forms)
                .values(
                    [
                        {"name": name, "declaration": json.dumps(paths)}
                        for name, paths in sorted(declared.items())
                    ]
                )
                .on_conflict_do_nothing()
            )
        return {
            row.name: tuple(tuple(path) for path in json.loads(row.declaration))
            for row in conn.execute(select(forms))
        }

    return transact(engine, _work)
