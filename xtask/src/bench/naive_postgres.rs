//! The naive way on PostgreSQL: one statement per write, on 64 connections.
//!
//! As durable as ours, prepared statements, a pool, an index for what lapsed and one for what expired: what a careful
//! developer writes first.

use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::record::{Body, Outcome};
use tokio_postgres::NoTls;

use super::workload::{Subject, outcome};

/// Connections of the naive way.
const CONNECTIONS: usize = 64;

#[derive(Clone)]
pub(crate) struct NaivePostgres {
    pool: Pool,
    outcome: Arc<Outcome>,
}

impl NaivePostgres {
    pub(crate) async fn open(url: &str) -> Self {
        let config = url.parse().expect("an address of the database");
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, NoTls, recycling);
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build().expect("a pool");
        let client = pool.get().await.expect("a connection");
        client
            .batch_execute(
                "CREATE TABLE naive_keys (
                   scope text, key text, fingerprint bytea, state text, attempt bytea, lease_until timestamptz,
                   expires_at timestamptz, status int, headers bytea, body bytea, PRIMARY KEY (scope, key)
                 );
                 CREATE INDEX ON naive_keys (expires_at) WHERE expires_at IS NOT NULL;
                 CREATE INDEX ON naive_keys (lease_until) WHERE state = 'running';",
            )
            .await
            .expect("a table");
        drop(client);
        Self { pool, outcome: outcome() }
    }

    async fn execute(&self, sql: &str, values: &[&(dyn tokio_postgres::types::ToSql + Sync)]) -> u64 {
        let client = self.pool.get().await.expect("a connection");
        let statement = client.prepare_cached(sql).await.expect("a statement");
        client.execute(&statement, values).await.expect("a write")
    }
}

impl Subject for NaivePostgres {
    type Held = Vec<u8>;

    async fn claim(&self, at: &Address) -> Vec<u8> {
        let attempt = tokens::random().to_vec();
        let (scope, key, fingerprint) = (at.scope().as_str(), at.key().as_str(), [9_u8; 32].as_slice());
        let sql = "INSERT INTO naive_keys (scope, key, fingerprint, state, attempt, lease_until)
                   VALUES ($1, $2, $3, 'running', $4, clock_timestamp() + interval '30 s') ON CONFLICT DO NOTHING";
        assert_eq!(self.execute(sql, &[&scope, &key, &fingerprint, &attempt]).await, 1);
        attempt
    }

    async fn complete(&self, at: &Address, held: Vec<u8>) {
        let (scope, key, status) = (at.scope().as_str(), at.key().as_str(), i32::from(self.outcome.status));
        let headers: Vec<u8> = self
            .outcome
            .headers
            .iter()
            .flat_map(|(name, value)| [name, b": ".as_slice(), value, b"\n"].concat())
            .collect();
        let Body::Kept(body) = &self.outcome.body else { return };
        let sql = "UPDATE naive_keys SET state = 'completed', expires_at = clock_timestamp() + interval '1 day',
                   status = $4, headers = $5, body = $6 WHERE scope = $1 AND key = $2 AND attempt = $3";
        assert_eq!(self.execute(sql, &[&scope, &key, &held, &status, &headers, body]).await, 1);
    }

    async fn replay(&self, at: &Address) {
        let (scope, key) = (at.scope().as_str(), at.key().as_str());
        let client = self.pool.get().await.expect("a connection");
        let sql = "SELECT status, headers, body FROM naive_keys WHERE scope = $1 AND key = $2";
        let statement = client.prepare_cached(sql).await.expect("a statement");
        let row = client.query_one(&statement, &[&scope, &key]).await.expect("a record");
        assert_eq!(row.get::<_, i32>(0), i32::from(self.outcome.status));
    }
}
