-- Records whose ids lie between two, with the time and whether a standby says so. One line always is returned.
SELECT {clock}, pg_is_in_recovery(), {columns of r}
FROM (SELECT 1) one
LEFT JOIN LATERAL (
  SELECT * FROM {schema}.record WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3
) r ON true
