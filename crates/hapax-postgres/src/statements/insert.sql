-- Writes records that are not there and returns the others as they stand. A record that another transaction commits
-- between this statement's snapshot and its write is neither written nor returned: look again with find.sql.
-- Records that are there are kept out of the INSERT, because ON CONFLICT would wait for whoever is changing them.
-- The arrays are in the order of ids, and so are the locks.
WITH {guard},
found AS MATERIALIZED (
  SELECT {columns of r} FROM {schema}.record r WHERE r.id = ANY ($2::bytea[])
),
applied AS (
  INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
  SELECT i.id, i.version, i.state, g.now_ms, g.now_ms + i.due_in, g.now_ms + i.reap_in,
         i.scheme, i.space, i.scope, i.key, i.data
  FROM guard g
  CROSS JOIN (
    SELECT unnest($2::bytea[]) AS id, unnest($3::bytea[]) AS version, unnest($4::smallint[]) AS state,
           unnest($5::bigint[]) AS due_in, unnest($6::bigint[]) AS reap_in, unnest($7::text[]) AS scheme,
           unnest($8::text[]) AS space, unnest($9::text[]) AS scope, unnest($10::text[]) AS key,
           unnest($11::bytea[]) AS data
  ) i
  WHERE i.id NOT IN (SELECT f.id FROM found f)
  ON CONFLICT (id) DO NOTHING
  RETURNING id, stamped_at
)
{applied and found}
