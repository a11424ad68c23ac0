//! The statements, with their common parts and the schema's name filled in.
//!
//! Each is a file of its own, with its reasons. Each changes the table at most once and is a transaction by itself. None
//! uses what PostgreSQL-compatible distributed engines lack: no advisory locks, no triggers, no system columns.

use hapax_core::large::LARGE_BYTES_MIN;

/// The server's clock in milliseconds, rounded down: a stamp is never ahead of it.
pub(crate) const CLOCK: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The columns of a record, in the order of [`OwnedRow`](hapax_core::codec::OwnedRow).
const COLUMNS: [&str; 11] =
    ["id", "scheme", "space", "scope", "key", "version", "state", "stamped_at", "due_at", "reap_at", "data"];

/// As many, of the same types, with nothing in them.
const NO_COLUMNS: &str = "null::bytea, null::text, null::text, null::text, null::text, null::bytea, null::smallint, \
                          null::bigint, null::bigint, null::bigint, null::bytea";

/// All statements for one schema.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) insert: String,
    pub(crate) insert_one: String,
    pub(crate) insert_free: String,
    pub(crate) update: String,
    pub(crate) update_one: String,
    pub(crate) update_free: String,
    pub(crate) update_held: String,
    pub(crate) find: String,
    pub(crate) find_whole: String,
    pub(crate) between: String,
    pub(crate) scan_due: String,
    pub(crate) scan_all: String,
    pub(crate) expired: String,
    pub(crate) reap: String,
}

impl Statements {
    /// For a schema whose name has been checked.
    pub(crate) fn new(schema: &str) -> Self {
        let fill = |sql| fill(schema, sql);
        Self {
            insert: fill(include_str!("statements/insert.sql")),
            insert_one: fill(include_str!("statements/insert_one.sql")),
            insert_free: fill(include_str!("statements/insert_free.sql")),
            update: fill(include_str!("statements/update.sql")),
            update_one: fill(include_str!("statements/update_one.sql")),
            update_free: fill(include_str!("statements/update_free.sql")),
            update_held: fill(include_str!("statements/update_held.sql")),
            find: fill(include_str!("statements/find.sql")),
            find_whole: fill(include_str!("statements/find_whole.sql")),
            between: fill(include_str!("statements/between.sql")),
            scan_due: fill(include_str!("statements/scan_due.sql")),
            scan_all: fill(include_str!("statements/scan_all.sql")),
            expired: fill(include_str!("statements/expired.sql")),
            reap: fill(include_str!("statements/reap.sql")),
        }
    }
}

fn fill(schema: &str, sql: &str) -> String {
    let whole = code_of(sql)
        .replace("{guard}", &code_of(include_str!("statements/guard.sql")))
        .replace("{guarding}", &code_of(include_str!("statements/guarding.sql")))
        .replace("{applied and found}", &code_of(include_str!("statements/applied_and_found.sql")))
        .replace("{new records}", &code_of(include_str!("statements/new_records.sql")))
        .replace("{changes}", &code_of(include_str!("statements/changes.sql")))
        .replace("{slice}", &code_of(include_str!("statements/slice.sql")))
        .replace("{due records}", &code_of(include_str!("statements/due_records.sql")))
        .replace("{first of them}", "ORDER BY coalesce(r.due_at, -1), r.id LIMIT $8::bigint")
        .replace("{clock}", CLOCK)
        .replace("{no columns}", NO_COLUMNS)
        .replace("{columns of r}", &columns_of("r"))
        .replace("{columns of f}", &columns_of("f"))
        .replace("{small columns of r}", &small_columns_of("r"))
        .replace("{small columns of f}", &small_columns_of("f"));
    in_schema(schema, &whole)
}

/// Without the comments, which are for the files' readers.
fn code_of(sql: &str) -> String {
    sql.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

fn columns_of(row: &str) -> String {
    COLUMNS.map(|column| format!("{row}.{column}")).join(", ")
}

/// The same with nothing in place of large data, whose length the server knows without reading it.
fn small_columns_of(row: &str) -> String {
    let data = format!("CASE WHEN octet_length({row}.data) < {LARGE_BYTES_MIN} THEN {row}.data END AS data");
    columns_of(row).replace(&format!("{row}.data"), &data)
}

/// SQL with the schema's name in its places.
pub(crate) fn in_schema(schema: &str, sql: &str) -> String {
    sql.replace("{schema}", &format!("\"{schema}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_filled_in() {
        let statements = format!("{:?}", Statements::new("shop"));
        for left in [
            "{schema}", "{guard", "{no", "{clock}", "{columns", "{small", "{slice}", "{due", "{first", "{applied",
            "{new", "{changes", "--",
        ] {
            assert!(!statements.contains(left), "{left} in {statements}");
        }
        assert!(statements.contains(r#"\"shop\".record"#), "{statements}");
        assert_eq!(NO_COLUMNS.split(", ").count(), COLUMNS.len());
    }
}
