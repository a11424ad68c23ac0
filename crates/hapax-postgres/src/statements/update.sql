-- Changes records that still have the expected version; the stamp of a record never runs backwards. What is not
-- returned has another version or is gone. Waits for whoever holds a record.
-- The arrays are in the order of ids, and so are the locks.
WITH {guard}
UPDATE {schema}.record r
SET version = n.version, state = n.state,
    stamped_at = greatest(n.now_ms, r.stamped_at),
    due_at = greatest(n.now_ms, r.stamped_at) + n.due_in,
    reap_at = greatest(n.now_ms, r.stamped_at) + n.reap_in,
    data = n.data
FROM {changes}
WHERE r.id = n.id AND r.version = n.expect
RETURNING n.now_ms, r.id, r.stamped_at
