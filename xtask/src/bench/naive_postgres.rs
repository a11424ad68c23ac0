//! The naive way on PostgreSQL: one statement per write, on 64 connections.
//!
//! As durable as ours, a pool, an index for what lapsed and one for what expired. In two ways: with statements that are parsed
//! and planned each time, in one round trip (`pgbench -M extended`; its default, the simple protocol, is slower still), and with
//! prepared ones, which is what a careful developer writes.

use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod};
use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::record::{Body, Outcome};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};

use super::workload::{Subject, outcome};

/// A value with its type: with it a statement needs no preparation.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections of the naive way.
const CONNECTIONS: usize = 64;

#[derive(Clone)]
pub(crate) struct NaivePostgres {
    pool: Pool,
    prepares: bool,
    statements: Arc<Statements>,
    outcome: Arc<Outcome>,
}

struct Statements {
    claim: String,
    complete: String,
    replay: String,
}

impl Statements {
    fn on(table: &str) -> Self {
        let claim = "INSERT INTO {table} (scope, key, fingerprint, state, attempt, lease_until)
                     VALUES ($1, $2, $3, 'running', $4, clock_timestamp() + interval '30 s') ON CONFLICT DO NOTHING";
        let complete = "UPDATE {table} SET state = 'completed', expires_at = clock_timestamp() + interval '1 day',
                        status = $4, headers = $5, body = $6 WHERE scope = $1 AND key = $2 AND attempt = $3";
        let replay = "SELECT status, headers, body FROM {table} WHERE scope = $1 AND key = $2";
        let [claim, complete, replay] = [claim, complete, replay].map(|sql| sql.replace("{table}", table));
        Self { claim, complete, replay }
    }
}

impl NaivePostgres {
    /// With a table of its own. `prepares`: every connection prepares a statement once.
    pub(crate) async fn open(url: &str, prepares: bool) -> Self {
        let table = if prepares { "prepared_keys" } else { "unprepared_keys" };
        let config = url.parse().expect("an address of the database");
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, NoTls, recycling);
        let pool = Pool::builder(manager).max_size(CONNECTIONS).queue_mode(QueueMode::Lifo).build().expect("a pool");
        let client = pool.get().await.expect("a connection");
        let tables = "CREATE TABLE {table} (
                        scope text, key text, fingerprint bytea, state text, attempt bytea, lease_until timestamptz,
                        expires_at timestamptz, status int, headers bytea, body bytea, PRIMARY KEY (scope, key)
                      );
                      CREATE INDEX ON {table} (expires_at) WHERE expires_at IS NOT NULL;
                      CREATE INDEX ON {table} (lease_until) WHERE state = 'running';";
        client.batch_execute(&tables.replace("{table}", table)).await.expect("a table");
        drop(client);
        Self { pool, prepares, statements: Arc::new(Statements::on(table)), outcome: outcome() }
    }

    async fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> u64 {
        let client = self.pool.get().await.expect("a connection");
        if !self.prepares {
            return client.execute_typed(sql, parameters).await.expect("a write");
        }
        let statement = client.prepare_cached(sql).await.expect("a statement");
        client.execute(&statement, &values(parameters)).await.expect("a write")
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Vec<Row> {
        let client = self.pool.get().await.expect("a connection");
        if !self.prepares {
            return client.query_typed(sql, parameters).await.expect("an answer");
        }
        let statement = client.prepare_cached(sql).await.expect("a statement");
        client.query(&statement, &values(parameters)).await.expect("an answer")
    }
}

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|(value, _)| *value).collect()
}

impl Subject for NaivePostgres {
    type Held = Vec<u8>;

    async fn claim(&self, at: &Address) -> Vec<u8> {
        let attempt = tokens::random().to_vec();
        let (scope, key, fingerprint) = (at.scope().as_str(), at.key().as_str(), [9_u8; 32].as_slice());
        let parameters: [Parameter<'_>; 4] =
            [(&scope, Type::TEXT), (&key, Type::TEXT), (&fingerprint, Type::BYTEA), (&attempt, Type::BYTEA)];
        assert_eq!(self.execute(&self.statements.claim, &parameters).await, 1);
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
        let parameters: [Parameter<'_>; 6] = [
            (&scope, Type::TEXT),
            (&key, Type::TEXT),
            (&held, Type::BYTEA),
            (&status, Type::INT4),
            (&headers, Type::BYTEA),
            (body, Type::BYTEA),
        ];
        assert_eq!(self.execute(&self.statements.complete, &parameters).await, 1);
    }

    async fn replay(&self, at: &Address) {
        let (scope, key) = (at.scope().as_str(), at.key().as_str());
        let rows = self.query(&self.statements.replay, &[(&scope, Type::TEXT), (&key, Type::TEXT)]).await;
        let status: Option<i32> = rows.first().map(|row| row.get(0));
        assert_eq!(status, Some(i32::from(self.outcome.status)));
    }
}
