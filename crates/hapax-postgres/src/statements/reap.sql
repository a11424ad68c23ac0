-- Deletes what may be deleted, oldest first: at most $1 records, by a clock that is not believed beyond $2. What a state or
-- stamp contradicts was altered, and stays: its key would come free.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms
),
gone AS (
  DELETE FROM {schema}.record
  WHERE id IN (
    SELECT r.id
    FROM {schema}.record r
    WHERE r.reap_at <= (SELECT least(c.now_ms, $2::bigint) FROM clock c)
      AND r.reap_at >= r.stamped_at
      AND r.state IN (1, 5, 6)
    ORDER BY r.reap_at
    LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED
  )
  RETURNING 1
)
SELECT (SELECT c.now_ms FROM clock c), count(*) FROM gone
