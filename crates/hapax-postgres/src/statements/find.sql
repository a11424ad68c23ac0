-- Records as they stand, with the time and whether a standby says so. Absent ones are not returned, but one line always
-- is. Large data is left out: see large.rs.
SELECT {clock}, pg_is_in_recovery(), {small columns of r}
FROM (SELECT 1) one
LEFT JOIN {schema}.record r ON r.id = ANY ($1::bytea[])
