-- By state first: however many records wait for their next attempt, whoever looks for lapsed leases, or counts what needs a
-- person, reads only those. An older release goes on beside this one, and sorts.
DROP INDEX {schema}.record_due;
CREATE INDEX record_due ON {schema}.record (state, coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5;
