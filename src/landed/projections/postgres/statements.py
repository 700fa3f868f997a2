"""The statements of the projection. Each step is exactly one, in its own transaction.

One statement sees one snapshot and commits as a whole, so READ COMMITTED is enough (rule SW-69): a
look cannot miss an answer and yet see the cursor past it (SW-66), and no cursor moves without its
answers (SW-48). Rows are locked in one order everywhere: answers by event id and key, then views by
key; so replicas that fold one backlog wait for each other and never in a circle (SW-57, SW-68).
"""

from __future__ import annotations

from typing import Final

from landed.postgres.migrate import Step

PART: Final = "projection"

STEPS: Final = (
    Step(
        1,
        """
CREATE TABLE landed_projections (
    name text PRIMARY KEY,
    config jsonb NOT NULL
);

CREATE TABLE landed_folds (
    fold integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection text NOT NULL REFERENCES landed_projections,
    client_id uuid NOT NULL,
    log_id uuid NOT NULL,
    restore_epoch bigint NOT NULL,
    build integer NOT NULL,
    met_at timestamptz NOT NULL,
    UNIQUE (projection, client_id, log_id, restore_epoch, build)
);

CREATE TABLE landed_views (
    fold integer NOT NULL,
    org uuid NOT NULL,
    type uuid NOT NULL,
    id uuid NOT NULL,
    version bigint NOT NULL,
    client_seq numeric(20, 0) NOT NULL,
    client_seq_floor numeric(20, 0) NOT NULL,
    newest_ms numeric(20, 0) NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (fold, org, type, id)
);

CREATE TABLE landed_answers (
    fold integer NOT NULL,
    event_id uuid NOT NULL,
    org uuid NOT NULL,
    type uuid NOT NULL,
    id uuid NOT NULL,
    version bigint NOT NULL,
    is_exact boolean NOT NULL,
    fingerprint bytea,
    state bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (fold, event_id, org, type, id)
);

CREATE INDEX landed_answers_expiry ON landed_answers (expires_at);
""",
    ),
)
"""``landed_folds`` names what was folded from what: one log, one client id, one build. Another log,
a restored one or a rebuild is another fold, so nothing of the old one can be taken for the new."""

MEET: Final = """
WITH newest AS (
    SELECT coalesce(max(build), 1) AS build FROM landed_folds
    WHERE (projection, client_id, log_id, restore_epoch)
        = (%(projection)s, %(client_id)s, %(log_id)s, %(restore_epoch)s)
)
INSERT INTO landed_folds AS f
    (projection, client_id, log_id, restore_epoch, build, met_at)
SELECT %(projection)s, %(client_id)s, %(log_id)s, %(restore_epoch)s, build, now() FROM newest
ON CONFLICT (projection, client_id, log_id, restore_epoch, build) DO UPDATE SET met_at = now()
RETURNING fold
"""
"""Find the fold of a log, or begin one."""

REBUILD: Final = """
INSERT INTO landed_folds (projection, client_id, log_id, restore_epoch, build, met_at)
SELECT projection, client_id, log_id, restore_epoch, max(build) + 1, max(met_at)
FROM landed_folds WHERE projection = %(projection)s
GROUP BY projection, client_id, log_id, restore_epoch
"""
"""Begin every fold of a projection anew. Nothing is deleted under a replica that is at work."""

LOAD: Final = """
SELECT v.version, v.client_seq, v.client_seq_floor, v.newest_ms, v.state,
       a.version, a.is_exact, a.fingerprint, a.state
FROM unnest(%(orgs)s::uuid[], %(types)s::uuid[], %(ids)s::uuid[])
     WITH ORDINALITY AS k (org, type, id, place)
LEFT JOIN landed_views AS v
    ON v.fold = %(fold)s AND v.org = k.org AND v.type = k.type AND v.id = k.id
LEFT JOIN landed_answers AS a
    ON a.fold = %(fold)s AND a.event_id = %(event_id)s::uuid
    AND a.org = k.org AND a.type = k.type AND a.id = k.id AND a.expires_at > now()
ORDER BY k.place
"""
"""Cursor and answer from one snapshot (rule SW-66). A row without a view is an answer whose cursor
is 0: it is found again by folding (SW-70)."""

_STEP: Final = """
WITH step AS (
    SELECT * FROM unnest(
        %(orgs)s::uuid[], %(types)s::uuid[], %(ids)s::uuid[], %(bases)s::bigint[],
        %(versions)s::bigint[], %(client_seqs)s::numeric[], %(newest)s::numeric[],
        %(states)s::bytea[]
    ) AS s (org, type, id, base, version, client_seq, newest_ms, state)
), fit AS (
    SELECT s.* FROM step AS s WHERE """

_KEEP: Final = """
), kept AS (
    INSERT INTO landed_answers AS a
        (fold, event_id, org, type, id, version, is_exact, fingerprint, state, expires_at)
    SELECT %(fold)s, e.event_id, e.org, e.type, e.id, e.version, e.is_exact, e.fingerprint, e.state,
           now() + e.life_ms * interval '1 millisecond'
    FROM unnest(
        %(e_ids)s::uuid[], %(e_orgs)s::uuid[], %(e_types)s::uuid[], %(e_keys)s::uuid[],
        %(e_versions)s::bigint[], %(e_exact)s::boolean[], %(e_prints)s::bytea[],
        %(e_states)s::bytea[], %(e_lives)s::double precision[]
    ) AS e (event_id, org, type, id, version, is_exact, fingerprint, state, life_ms)
    WHERE """

_MOVE: Final = """
    ORDER BY e.event_id, e.org, e.type, e.id
    ON CONFLICT (fold, event_id, org, type, id) DO UPDATE SET
        expires_at = greatest(a.expires_at, excluded.expires_at),
        version = greatest(a.version, excluded.version),
        is_exact = CASE WHEN excluded.version > a.version THEN excluded.is_exact ELSE a.is_exact END,
        fingerprint =
            CASE WHEN excluded.version > a.version THEN excluded.fingerprint ELSE a.fingerprint END,
        state = CASE WHEN excluded.version > a.version THEN excluded.state ELSE a.state END
    RETURNING 1
), moved AS (
    INSERT INTO landed_views AS v
        (fold, org, type, id, version, client_seq, client_seq_floor, newest_ms, state)
    SELECT %(fold)s, org, type, id, version, client_seq, 0, newest_ms, state FROM fit
    ORDER BY org, type, id
    ON CONFLICT (fold, org, type, id) DO UPDATE SET
        version = excluded.version,
        client_seq = greatest(v.client_seq, excluded.client_seq),
        newest_ms = greatest(v.newest_ms, excluded.newest_ms),
        state = excluded.state
    WHERE """

_TAKEN: Final = """
)
SELECT EXISTS (SELECT FROM fit), (SELECT count(*) FROM kept)
"""
# Reading ``kept`` makes it run before ``moved``: answers are locked first, everywhere.

_VIEW: Final = """EXISTS (
        SELECT FROM landed_views AS v WHERE v.fold = %(fold)s
        AND v.org = s.org AND v.type = s.type AND v.id = s.id AND v.version """

ADVANCE: Final = (
    _STEP
    + "s.base = 0 OR "
    + _VIEW
    + ">= s.base)"
    + _KEEP
    + "EXISTS (SELECT FROM fit)"
    + _MOVE
    + "v.version < excluded.version AND v.version >= (SELECT max(base) FROM step)"
    + _TAKEN
)
"""Take a fold of one aggregate: answers and cursor, unless the cursor is below the fold's base
(rules SW-53, SW-61, SW-68). The cursor never goes back."""

RECORD: Final = (
    _STEP
    + "s.version = s.base + 1 AND (s.base = 0 OR "
    + _VIEW
    + "= s.base))"
    + _KEEP
    + "true"
    + _MOVE
    + "v.version = excluded.version - 1"
    + _TAKEN
)
"""Take our own write, all legs: answers in any case, each cursor by one and from its base only
(rules SW-52, SW-62, SW-67, SW-87)."""

RAISE_FLOOR: Final = """
INSERT INTO landed_views AS v
    (fold, org, type, id, version, client_seq, client_seq_floor, newest_ms, state)
VALUES (%(fold)s, %(org)s, %(type)s, %(id)s, 0, 0, %(client_seq)s, 0, '')
ON CONFLICT (fold, org, type, id) DO UPDATE SET
    client_seq_floor = greatest(v.client_seq_floor, excluded.client_seq_floor)
"""

SWEEP: Final = """
DELETE FROM landed_answers AS a USING (
    SELECT ctid FROM landed_answers WHERE expires_at <= now()
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS expired
WHERE a.ctid = expired.ctid
"""
"""Expired answers, never in a statement that keeps any (rule SW-72). Rows that are being renewed are
passed over."""

SWEEP_FOLDS: Final = """
WITH old AS (
    SELECT f.fold FROM landed_folds AS f WHERE EXISTS (
        SELECT FROM landed_folds AS n WHERE n.projection = f.projection
        AND n.fold <> f.fold AND n.met_at > f.met_at + interval '1 day')
), gone AS (
    DELETE FROM landed_views AS v USING (
        SELECT ctid FROM landed_views WHERE fold IN (SELECT fold FROM old) LIMIT %(limit)s
    ) AS few WHERE v.ctid = few.ctid
)
DELETE FROM landed_folds AS f WHERE f.fold IN (SELECT fold FROM old)
    AND NOT EXISTS (SELECT FROM landed_views AS v WHERE v.fold = f.fold)
"""
"""Folds that were followed by another one a day ago; every replica that runs renews its own."""
