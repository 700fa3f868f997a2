"""What a log's rows say, read without the code that reads them: versions without a gap, who is there."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from uuid import UUID

import psycopg

from landed.ids import AggregateKey
from landed.wire.codec import decode_events
from tests.integration.audit import audit

Rows = dict[bytes, list[tuple[int, UUID | None]]]
"""By packed key: version and event id of every event, in order."""

_ENTRIES = (
    "SELECT h.key, e.version, e.body FROM landed_log_entries AS e "
    "JOIN landed_log_heads AS h USING (number) WHERE e.kind = 1 ORDER BY e.position"
)


def of_sqlite(path: Path) -> Rows:
    """The rows of a file; see ``audit`` for what is checked on the way."""
    rows: Rows = defaultdict(list)
    for found in audit(path):
        event_id = None if found.event_id is None else UUID(bytes=found.event_id)
        rows[found.key].append((found.version, event_id))
    return rows


def of_postgres(conninfo: str) -> Rows:
    """The rows of a database.

    Raises:
        AssertionError: versions have a gap or a double, or disagree with the feed's order.
    """
    rows: Rows = defaultdict(list)
    newest: dict[bytes, int] = defaultdict(int)
    with psycopg.connect(conninfo) as connection:
        for key, version, body in connection.execute(_ENTRIES):
            assert version == newest[key] + 1
            newest[key] = version
            rows[key] += [(version, event.event_id) for event in decode_events(body)]
    return rows


def packed(told: dict[AggregateKey, list[tuple[int, UUID | None]]]) -> Rows:
    """What the log itself told, in the same form."""
    return {key.packed: events for key, events in told.items()}
