//! hapax records in PostgreSQL: for several hosts.
//!
//! Swaps of all tasks wait in one queue. A few connections take whatever is waiting and write it as one statement over
//! arrays, which is one transaction and one flush of the log: under load a statement serves hundreds of swaps, and a lonely
//! swap waits for nobody. Times are the server's.
//!
//! | file | job |
//! |---|---|
//! | `options.rs`, `encryption.rs` | what can be chosen |
//! | `tls.rs` | TLS with the authorities of the system (feature `rustls`) |
//! | `store.rs` | [`Postgres`], the [`Store`](hapax_core::store::Store) |
//! | `queue.rs` | what waits, and what is under way |
//! | `writer.rs`, `alone.rs` | the tasks that write: a batch is a statement; rows that others hold |
//! | `reader.rs`, `scan.rs`, `lookup.rs`, `reaper.rs` | the rest of the store |
//! | `transaction.rs`, `transaction_sqlx.rs` | swaps inside a caller's own transaction |
//! | `journal.rs` | what people and probes decided |
//! | `statements.rs`, `rows.rs` | the SQL; rows to records and back |
//! | `hosts.rs` | which host a connection leads to; one that is silent is passed over |
//! | `connections.rs`, `suitable.rs` | connections, and what is checked on each of them |
//! | `schema.rs` | migrations |
//! | `clock.rs` | the server's clock, watched |
//! | `failure.rs` | what PostgreSQL said, in words and kinds a caller can act on |
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hapax_core::engine::Engine;
//! use hapax_postgres::Postgres;
//!
//! let store = Postgres::open("postgres://app:secret@db.internal/app").await?;
//! // Attempts and versions are told apart by these: sixteen bytes of the operating system each time, never the same twice.
//! // With the crate `hapax`, use `hapax::tokens::random`.
//! fn random() -> [u8; 16] {
//!     let mut token = [0; 16];
//!     getrandom::fill(&mut token).expect("the operating system gives random bytes");
//!     token
//! }
//! let engine = Engine::new(store, random);
//! # let _ = engine;
//! # Ok(())
//! # }
//! ```

mod alone;
mod clock;
mod connections;
mod encryption;
mod failure;
mod hosts;
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
#[cfg(feature = "rustls")]
mod tls;
mod transaction;
#[cfg(feature = "sqlx")]
mod transaction_sqlx;
mod writer;

pub use encryption::Encryption;
pub use options::Options;
pub use store::Postgres;
