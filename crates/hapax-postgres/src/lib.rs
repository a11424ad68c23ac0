//! hapax records in PostgreSQL: for several hosts.
//!
//! Swaps of all tasks wait in one queue. A few connections take whatever is waiting and write it as one statement over
//! arrays, which is one transaction and one flush of the log: under load a statement serves hundreds of swaps, and a lonely
//! swap waits for nobody. Times are the server's.
//!
//! | file | job |
//! |---|---|
//! | `options.rs`, `encryption.rs` | what can be chosen |
//! | `store.rs` | [`Postgres`], the [`Store`](hapax_core::store::Store) |
//! | `queue.rs` | what waits, and what is under way |
//! | `writer.rs`, `alone.rs` | the tasks that write: a batch is a statement; rows that others hold |
//! | `reader.rs`, `scan.rs`, `lookup.rs`, `reaper.rs` | the rest of the store |
//! | `transaction.rs`, `transaction_sqlx.rs` | swaps inside a caller's own transaction |
//! | `journal.rs` | what people and probes decided |
//! | `statements.rs`, `rows.rs` | the SQL; rows to records and back |
//! | `connections.rs`, `suitable.rs` | connections, and what is checked on each of them |
//! | `schema.rs` | migrations |
//! | `clock.rs` | the server's clock, watched |
//! | `failure.rs` | what PostgreSQL said, in words and kinds a caller can act on |
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hapax_core::engine::Engine;
//! use hapax_postgres::{Options, Postgres};
//!
//! let store = Postgres::open(&Options::new("postgres://app:secret@db.internal/app")).await?;
//! let engine = Engine::new(store, || /* sixteen random bytes */ [7; 16]);
//! # let _ = engine;
//! # Ok(())
//! # }
//! ```

mod alone;
mod clock;
mod connections;
mod encryption;
mod failure;
mod journal;
mod large;
mod lookup;
mod options;
mod queue;
mod reader;
mod reaper;
mod rows;
mod scan;
mod schema;
mod statements;
mod store;
mod suitable;
mod transaction;
#[cfg(feature = "sqlx")]
mod transaction_sqlx;
mod writer;

pub use encryption::Encryption;
pub use options::Options;
pub use store::Postgres;
