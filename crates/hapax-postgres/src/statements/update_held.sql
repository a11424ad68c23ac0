-- update.sql for a record that another transaction holds: waits for it, and reads the clock after that.
WITH {guard},
held AS MATERIALIZED (
  SELECT n.*, r.stamped_at AS was_ms
  FROM {changes}
  JOIN {schema}.record r ON r.id = n.id AND r.version = n.expect
  FOR NO KEY UPDATE OF r
),
clock AS MATERIALIZED (
  SELECT {clock} AS free_ms FROM held LIMIT 1
),
next AS (
  SELECT h.*, c.free_ms, greatest(c.free_ms, h.was_ms) AS at_ms FROM held h CROSS JOIN clock c
)
UPDATE {schema}.record r
SET version = x.version, state = x.state, stamped_at = x.at_ms,
    due_at = x.at_ms + x.due_in, reap_at = x.at_ms + x.reap_in, data = x.data
FROM next x
WHERE r.id = x.id AND r.version = x.expect
RETURNING x.free_ms, r.id, r.stamped_at
