-- insert.sql that does not wait for whoever is changing a record: what is there is kept out of the INSERT. It still waits
-- for whoever is inserting one.
WITH {guard},
found AS MATERIALIZED (
  SELECT {small columns of r} FROM {schema}.record r WHERE r.id = ANY ($2::bytea[])
),
applied AS (
  INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
  SELECT i.id, i.version, i.state, g.now_ms, g.now_ms + i.due_in, g.now_ms + i.reap_in,
         i.scheme, i.space, i.scope, i.key, i.data
  FROM guard g
  CROSS JOIN {new records}
  WHERE i.id NOT IN (SELECT f.id FROM found f)
  ON CONFLICT (id) DO NOTHING
  RETURNING id, stamped_at
)
{applied and found}
