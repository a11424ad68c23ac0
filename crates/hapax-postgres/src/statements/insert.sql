-- Writes records that are not there and returns the others as they stand. A record that another transaction commits
-- between this statement's snapshot and its write is neither written nor returned: look again with find.sql.
-- Waits for whoever is inserting or changing one of them, although it would not write that one.
-- The arrays are in the order of ids, and so are the locks.
WITH {guard},
applied AS (
  INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
  SELECT i.id, i.version, i.state, g.now_ms, g.now_ms + i.due_in, g.now_ms + i.reap_in,
         i.scheme, i.space, i.scope, i.key, i.data
  FROM guard g
  CROSS JOIN {new records}
  ON CONFLICT (id) DO NOTHING
  RETURNING id, stamped_at
),
found AS (
  SELECT {small columns of r}
  FROM (SELECT unnest($2::bytea[]) AS id) i
  JOIN {schema}.record r ON r.id = i.id
  WHERE i.id NOT IN (SELECT a.id FROM applied a)
)
{applied and found}
