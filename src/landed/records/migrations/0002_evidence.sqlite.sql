CREATE INDEX landed_receipts_evidence ON landed_receipts (namespace, type, received_at)
