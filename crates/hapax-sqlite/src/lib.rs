//! hapax records in an SQLite file: the embedded default, for one host.
//!
//! One thread writes. It takes whatever swaps are waiting, writes them in one transaction and answers after the commit:
//! under load one `fdatasync` serves hundreds of swaps, and a lonely swap waits for nobody. Two more threads read.
//! `synchronous=FULL` with a write-ahead log: what was acknowledged survives the loss of power.
//!
//! | file | job |
//! |---|---|
//! | `options.rs` | what can be chosen |
//! | `store.rs` | [`Sqlite`], the [`Store`](hapax_core::store::Store) |
//! | `writer.rs` | the thread that writes: group commit |
//! | `reader.rs`, `lookup.rs` | the threads that read |
//! | `recent.rs` | keys met lately, looked up on the caller's own thread |
//! | `checkpoint.rs` | moves the log into the file, beside the writer |
//! | `rows.rs` | the statements: rows to records and back |
//! | `notes.rs` | the journal of what people and probes decided |
//! | `schema.rs` | migrations, and whose file it is |
//! | `backup.rs`, `restore.rs` | a copy of a file in use, and a copy put back |
//! | `clock.rs` | the clocks of the host |
//! | `failure.rs` | what SQLite said, in words and kinds a caller can act on |
//!
//! Two processes may use one file. A caller's own transaction can complete a record together with its data:
//! [`Sqlite::swap_in`].
//!
//! ```
//! # async fn example(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use hapax_core::engine::Engine;
//! use hapax_sqlite::{Options, Sqlite};
//!
//! let store = Sqlite::open(&Options::new(dir.join("hapax.db")))?;
//! let engine = Engine::new(store, || /* sixteen random bytes */ [7; 16]);
//! # let _ = engine;
//! # Ok(())
//! # }
//! ```

mod backup;
mod checkpoint;
mod clock;
mod failure;
mod lookup;
mod notes;
mod options;
mod reader;
mod recent;
mod restore;
mod rows;
mod schema;
mod store;
mod whereabouts;
mod writer;

pub use backup::{Contents, back_up, inspect};
pub use clock::SystemClock;
pub use lookup::Measured;
pub use options::Options;
pub use restore::{Restore, Unplaced};
pub use store::Sqlite;
