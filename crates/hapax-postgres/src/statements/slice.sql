-- The end of a scan. At most $8 rows were examined, by their small columns; of those that may match ($4 states, all of
-- which are $5; $6 scope; $7 text), at most $9 rows and $10 bytes are returned. One line always is: the time, whether a
-- standby says so, rows examined, rows matched, where the examination ended, and the place and the record of a match.
matched AS MATERIALIZED (
  SELECT e.place, e.id, sum(e.bytes) OVER (ORDER BY e.place, e.id ROWS UNBOUNDED PRECEDING) - e.bytes AS bytes_before
  FROM examined e
  WHERE ($4::smallint[] IS NULL OR e.state = ANY ($4) OR e.state <> ALL ($5::smallint[]))
    AND ($6::text IS NULL OR e.scope = $6)
    AND ($7::text IS NULL OR position($7 IN e.key) > 0 OR position($7 IN e.scope) > 0)
  ORDER BY e.place, e.id
  LIMIT $9::bigint
)
SELECT c.now_ms, pg_is_in_recovery(), (SELECT count(*) FROM examined), (SELECT count(*) FROM matched),
       ended.place, ended.id, m.place, {columns of r}
FROM clock c
LEFT JOIN (SELECT e.place, e.id FROM examined e ORDER BY e.place DESC, e.id DESC LIMIT 1) ended ON true
LEFT JOIN (matched m JOIN {schema}.record r ON r.id = m.id AND m.bytes_before < $10::bigint) ON true
ORDER BY m.place, m.id
