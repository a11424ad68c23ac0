-- A slice of everything, in the order of ids. The parameters are those of scan_due.sql; $1 and $3 are not looked at.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms, $1::bigint AS due_from, $3::bigint AS due_by
),
examined AS MATERIALIZED (
  SELECT 0::bigint AS place, r.id, r.state, r.scope, r.key, octet_length(r.data) AS bytes
  FROM {schema}.record r
  WHERE r.id > $2::bytea
  ORDER BY r.id
  LIMIT $8::bigint
),
{slice}
