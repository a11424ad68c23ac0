//! The naive way on SQLite: one table, one transaction per write, one connection behind a mutex.
//!
//! As durable as ours (WAL, `synchronous=FULL`), with the same columns' worth of data, and without checksums.

use std::path::Path;
use std::sync::{Arc, Mutex};

use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::record::{Body, Outcome};
use rusqlite::{Connection, OptionalExtension, params};

use super::workload::{Subject, outcome};

const LEASE_MS: i64 = 30_000;
const RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

#[derive(Clone)]
pub(crate) struct NaiveSqlite {
    connection: Arc<Mutex<Connection>>,
    outcome: Arc<Outcome>,
}

impl NaiveSqlite {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).expect("a database");
        connection.pragma_update(None, "journal_mode", "WAL").expect("WAL");
        connection.pragma_update(None, "synchronous", "FULL").expect("FULL");
        connection
            .execute_batch(
                "CREATE TABLE keys (
                   scope TEXT, key TEXT, fingerprint BLOB, state TEXT, attempt BLOB, lease_until INTEGER,
                   expires_at INTEGER, status INTEGER, headers BLOB, body BLOB, PRIMARY KEY (scope, key)
                 ) WITHOUT ROWID;
                 CREATE INDEX keys_expiry ON keys (expires_at);",
            )
            .expect("a table");
        Self { connection: Arc::new(Mutex::new(connection)), outcome: outcome() }
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Connection) -> T + Send + 'static) -> T {
        let connection = Arc::clone(&self.connection);
        let work = move || work(&connection.lock().expect("nobody panicked"));
        tokio::task::spawn_blocking(work).await.expect("the statement")
    }
}

impl Subject for NaiveSqlite {
    type Held = [u8; 16];

    async fn claim(&self, at: &Address) -> [u8; 16] {
        let (scope, key) = (at.scope().as_str().to_owned(), at.key().as_str().to_owned());
        let attempt = tokens::random();
        self.run(move |connection| {
            let inserted = connection
                .prepare_cached(
                    "INSERT INTO keys (scope, key, fingerprint, state, attempt, lease_until)
                     VALUES (?1, ?2, ?3, 'running', ?4, unixepoch() * 1000 + ?5) ON CONFLICT DO NOTHING",
                )
                .expect("a statement")
                .execute(params![scope, key, [9_u8; 32], attempt, LEASE_MS])
                .expect("an insert");
            assert_eq!(inserted, 1);
        })
        .await;
        attempt
    }

    async fn complete(&self, at: &Address, held: [u8; 16]) {
        let (scope, key) = (at.scope().as_str().to_owned(), at.key().as_str().to_owned());
        let outcome = Arc::clone(&self.outcome);
        self.run(move |connection| {
            let headers: Vec<u8> = outcome
                .headers
                .iter()
                .flat_map(|(name, value)| [name.as_slice(), b": ", value, b"\n"].concat())
                .collect();
            let Body::Kept(body) = &outcome.body else { return };
            let updated = connection
                .prepare_cached(
                    "UPDATE keys SET state = 'completed', expires_at = unixepoch() * 1000 + ?4, status = ?5,
                     headers = ?6, body = ?7 WHERE scope = ?1 AND key = ?2 AND attempt = ?3",
                )
                .expect("a statement")
                .execute(params![scope, key, held, RETENTION_MS, outcome.status, headers, body])
                .expect("an update");
            assert_eq!(updated, 1);
        })
        .await;
    }

    async fn replay(&self, at: &Address) {
        let (scope, key) = (at.scope().as_str().to_owned(), at.key().as_str().to_owned());
        let found = self
            .run(move |connection| {
                connection
                    .prepare_cached("SELECT status, headers, body FROM keys WHERE scope = ?1 AND key = ?2")
                    .expect("a statement")
                    .query_row(params![scope, key], |row| {
                        Ok((row.get::<_, u16>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?))
                    })
                    .optional()
                    .expect("a select")
            })
            .await;
        assert!(found.is_some());
    }
}
