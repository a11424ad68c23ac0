-- insert.sql for one record, which is worth a statement of its own: a lonely swap is as quick as if there were no
-- batches. A subquery in place of the guard, and as few steps as can be: each costs more to set up than to run. OFFSET 0
-- keeps it a row of its own, computed once. The time beside a record that was found is read when it was.
WITH applied AS (
  INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
  SELECT $2::bytea, $3::bytea, $4::smallint, g.now_ms, g.now_ms + $5::bigint, g.now_ms + $6::bigint,
         $7::text, $8::text, $9::text, $10::text, $11::bytea
  FROM ({guarding} OFFSET 0) g
  ON CONFLICT (id) DO NOTHING
  RETURNING id, stamped_at
)
SELECT a.stamped_at, a.id, a.stamped_at, {no columns} FROM applied a
UNION ALL
SELECT {clock}, null, null, {small columns of f}
FROM {schema}.record f
WHERE f.id = $2::bytea AND NOT EXISTS (SELECT 1 FROM applied)
