-- What by its column may be deleted, oldest first, after the place $1, $2, by a clock that is not believed beyond $3: at most $4
-- rows and, beyond the first of them, $5 bytes. One line always is returned: the time, whether a standby says so, how many rows
-- there were without the limit of bytes, and a record.
WITH clock AS MATERIALIZED (
  SELECT {clock} AS now_ms
),
due AS MATERIALIZED (
  SELECT r.reap_at, r.id, octet_length(r.data) AS bytes
  FROM {schema}.record r
  WHERE r.reap_at <= (SELECT least(c.now_ms, $3::bigint) FROM clock c)
    AND (r.reap_at, r.id) > ($1::bigint, $2::bytea)
  ORDER BY r.reap_at, r.id
  LIMIT $4::bigint
),
measured AS MATERIALIZED (
  SELECT d.reap_at, d.id,
         sum(d.bytes) OVER (ORDER BY d.reap_at, d.id ROWS UNBOUNDED PRECEDING) - d.bytes AS bytes_before
  FROM due d
)
SELECT c.now_ms, pg_is_in_recovery(), (SELECT count(*) FROM due), {columns of r}
FROM clock c
LEFT JOIN (measured m JOIN {schema}.record r ON r.id = m.id AND m.bytes_before < $5::bigint) ON true
ORDER BY m.reap_at, m.id
