-- update_one.sql for a record that another transaction holds: waits for it, and reads the clock after that.
WITH {guard},
held AS MATERIALIZED (
  SELECT r.stamped_at AS was_ms
  FROM guard g
  CROSS JOIN {schema}.record r
  WHERE r.id = $2::bytea AND r.version = $3::bytea
  FOR NO KEY UPDATE OF r
),
clock AS MATERIALIZED (
  SELECT {clock} AS now_ms, h.was_ms FROM held h
),
next AS (
  SELECT c.now_ms, greatest(c.now_ms, c.was_ms) AS at_ms FROM clock c
)
UPDATE {schema}.record r
SET version = $4::bytea, state = $5::smallint, stamped_at = n.at_ms,
    due_at = n.at_ms + $6::bigint, reap_at = n.at_ms + $7::bigint, data = $8::bytea
FROM next n
WHERE r.id = $2::bytea AND r.version = $3::bytea
RETURNING n.now_ms, r.id, r.stamped_at
