-- insert.sql for one record, which is worth a statement of its own: a lonely swap is as quick as if there were no
-- batches.
WITH {guard},
applied AS (
  INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
  SELECT $2::bytea, $3::bytea, $4::smallint, g.now_ms, g.now_ms + $5::bigint, g.now_ms + $6::bigint,
         $7::text, $8::text, $9::text, $10::text, $11::bytea
  FROM guard g
  ON CONFLICT (id) DO NOTHING
  RETURNING id, stamped_at
),
found AS (
  SELECT {columns of r}
  FROM {schema}.record r
  WHERE r.id = $2::bytea AND NOT EXISTS (SELECT 1 FROM applied)
)
{applied and found}
