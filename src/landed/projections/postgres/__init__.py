"""A projection that replicas share, in PostgreSQL. Needs the extra ``postgres``.

Start with store.py (the port), then statements.py (what makes it safe: one statement for each step).
"""

from landed.postgres.dsn import require_driver

require_driver()

from landed.projections.postgres.store import PostgresProjection, rebuild  # noqa: E402  # after the sentence

__all__ = ["PostgresProjection", "rebuild"]
