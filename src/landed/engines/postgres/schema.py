"""Tables, numbers that are stored, and how a place in the feed is made of a transaction's id."""

from __future__ import annotations

from typing import Final

from landed.postgres.migrate import Step

PART: Final = "log"
"""Of the schema, for ``landed.postgres.migrate``."""

HALF: Final = 2**63
"""A 64-bit number without sign is stored with this taken off, so that SQL compares it rightly."""

ORDINAL_BITS: Final = 18
"""Of a position: where in its transaction a change stands. As many legs as fit into any request."""
LEGS_MAX: Final = 2**ORDINAL_BITS - 1
TURNS_MAX: Final = 2 ** (63 - ORDINAL_BITS) - 1
"""The other 45 bits: transaction id plus shift. A hundred years at ten thousand transactions/s."""
MARGIN: Final = 2**28
"""How far a new shift lies above every place that is known to be used. What a lost primary or a
backup's origin gave out beyond that knowledge is thus not given out again: 268 million transactions
of it."""

STEPS: Final = (
    Step(
        1,
        """
    -- Which log this is and where it lies. `cluster`, `made_as` and `timeline` tell a restored copy
    -- and a promoted standby; `shift` makes positions of transaction ids (see place.py).
    CREATE TABLE landed_log (
      only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
      log_id uuid NOT NULL,
      restore_epoch bigint NOT NULL,
      num_shards bigint NOT NULL,
      routing_rule text NOT NULL,
      cluster text NOT NULL,
      made_as bigint NOT NULL,
      timeline text NOT NULL,
      shift bigint NOT NULL
    );
    -- The log itself, one row a batch, trim or delete, in the order of the feed.
    --   number       the aggregate: the position of its first entry
    --   kind         0 deleted, 1 written, 3 trimmed
    --   flags        2 allow_recreate, 4 allow_continuation
    --   version      of the batch; of a trim the first version left; of a delete the last version
    --   event_seq    the aggregate's newest after this entry
    --   min_seq, max_seq   lowest and highest client_seq of the batch, shifted by -2^63
    --   row_check    CRC-32 of every other column
    CREATE TABLE landed_log_entries (
      position bigint PRIMARY KEY,
      number bigint NOT NULL,
      kind smallint NOT NULL,
      flags smallint NOT NULL,
      incarnation bigint NOT NULL,
      version bigint NOT NULL,
      event_seq bigint NOT NULL,
      event_count integer NOT NULL,
      server_ms bigint NOT NULL,
      min_seq bigint NOT NULL,
      max_seq bigint NOT NULL,
      size integer NOT NULL,
      row_check integer NOT NULL,
      client uuid NOT NULL,
      user_id uuid,
      body bytea
    );
    -- Reads walk along it; and it is the second lock: no version is ever there twice.
    CREATE UNIQUE INDEX landed_log_entries_version
      ON landed_log_entries (number, incarnation, version) WHERE kind = 1;
    -- Heads, by the packed key.
    --   life         1 live, 2 deleted
    --   flags        2 allow_recreate, 4 allow_continuation
    CREATE TABLE landed_log_heads (
      key bytea PRIMARY KEY,
      number bigint NOT NULL UNIQUE,
      life smallint NOT NULL,
      flags smallint NOT NULL,
      incarnation bigint NOT NULL,
      version bigint NOT NULL,
      event_seq bigint NOT NULL,
      floor bigint NOT NULL,
      last_ms bigint NOT NULL,
      row_check integer NOT NULL,
      last_client uuid NOT NULL,
      last_user uuid
    ) WITH (fillfactor = 80);
    -- Marks of every pair that ever wrote. Never deleted: no trim or delete frees a sequence.
    CREATE TABLE landed_log_marks (
      number bigint NOT NULL,
      client uuid NOT NULL,
      mark bigint NOT NULL,
      row_check integer NOT NULL,
      PRIMARY KEY (number, client)
    ) WITH (fillfactor = 80);
    -- Batches to be reclaimed: those of `incarnation` below version `below`.
    CREATE TABLE landed_log_dead (
      position bigint PRIMARY KEY,
      number bigint NOT NULL,
      incarnation bigint NOT NULL,
      below bigint NOT NULL
    );
    """,
    ),
)
