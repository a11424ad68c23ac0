-- By state first: however many records wait for their next attempt, whoever looks for lapsed leases, or counts what needs a
-- person, reads only those. The name stays, so that an older release, which asks for the index by name, goes on beside this one.
DROP INDEX hapax_due;
CREATE INDEX hapax_due ON hapax_record (state, coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5;
