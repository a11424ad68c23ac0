-- By state first: however many records wait for their next attempt, whoever looks for lapsed leases, or counts what needs a
-- person, reads only those. An older release goes on beside this one, and sorts. Claims wait while the index is built, and
-- before that for as long as this waits for whoever writes: it gives up sooner than they do. The old index is dropped last:
-- that takes the one lock that a dump in progress holds up.
SET LOCAL lock_timeout = '3s';
CREATE INDEX record_due_by_state ON {schema}.record (state, coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5;
DROP INDEX {schema}.record_due;
ALTER INDEX {schema}.record_due_by_state RENAME TO record_due;
