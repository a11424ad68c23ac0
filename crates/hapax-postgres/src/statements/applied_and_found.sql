-- The end of an insert: time, id and stamp of what was written; time and the record of what was found.
SELECT a.stamped_at, a.id, a.stamped_at, null::bytea, null::text, null::text, null::text, null::text, null::bytea,
       null::smallint, null::bigint, null::bigint, null::bigint, null::bytea
FROM applied a
UNION ALL
SELECT g.now_ms, null, null, {columns of f} FROM guard g CROSS JOIN found f
