//! The statements, with the schema's name filled in.
//!
//! Each changes the table at most once, takes its rows as arrays, and is one transaction by itself. None uses what
//! PostgreSQL-compatible distributed engines lack: no advisory locks, no triggers, no system columns.
//!
//! Every statement that writes begins with a `guard`: one row, computed before any row is touched. It reads the clock, raises
//! `synchronous_commit` where it is off, and sets how long to wait for a lock, all for this transaction only, so that it
//! holds behind a pooler and in a caller's transaction too.

/// The columns of a [`RawRow`](crate::rows::RawRow), in its order.
macro_rules! columns {
    ($row:literal) => {
        concat!(
            $row, ".id, ", $row, ".scheme, ", $row, ".space, ", $row, ".scope, ", $row, ".key, ", $row, ".version, ",
            $row, ".state, ", $row, ".stamped_at, ", $row, ".due_at, ", $row, ".reap_at, ", $row, ".data"
        )
    };
}

/// The server's clock in milliseconds, rounded down: a stamp is never ahead of it.
macro_rules! clock {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

/// `$1` is how long to wait for a lock, as a setting; null leaves it as it is.
macro_rules! guard {
    () => {
        concat!(
            "guard AS MATERIALIZED (
               SELECT ", clock!(), " AS now_ms,
                      CASE WHEN current_setting('synchronous_commit') = 'off'
                           THEN set_config('synchronous_commit', 'on', true) END AS durable,
                      CASE WHEN $1::text IS NOT NULL THEN set_config('lock_timeout', $1, true) END AS patience
             )"
        )
    };
}

/// A moment counted from a stamp, or the end of time.
macro_rules! after {
    ($stamp:literal, $in:literal) => {
        concat!($stamp, " + least(", $in, ", 9223372036854775807 - ", $stamp, ")")
    };
}

/// Writes rows that are not there and returns the others as they stand. A row that another transaction commits between
/// this statement's snapshot and its write is neither written nor returned: ask again with [`FIND`].
///
/// Rows that are there are kept out of the `INSERT`, because `ON CONFLICT` would wait for whoever is changing them.
const INSERT: &str = concat!(
    "WITH ", guard!(), ",
     seen AS MATERIALIZED (
       SELECT g.now_ms, i.id AS new_id, i.version AS new_version, i.state AS new_state, i.due_in, i.reap_in,
              i.scheme AS new_scheme, i.space AS new_space, i.scope AS new_scope, i.key AS new_key, i.data AS new_data,
              ", columns!("r"), "
       FROM guard g
       CROSS JOIN unnest($2::bytea[], $3::bytea[], $4::smallint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::bytea[])
                  AS i (id, version, state, due_in, reap_in, scheme, space, scope, key, data)
       LEFT JOIN {schema}.record r ON r.id = i.id
     ),
     applied AS (
       INSERT INTO {schema}.record (id, version, state, stamped_at, due_at, reap_at, scheme, space, scope, key, data)
       SELECT new_id, new_version, new_state, now_ms, ", after!("now_ms", "due_in"), ", ", after!("now_ms", "reap_in"), ",
              new_scheme, new_space, new_scope, new_key, new_data
       FROM seen WHERE id IS NULL ORDER BY new_id
       ON CONFLICT (id) DO NOTHING
       RETURNING id, stamped_at
     )
     SELECT a.stamped_at, a.id AS applied, null::bytea, null::text, null::text, null::text, null::text, null::bytea,
            null::smallint, null::bigint, null::bigint, null::bigint, null::bytea
     FROM applied a
     UNION ALL
     SELECT s.now_ms, null, ", columns!("s"), " FROM seen s WHERE s.id IS NOT NULL"
);

/// Changes rows that still have the expected version. What is not returned has another version, is gone, or, where locked
/// rows are skipped, is locked by another transaction.
macro_rules! update {
    ($locked:literal) => {
        concat!(
            "WITH ", guard!(), ",
             held AS MATERIALIZED (
               SELECT i.*, r.stamped_at AS was_ms
               FROM guard g
               CROSS JOIN unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::smallint[], $6::bigint[], $7::bigint[],
                                 $8::bytea[]) AS i (id, expect, version, state, due_in, reap_in, data)
               JOIN {schema}.record r ON r.id = i.id AND r.version = i.expect
               ORDER BY i.id
               FOR NO KEY UPDATE OF r ", $locked, "
             ),
             clock AS MATERIALIZED (SELECT ", clock!(), " AS now_ms FROM held LIMIT 1),
             next AS (SELECT h.*, greatest(c.now_ms, h.was_ms) AS at_ms FROM held h CROSS JOIN clock c)
             UPDATE {schema}.record r
             SET version = n.version, state = n.state, stamped_at = n.at_ms, due_at = ", after!("n.at_ms", "n.due_in"), ",
                 reap_at = ", after!("n.at_ms", "n.reap_in"), ", data = n.data
             FROM next n WHERE r.id = n.id AND r.version = n.expect
             RETURNING r.stamped_at, r.id"
        )
    };
}

/// Takes what is free, and waits for nobody.
const UPDATE_FREE: &str = update!("SKIP LOCKED");

/// Waits for whoever holds the row.
const UPDATE_HELD: &str = update!("");

/// Rows as they stand; absent ones are not returned, but the first line always is.
const FIND: &str = concat!(
    "SELECT ", clock!(), ", pg_is_in_recovery(), ", columns!("r"), "
     FROM (SELECT 1) one LEFT JOIN {schema}.record r ON r.id = ANY ($1::bytea[])"
);

/// Deletes what may be deleted by a clock that is not believed beyond `$2`, oldest first.
const REAP: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ", clock!(), " AS now_ms),
     gone AS (
       DELETE FROM {schema}.record WHERE id IN (
         SELECT r.id FROM {schema}.record r
         WHERE r.reap_at <= (SELECT least(now_ms, $2::bigint) FROM clock)
         ORDER BY r.reap_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED
       )
       RETURNING 1
     )
     SELECT (SELECT now_ms FROM clock), count(*) FROM gone"
);

/// One slice of a scan: at most `$8` rows are looked at, by their small columns; of those that may match, at most `$9` rows
/// and `$10` bytes are returned. The first line is always returned.
macro_rules! scan {
    ($place:literal, $from:literal, $order:literal) => {
        concat!(
            "WITH clock AS MATERIALIZED (SELECT ", clock!(), " AS now_ms),
             examined AS MATERIALIZED (
               SELECT ", $place, " AS place, r.id, r.state, r.scope, r.key, octet_length(r.data) AS bytes
               FROM {schema}.record r
               WHERE ", $from, "
               ORDER BY ", $order, " LIMIT $8::bigint
             ),
             matched AS MATERIALIZED (
               SELECT e.place, e.id, sum(e.bytes) OVER (ORDER BY e.place, e.id ROWS UNBOUNDED PRECEDING) - e.bytes AS before
               FROM examined e
               WHERE ($4::smallint[] IS NULL OR e.state = ANY ($4) OR e.state <> ALL ($5::smallint[]))
                 AND ($6::text IS NULL OR e.scope = $6)
                 AND ($7::text IS NULL OR position($7 IN e.key) > 0 OR position($7 IN e.scope) > 0)
               ORDER BY e.place, e.id LIMIT $9::bigint
             )
             SELECT c.now_ms, pg_is_in_recovery(), seen.count, seen.matched, ended.place, ended.id, m.place, ",
                    columns!("r"), "
             FROM clock c
             CROSS JOIN (SELECT (SELECT count(*) FROM examined), (SELECT count(*) FROM matched) AS matched) seen
             LEFT JOIN (SELECT place, id FROM examined ORDER BY place DESC, id DESC LIMIT 1) ended ON true
             LEFT JOIN (matched m JOIN {schema}.record r ON r.id = m.id AND m.before < $10::bigint) ON true
             ORDER BY m.place, m.id"
        )
    };
}

/// In the order of due times: `$1`, `$2` is where the slice before ended, `$3` the last due time; null means now.
const SCAN_DUE: &str = scan!(
    "r.due_at",
    "r.due_at IS NOT NULL AND (r.due_at, r.id) > ($1::bigint, $2::bytea)
     AND r.due_at <= coalesce($3::bigint, (SELECT now_ms FROM clock))",
    "r.due_at, r.id"
);

/// In the order of ids. Takes the same parameters; a due time is not looked at.
const SCAN_ALL: &str =
    scan!("0::bigint", "r.id > $2::bytea AND $1::bigint IS NOT NULL AND ($3::bigint IS NULL OR true)", "r.id");

/// All statements for one schema.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) insert: String,
    pub(crate) update_free: String,
    pub(crate) update_held: String,
    pub(crate) find: String,
    pub(crate) scan_due: String,
    pub(crate) scan_all: String,
    pub(crate) reap: String,
}

impl Statements {
    /// For a schema whose name has been checked.
    pub(crate) fn new(schema: &str) -> Self {
        let fill = |sql| in_schema(schema, sql);
        Self {
            insert: fill(INSERT),
            update_free: fill(UPDATE_FREE),
            update_held: fill(UPDATE_HELD),
            find: fill(FIND),
            scan_due: fill(SCAN_DUE),
            scan_all: fill(SCAN_ALL),
            reap: fill(REAP),
        }
    }
}

/// SQL with the schema's name in its places.
pub(crate) fn in_schema(schema: &str, sql: &str) -> String {
    sql.replace("{schema}", &format!("\"{schema}\""))
}
