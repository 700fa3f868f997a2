CREATE TABLE landed_meta (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)

CREATE TABLE landed_migrations (
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    applied_at BIGINT NOT NULL,
    PRIMARY KEY (number)
)

CREATE TABLE landed_receipts (
    receipt_id CHAR(32) NOT NULL,
    namespace TEXT NOT NULL,
    identity_digest BLOB NOT NULL,
    source TEXT,
    event_id TEXT,
    identity_rule TEXT NOT NULL,
    type TEXT NOT NULL,
    schema_version TEXT,
    subject TEXT,
    occurred_at BIGINT,
    signed_at BIGINT,
    received_at BIGINT NOT NULL,
    fingerprint_form TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    size_bytes BIGINT NOT NULL,
    content_type TEXT,
    auth_method TEXT NOT NULL,
    auth_key_id TEXT NOT NULL,
    auth_result TEXT NOT NULL,
    transport TEXT NOT NULL,
    transport_ref TEXT,
    disposition TEXT NOT NULL,
    disposition_reason TEXT,
    origin TEXT DEFAULT 'live' NOT NULL,
    sequence TEXT,
    settled_at BIGINT,
    settled_mark BIGINT,
    scrub_tier BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (receipt_id),
    CONSTRAINT landed_receipts_identity UNIQUE (identity_digest),
    CONSTRAINT landed_receipts_disposition CHECK (disposition IN ('accepted','ignored','quarantined','released','rejected'))
)

CREATE INDEX landed_receipts_to_scrub ON landed_receipts (namespace, scrub_tier, settled_at) WHERE settled_at IS NOT NULL AND scrub_tier < 2

CREATE INDEX landed_receipts_unsettled ON landed_receipts (received_at) WHERE settled_at IS NULL

CREATE TABLE landed_payloads (
    receipt_id CHAR(32) NOT NULL,
    body BLOB,
    headers TEXT DEFAULT '{}' NOT NULL,
    erased_at BIGINT,
    PRIMARY KEY (receipt_id)
)

CREATE TABLE landed_receipt_conflicts (
    conflict_id CHAR(32) NOT NULL,
    receipt_id CHAR(32) NOT NULL,
    fingerprint_form TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    body BLOB,
    auth_key_id TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (conflict_id),
    CONSTRAINT landed_conflicts_once UNIQUE (receipt_id, fingerprint)
)

CREATE TABLE landed_forms (
    name TEXT NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (name)
)

CREATE TABLE landed_rejections (
    namespace TEXT NOT NULL,
    reason TEXT NOT NULL,
    hour BIGINT NOT NULL,
    count BIGINT NOT NULL,
    sample TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, reason, hour)
)

CREATE TABLE landed_quarantine (
    receipt_id CHAR(32) NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    owner TEXT NOT NULL,
    opened_at BIGINT NOT NULL,
    payload BLOB,
    decision TEXT DEFAULT 'open' NOT NULL,
    decided_by TEXT,
    decided_at BIGINT,
    decision_reason TEXT,
    run_id CHAR(32),
    PRIMARY KEY (receipt_id),
    CONSTRAINT landed_quarantine_decision CHECK (decision IN ('open','released','rejected'))
)

CREATE INDEX landed_quarantine_open ON landed_quarantine (opened_at) WHERE decision = 'open'

CREATE TABLE landed_outbox (
    outbox_id CHAR(32) NOT NULL,
    kind TEXT NOT NULL,
    destination TEXT NOT NULL,
    message_id TEXT NOT NULL,
    cause_kind TEXT NOT NULL,
    cause_id CHAR(32),
    type TEXT NOT NULL,
    order_domain TEXT,
    order_key TEXT,
    order_seq BIGINT,
    headers TEXT DEFAULT '{}' NOT NULL,
    body BLOB,
    created_at BIGINT NOT NULL,
    origin TEXT DEFAULT 'live' NOT NULL,
    state TEXT DEFAULT 'queued' NOT NULL,
    tries BIGINT DEFAULT 0 NOT NULL,
    last_error TEXT,
    done_at BIGINT,
    proof TEXT,
    PRIMARY KEY (outbox_id),
    CONSTRAINT landed_outbox_message UNIQUE (destination, message_id),
    CONSTRAINT landed_outbox_kind CHECK (kind IN ('handle','event','settled','alert')),
    CONSTRAINT landed_outbox_state CHECK (state IN ('queued','done','parked','cancelled'))
)

CREATE INDEX landed_outbox_cause ON landed_outbox (cause_id)

CREATE INDEX landed_outbox_open ON landed_outbox (destination, order_key, order_seq) WHERE state IN ('queued','parked')

CREATE TABLE landed_effects (
    effect_id CHAR(32) NOT NULL,
    recipient TEXT NOT NULL,
    effect_type TEXT NOT NULL,
    effect_key TEXT,
    key_digest BLOB NOT NULL,
    payload BLOB,
    payload_form TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    idempotency_key CHAR(32) NOT NULL,
    contract_digest BLOB NOT NULL,
    order_domain TEXT,
    order_key TEXT,
    version BIGINT,
    order_policy TEXT,
    is_behind_head BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    certainty TEXT,
    attempt_no BIGINT DEFAULT 0 NOT NULL,
    doubt_from BIGINT,
    first_begun_at BIGINT,
    last_begun_at BIGINT,
    first_sight_at BIGINT,
    send_deadline BIGINT,
    resend_until BIGINT,
    not_after BIGINT,
    is_absence_final BOOLEAN NOT NULL,
    has_late_success BOOLEAN NOT NULL,
    is_contradicted BOOLEAN NOT NULL,
    held_by TEXT,
    held_reason TEXT,
    is_cancel_requested BOOLEAN NOT NULL,
    result BLOB,
    result_digest BLOB,
    recipient_ref TEXT,
    correlation TEXT DEFAULT '{}' NOT NULL,
    questions BIGINT DEFAULT 0 NOT NULL,
    budget_from BIGINT DEFAULT 0 NOT NULL,
    supersedes CHAR(32),
    superseded_by CHAR(32),
    origin TEXT DEFAULT 'live' NOT NULL,
    created_at BIGINT NOT NULL,
    settled_at BIGINT,
    settled_mark BIGINT,
    scrub_tier BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (effect_id),
    CONSTRAINT landed_effects_key UNIQUE (key_digest),
    CONSTRAINT landed_effects_state CHECK (state IN ('pending','sending','retry','accepted','unknown','parked','confirmed','refused','fenced','cancelled'))
)

CREATE INDEX landed_effects_deadline ON landed_effects (not_after) WHERE not_after IS NOT NULL AND state IN ('pending','retry','parked')

CREATE INDEX landed_effects_open_order ON landed_effects (order_domain, order_key, version) WHERE state NOT IN ('confirmed','refused','fenced','cancelled')

CREATE INDEX landed_effects_sending ON landed_effects (send_deadline) WHERE state = 'sending'

CREATE INDEX landed_effects_to_scrub ON landed_effects (recipient, scrub_tier, settled_at) WHERE settled_at IS NOT NULL AND scrub_tier < 2

CREATE INDEX landed_effects_unknown ON landed_effects (recipient, first_sight_at) WHERE state IN ('unknown','accepted')

CREATE TABLE landed_effect_causes (
    effect_id CHAR(32) NOT NULL,
    cause_kind TEXT NOT NULL,
    cause_id TEXT NOT NULL,
    handler TEXT,
    requested_at BIGINT NOT NULL,
    origin TEXT DEFAULT 'live' NOT NULL,
    PRIMARY KEY (effect_id, cause_kind, cause_id)
)

CREATE INDEX landed_effect_causes_cause ON landed_effect_causes (cause_kind, cause_id)

CREATE TABLE landed_attempts (
    effect_id CHAR(32) NOT NULL,
    attempt_no BIGINT NOT NULL,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT,
    worker TEXT NOT NULL,
    outcome TEXT,
    answer_code TEXT,
    answer_digest BLOB,
    error TEXT,
    late_outcome TEXT,
    late_at BIGINT,
    PRIMARY KEY (effect_id, attempt_no)
)

CREATE TABLE landed_reconciliations (
    reconciliation_id CHAR(32) NOT NULL,
    effect_id CHAR(32) NOT NULL,
    asked_at BIGINT NOT NULL,
    method TEXT NOT NULL,
    answer TEXT NOT NULL,
    finality TEXT DEFAULT 'none' NOT NULL,
    evidence_digest BLOB,
    evidence TEXT,
    decision TEXT NOT NULL,
    repeats BIGINT DEFAULT 1 NOT NULL,
    PRIMARY KEY (reconciliation_id)
)

CREATE INDEX landed_reconciliations_effect ON landed_reconciliations (effect_id, asked_at)

CREATE TABLE landed_contracts (
    digest BLOB NOT NULL,
    recipient TEXT NOT NULL,
    declaration BLOB NOT NULL,
    registered_at BIGINT NOT NULL,
    PRIMARY KEY (digest)
)

CREATE TABLE landed_order_heads (
    order_domain TEXT NOT NULL,
    order_key TEXT NOT NULL,
    last_seq BIGINT DEFAULT 0 NOT NULL,
    last_version BIGINT,
    last_effect_id CHAR(32),
    PRIMARY KEY (order_domain, order_key)
)

CREATE TABLE landed_order_versions (
    order_domain TEXT NOT NULL,
    order_key TEXT NOT NULL,
    version BIGINT NOT NULL,
    effect_id CHAR(32) NOT NULL,
    PRIMARY KEY (order_domain, order_key, version)
)

CREATE TABLE landed_schedule (
    work_id CHAR(32) NOT NULL,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject_id CHAR(32) NOT NULL,
    group_key TEXT,
    group_seq BIGINT,
    ready_at BIGINT,
    claims BIGINT DEFAULT 0 NOT NULL,
    lease_owner TEXT,
    lease_token CHAR(32),
    lease_until BIGINT,
    PRIMARY KEY (work_id),
    CONSTRAINT landed_schedule_subject UNIQUE (kind, subject_id)
)

CREATE INDEX landed_schedule_due ON landed_schedule (lane, ready_at)

CREATE INDEX landed_schedule_group ON landed_schedule (lane, group_key, group_seq)

CREATE TABLE landed_reviews (
    review_id CHAR(32) NOT NULL,
    kind TEXT NOT NULL,
    subject_kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    severity TEXT NOT NULL,
    owner TEXT NOT NULL,
    note TEXT NOT NULL,
    opened_at BIGINT NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    closed_by TEXT,
    closed_at BIGINT,
    closing_note TEXT,
    PRIMARY KEY (review_id)
)

CREATE UNIQUE INDEX landed_reviews_open ON landed_reviews (kind, subject_id) WHERE state = 'open'

CREATE TABLE landed_alerts (
    dedupe_key TEXT NOT NULL,
    severity TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (dedupe_key)
)

CREATE TABLE landed_actions (
    action_id CHAR(32) NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT NOT NULL,
    "before" TEXT NOT NULL,
    "after" TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (action_id)
)

CREATE TABLE landed_runs (
    run_id CHAR(32) NOT NULL,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    namespace TEXT NOT NULL,
    source TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    approved_by TEXT,
    "plan" TEXT NOT NULL,
    plan_digest BLOB NOT NULL,
    state TEXT NOT NULL,
    paused_because TEXT,
    events_max BIGINT,
    receipts_max BIGINT,
    effects_max BIGINT,
    quarantines_max BIGINT,
    rate_millitokens BIGINT,
    cursor BIGINT DEFAULT 0 NOT NULL,
    accepted BIGINT DEFAULT 0 NOT NULL,
    duplicates BIGINT DEFAULT 0 NOT NULL,
    ignored BIGINT DEFAULT 0 NOT NULL,
    quarantined BIGINT DEFAULT 0 NOT NULL,
    conflicts BIGINT DEFAULT 0 NOT NULL,
    rejected BIGINT DEFAULT 0 NOT NULL,
    new_effects BIGINT DEFAULT 0 NOT NULL,
    bucket_millitokens BIGINT DEFAULT 0 NOT NULL,
    bucket_at BIGINT,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (run_id),
    CONSTRAINT landed_runs_state CHECK (state IN ('draft','approved','running','paused','completed','aborted'))
)

CREATE TABLE landed_gap_reports (
    report_id CHAR(32) NOT NULL,
    run_id CHAR(32),
    namespace TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    phase TEXT NOT NULL,
    report TEXT NOT NULL,
    PRIMARY KEY (report_id)
)

CREATE TABLE landed_scrub_reports (
    report_id CHAR(32) NOT NULL,
    made_at BIGINT NOT NULL,
    policy_digest BLOB NOT NULL,
    policy TEXT NOT NULL,
    counts TEXT NOT NULL,
    ids_digest BLOB NOT NULL,
    PRIMARY KEY (report_id)
)

CREATE TABLE landed_ingest_clock (
    id INTEGER NOT NULL,
    ticked_us BIGINT DEFAULT 0 NOT NULL,
    beat_at BIGINT NOT NULL,
    PRIMARY KEY (id)
)

CREATE TABLE landed_cursors (
    name TEXT NOT NULL,
    position TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (name)
)

CREATE TABLE landed_stopped_lanes (
    lane TEXT NOT NULL,
    reason TEXT NOT NULL,
    stopped_by TEXT NOT NULL,
    stopped_at BIGINT NOT NULL,
    PRIMARY KEY (lane)
)

CREATE TRIGGER landed_quarantine_stands BEFORE UPDATE OF receipt_id, reason, owner, opened_at, payload, detail ON landed_quarantine
WHEN (NEW.receipt_id IS NOT OLD.receipt_id OR
    NEW.reason IS NOT OLD.reason OR
    NEW.owner IS NOT OLD.owner OR
    NEW.opened_at IS NOT OLD.opened_at OR
    (NEW.payload IS NOT OLD.payload AND NEW.payload IS NOT NULL) OR
    (NEW.detail IS NOT OLD.detail AND NEW.detail <> ''))
BEGIN SELECT RAISE(ABORT, 'landed_quarantine: what was recorded stands; a payload may only be erased'); END

CREATE TRIGGER landed_effects_stands BEFORE UPDATE OF effect_id, recipient, effect_type, key_digest, payload_form, fingerprint, idempotency_key, created_at, payload, effect_key ON landed_effects
WHEN (NEW.effect_id IS NOT OLD.effect_id OR
    NEW.recipient IS NOT OLD.recipient OR
    NEW.effect_type IS NOT OLD.effect_type OR
    NEW.key_digest IS NOT OLD.key_digest OR
    NEW.payload_form IS NOT OLD.payload_form OR
    NEW.fingerprint IS NOT OLD.fingerprint OR
    NEW.idempotency_key IS NOT OLD.idempotency_key OR
    NEW.created_at IS NOT OLD.created_at OR
    (NEW.payload IS NOT OLD.payload AND NEW.payload IS NOT NULL) OR
    (NEW.effect_key IS NOT OLD.effect_key AND NEW.effect_key IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'landed_effects: what was recorded stands; a payload may only be erased'); END

CREATE TRIGGER landed_quarantine_stays BEFORE DELETE ON landed_quarantine
BEGIN SELECT RAISE(ABORT, 'landed_quarantine: rows are never deleted'); END

CREATE TRIGGER landed_actions_stays BEFORE DELETE ON landed_actions
BEGIN SELECT RAISE(ABORT, 'landed_actions: rows are never deleted'); END

CREATE TRIGGER landed_actions_stands BEFORE UPDATE ON landed_actions
BEGIN SELECT RAISE(ABORT, 'landed_actions: what was recorded stands'); END
