//! Which schema the database has, and how it gets the one this release writes.
//!
//! Migrations are numbered, embedded, and run in one transaction under an advisory lock, so that several nodes can start at
//! once. The table `meta` says two things: `schema`, the newest migration it has had, and `min_reader`, the oldest
//! release's schema that can still work with it. An old binary goes on beside a new one as long as it is at least
//! `min_reader`. A database that is up to date is only read, so its everyday user needs no right to create anything.

use std::time::Duration;

use hapax_core::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{IsolationLevel, Transaction};

use crate::connections::Connection;
use crate::failure;
use crate::statements::in_schema;

/// One step of the schema.
struct Migration {
    number: i64,
    /// The oldest schema whose code still works once this has run.
    min_reader: i64,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, min_reader: 1, sql: include_str!("migrations/0001_records.sql") },
    Migration { number: 2, min_reader: 1, sql: include_str!("migrations/0002_notes.sql") },
    Migration { number: 3, min_reader: 1, sql: include_str!("migrations/0003_due_by_state.sql") },
];

/// The schema this release reads and writes.
const SCHEMA: i64 = 3;

/// The oldest schema that this release can work with as it is. Whoever only looks does not migrate: that is for nodes to do,
/// and the user may lack the right.
const SCHEMA_MIN: i64 = 2;

/// "hapx": what nodes that start at once wait for each other by.
const MIGRATION_LOCK: i64 = 0x6861_7078;

/// A migration may have to wait for another node's, and to build an index.
const MIGRATION_TIME_MAX: Duration = Duration::from_secs(600);

/// Makes the schema ready and returns the name of the store.
pub(crate) async fn prepare(connection: &mut Connection, schema: &str, existing: bool) -> Result<String, StoreError> {
    let limit = connection.limit();
    let client = connection.client().ok_or_else(|| failure::stopped("open"))?;
    let migrated = async {
        // Only a migration may take long.
        let begun = async {
            let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
            let tx = begun.map_err(failed)?;
            let known = read(&tx, schema).await?;
            Ok::<_, StoreError>((tx, known))
        };
        let (tx, known) = timeout(limit, begun).await.map_err(|_| failure::unanswered_read("open"))??;
        let name = migrate(&tx, schema, existing, known).await?;
        tx.commit().await.map_err(failed)?;
        Ok(name)
    };
    // Only started again by an open, which starts from what it finds.
    let name = timeout(MIGRATION_TIME_MAX, migrated).await.map_err(|_| failure::unanswered_read("migrate"))??;
    connection.settled();
    Ok(name)
}

async fn migrate(
    tx: &Transaction<'_>,
    schema: &str,
    existing: bool,
    mut known: Option<Known>,
) -> Result<String, StoreError> {
    if known.is_none() && existing {
        let message = format!(
            "the schema {schema} holds no store; name the database that `hapax proxy` uses, or make one there first \
             (`Postgres::migrate`, or a node that may create it)"
        );
        return Err(failure::unsuitable("open", message));
    }
    if let Some(known) = known.as_ref().filter(|known| existing && known.schema < SCHEMA_MIN) {
        let message = format!(
            "the database has schema {}, of an older release; start a node of this release on it first, which migrates \
             it, or run `Postgres::migrate`",
            known.schema
        );
        return Err(failure::unsuitable("open", message));
    }
    if !existing && !known.as_ref().is_some_and(Known::is_current) {
        known = {
            wait_for_others(tx).await?;
            // What another node did meanwhile counts.
            let known = read(tx, schema).await?;
            bring_up_to_date(tx, schema, known).await?;
            read(tx, schema).await?
        };
    }
    let known = known.ok_or_else(|| failure::unsuitable("migrate", "the schema is gone; open the store again"))?;
    known.check()?;
    Ok(known.store_name)
}

/// What the table `meta` says.
struct Known {
    schema: i64,
    min_reader: i64,
    store_name: String,
}

impl Known {
    fn is_current(&self) -> bool {
        self.schema >= SCHEMA
    }

    fn check(&self) -> Result<(), StoreError> {
        let Self { schema, min_reader, .. } = self;
        if *min_reader > SCHEMA {
            return Err(failure::unsuitable(
                "migrate",
                format!(
                    "the database has schema {schema} and needs a release that knows {min_reader}; this one knows \
                     {SCHEMA}: upgrade it"
                ),
            ));
        }
        Ok(())
    }
}

/// `None`: there is no table yet. Asked as a query: a look-up by name may not know yet what another node just did.
async fn read(tx: &Transaction<'_>, schema: &str) -> Result<Option<Known>, StoreError> {
    let exists = "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta'";
    if count(tx, exists, schema).await? == 0 {
        return Ok(None);
    }
    let rows =
        tx.query_typed(&in_schema(schema, "SELECT name, value FROM {schema}.meta"), &[]).await.map_err(failed)?;
    let value = |name: &str| {
        rows.iter()
            .find(|row| row.try_get::<_, &str>(0).is_ok_and(|found| found == name))
            .and_then(|row| row.try_get(1).ok())
    };
    let number = |name: &str| value(name).and_then(|value: &str| value.parse().ok());
    match (number("schema"), number("min_reader"), value("store")) {
        (Some(schema), Some(min_reader), Some(name)) => {
            Ok(Some(Known { schema, min_reader, store_name: name.to_owned() }))
        }
        _ => Err(failure::unsuitable(
            "migrate",
            format!("the table {schema}.meta is not hapax's or was altered; use another schema, or restore it"),
        )),
    }
}

async fn wait_for_others(tx: &Transaction<'_>) -> Result<(), StoreError> {
    let limit = crate::connections::setting_of(MIGRATION_TIME_MAX);
    let patience = format!("SET LOCAL statement_timeout = '{limit}'; SET LOCAL lock_timeout = '{limit}'");
    tx.batch_execute(&patience).await.map_err(failed)?;
    tx.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&MIGRATION_LOCK, Type::INT8)]).await.map_err(failed)?;
    Ok(())
}

async fn bring_up_to_date(tx: &Transaction<'_>, schema: &str, known: Option<Known>) -> Result<(), StoreError> {
    let number = known.as_ref().map_or(0, |known| known.schema);
    if let Some(known) = known {
        known.check()?;
    } else {
        create(tx, schema).await?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > number) {
        let Migration { number, min_reader, sql } = migration;
        let note = format!(
            "UPDATE {{schema}}.meta SET value = '{number}' WHERE name = 'schema';
             UPDATE {{schema}}.meta SET value = '{min_reader}' WHERE name = 'min_reader'"
        );
        tx.batch_execute(&in_schema(schema, sql)).await.map_err(failure::of_migration)?;
        hapax_core::failpoint!(async "migration");
        tx.batch_execute(&in_schema(schema, &note)).await.map_err(failed)?;
    }
    Ok(())
}

/// The schema may have been made for us by somebody with more rights.
async fn create(tx: &Transaction<'_>, schema: &str) -> Result<(), StoreError> {
    let exists = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    if count(tx, exists, schema).await? == 0 {
        tx.batch_execute(&in_schema(schema, "CREATE SCHEMA {schema}")).await.map_err(failed)?;
    }
    let meta = "CREATE TABLE {schema}.meta (name text PRIMARY KEY, value text NOT NULL);
                INSERT INTO {schema}.meta (name, value)
                VALUES ('schema', '0'), ('min_reader', '0'), ('store', gen_random_uuid()::text)";
    tx.batch_execute(&in_schema(schema, meta)).await.map_err(failed)
}

async fn count(tx: &Transaction<'_>, sql: &str, name: &str) -> Result<i64, StoreError> {
    let rows = tx.query_typed(sql, &[(&name, Type::TEXT)]).await.map_err(failed)?;
    Ok(rows.first().map_or(0, |row| row.try_get(0).unwrap_or(0)))
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    failure::of_read("migrate", error)
}
