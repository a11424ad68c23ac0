-- update.sql that waits for nobody and takes what is free. What is not returned may also be held by another
-- transaction. Slower, because it takes hold of the records first.
WITH {guard},
held AS MATERIALIZED (
  SELECT n.*, greatest(n.now_ms, r.stamped_at) AS at_ms
  FROM {changes}
  JOIN {schema}.record r ON r.id = n.id AND r.version = n.expect
  FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE {schema}.record r
SET version = h.version, state = h.state, stamped_at = h.at_ms,
    due_at = h.at_ms + h.due_in, reap_at = h.at_ms + h.reap_in, data = h.data
FROM held h
WHERE r.id = h.id AND r.version = h.expect
RETURNING h.now_ms, r.id, r.stamped_at
