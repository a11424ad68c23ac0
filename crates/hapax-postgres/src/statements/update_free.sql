-- update.sql that waits for nobody and takes what is free. What is not returned may also be held by another
-- transaction. Slower, because it takes hold of the records first.
WITH {guard},
held AS MATERIALIZED (
  SELECT g.now_ms, i.*, greatest(g.now_ms, r.stamped_at) AS at_ms
  FROM guard g
  CROSS JOIN unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bytea[])
             AS i (id, expect, version, state, due_in, reap_in, data)
  JOIN {schema}.record r ON r.id = i.id AND r.version = i.expect
  FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE {schema}.record r
SET version = h.version, state = h.state, stamped_at = h.at_ms,
    due_at = h.at_ms + h.due_in, reap_at = h.at_ms + h.reap_in, data = h.data
FROM held h
WHERE r.id = h.id AND r.version = h.expect
RETURNING h.now_ms, r.id, r.stamped_at
