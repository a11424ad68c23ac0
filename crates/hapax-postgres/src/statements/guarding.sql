-- One row, computed before any record is written: the time; and for this transaction only, commits that wait for the
-- disk and how long to wait for a lock. So both hold behind a pooler and in a caller's transaction too.
-- $1: how long to wait for a lock, as a setting; null leaves it as it is.
SELECT {clock} AS now_ms,
       CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', true) END AS durable,
       CASE WHEN $1::text IS NOT NULL THEN set_config('lock_timeout', $1, true) END AS patience
