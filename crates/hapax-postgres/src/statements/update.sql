-- Changes records that still have the expected version; the stamp of a record never runs backwards. What is not
-- returned has another version or is gone. Waits for whoever holds a record.
-- The arrays are in the order of ids, and so are the locks.
WITH {guard}
UPDATE {schema}.record r
SET version = n.version, state = n.state,
    stamped_at = greatest(n.now_ms, r.stamped_at),
    due_at = greatest(n.now_ms, r.stamped_at) + n.due_in,
    reap_at = greatest(n.now_ms, r.stamped_at) + n.reap_in,
    data = n.data
FROM (
  SELECT g.now_ms, unnest($2::bytea[]) AS id, unnest($3::bytea[]) AS expect, unnest($4::bytea[]) AS version,
         unnest($5::smallint[]) AS state, unnest($6::bigint[]) AS due_in, unnest($7::bigint[]) AS reap_in,
         unnest($8::bytea[]) AS data
  FROM guard g
) n
WHERE r.id = n.id AND r.version = n.expect
RETURNING n.now_ms, r.id, r.stamped_at
