-- find.sql with the data of large records.
SELECT {clock}, pg_is_in_recovery(), {columns of r}
FROM (SELECT 1) one
LEFT JOIN {schema}.record r ON r.id = ANY ($1::bytea[])
