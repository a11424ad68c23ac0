//! The binary between a raw client and an upstream that keeps its own ledger, on either store.

use hapax_testkit::hapax::{Builder, Hapax};
use hapax_testkit::ledger::Ledger;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::raw_http::{Request, Response, request};

/// Where records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Sqlite,
    Postgres,
}

/// One node with its upstream.
pub(crate) struct Node {
    pub(crate) ledger: Ledger,
    pub(crate) hapax: Hapax,
    pub(crate) database: Option<Database>,
}

/// Starts a node as it is.
pub(crate) fn start(kept: Kept) -> Node {
    start_with(kept, |builder| builder)
}

/// Starts a node that a test has changed.
pub(crate) fn start_with(kept: Kept, change: impl FnOnce(Builder) -> Builder) -> Node {
    let ledger = Ledger::start();
    let database = (kept == Kept::Postgres).then(|| Server::shared().fresh_database());
    let hapax = change(builder(&ledger, database.as_ref())).start();
    Node { ledger, hapax, database }
}

/// A node in front of that upstream, on that database if there is one.
pub(crate) fn builder(ledger: &Ledger, database: Option<&Database>) -> Builder {
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&ledger.url());
    match database {
        Some(database) => builder.with_store(&database.url()),
        None => builder,
    }
}

/// A payment of alice's with that key.
pub(crate) fn pay(key: &str) -> Request {
    let body = r#"{"amount":1200,"currency":"EUR"}"#;
    unkeyed(body).header("Idempotency-Key", key)
}

/// The same without a key.
pub(crate) fn unkeyed(body: &str) -> Request {
    request("POST", "/payments")
        .header("Authorization", "Bearer alice-secret")
        .header("Content-Type", "application/json")
        .body(body)
}

impl Node {
    pub(crate) fn send(&self, request: &Request) -> Response {
        request.send(self.hapax.address())
    }
}

/// Status and problem code.
pub(crate) fn refused(response: &Response) -> (u16, String) {
    (response.status, response.problem().unwrap_or_default())
}

/// Declares each test once for SQLite and once for PostgreSQL.
macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(super::node::Kept::Sqlite) })*
        }
        mod postgres {
            $(#[test] fn $name() { hapax_testkit::needs_postgres!(); super::$name(super::node::Kept::Postgres) })*
        }
    };
}
pub(crate) use on_both_stores;
