-- The end of an insert: time, id and stamp of what was written; time and the record of what was found.
SELECT a.stamped_at, a.id, a.stamped_at, {no columns} FROM applied a
UNION ALL
SELECT g.now_ms, null, null, {columns of f} FROM guard g CROSS JOIN found f
