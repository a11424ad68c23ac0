-- update.sql for one record, with a subquery in place of the guard.
UPDATE {schema}.record r
SET version = $4::bytea, state = $5::smallint,
    stamped_at = greatest(g.now_ms, r.stamped_at),
    due_at = greatest(g.now_ms, r.stamped_at) + $6::bigint,
    reap_at = greatest(g.now_ms, r.stamped_at) + $7::bigint,
    data = $8::bytea
FROM ({guarding} OFFSET 0) g
WHERE r.id = $2::bytea AND r.version = $3::bytea
RETURNING g.now_ms, r.id, r.stamped_at
