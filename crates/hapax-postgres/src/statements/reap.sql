-- Deletes records ($1 ids, $2 versions) that are as they were when they were read and are due still, by a clock that is not
-- believed beyond $3. What another transaction holds stays, and nobody is waited for.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms
),
gone AS (
  DELETE FROM {schema}.record
  WHERE id IN (
    SELECT r.id
    FROM (SELECT unnest($1::bytea[]) AS id, unnest($2::bytea[]) AS version) e
    JOIN {schema}.record r ON r.id = e.id AND r.version = e.version
    WHERE r.reap_at <= (SELECT least(c.now_ms, $3::bigint) FROM clock c)
    FOR UPDATE OF r SKIP LOCKED
  )
  RETURNING 1
)
SELECT (SELECT c.now_ms FROM clock c), count(*) FROM gone
