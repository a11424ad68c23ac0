-- A slice of what is unfinished or due, in the order of due times; what has none comes first.
-- $1, $2: where the slice before ended. $3: the last due time; null means now. The rest is for slice.sql. Each state is a range
-- of the index that is read in order, and from the front only; states that no release writes are looked for as well.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms
),
range AS MATERIALIZED (
  SELECT coalesce($3::bigint, (SELECT c.now_ms FROM clock c)) AS due_max
),
examined AS MATERIALIZED (
  SELECT x.place, x.id, x.state, x.scope, x.key, x.bytes
  FROM (
    SELECT e.*
    FROM range g
    CROSS JOIN unnest(coalesce($4::smallint[], $5::smallint[])) s (state)
    CROSS JOIN LATERAL ({due records} AND r.state = s.state {first of them}) e
    UNION ALL
    SELECT e.* FROM range g CROSS JOIN LATERAL ({due records} AND r.state < 1 {first of them}) e
    UNION ALL
    SELECT e.* FROM range g CROSS JOIN LATERAL ({due records} AND r.state > 6 {first of them}) e
  ) x
  ORDER BY x.place, x.id
  LIMIT $8::bigint
),
{slice}
