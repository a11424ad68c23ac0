-- A slice of what is unfinished or due, in the order of due times; what has none comes first.
-- $1, $2: where the slice before ended. $3: the last due time; null means now. The rest is for slice.sql.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms
),
examined AS MATERIALIZED (
  SELECT coalesce(r.due_at, -1) AS place, r.id, r.state, r.scope, r.key, octet_length(r.data) AS bytes
  FROM {schema}.record r
  WHERE (r.due_at IS NOT NULL OR r.state < 5)
    AND (coalesce(r.due_at, -1), r.id) > ($1::bigint, $2::bytea)
    AND coalesce(r.due_at, -1) <= coalesce($3::bigint, (SELECT c.now_ms FROM clock c))
  ORDER BY coalesce(r.due_at, -1), r.id
  LIMIT $8::bigint
),
{slice}
