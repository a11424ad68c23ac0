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
//! | `large.rs` | large records, read by few at a time and shared while in use |
//! | `recent.rs` | keys met lately, looked up on the caller's own thread |
//! | `checkpoint.rs` | moves the log into the file, beside the writer |
//! | `durable.rs` | at the start: what an earlier process may have left unsynced, put on the disk |
//! | `rows.rs` | the statements: rows to records and back |
//! | `notes.rs` | the journal of what people and probes decided |
//! | `schema.rs` | migrations, and whose file it is |
//! | `backup.rs`, `restore.rs` | a copy of a file in use, and a copy put back |
//! | `exposed.rs` | whether others can read the files |
//! | `failure.rs` | what SQLite said, in words and kinds a caller can act on |
//!
//! Two processes may use one file. A caller's own transaction can complete a record together with its data:
//! [`Sqlite::swap_in`].
//!
//! ```
//! # async fn example(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use hapax_core::engine::Engine;
//! use hapax_sqlite::Sqlite;
//!
//! let store = Sqlite::open(dir.join("hapax.db"))?;
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

mod backup;
mod checkpoint;
mod durable;
mod exposed;
mod failure;
mod large;
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
pub use exposed::exposed;
pub use hapax_core::clock::SystemClock;
pub use lookup::Measured;
pub use options::Options;
pub use restore::{Restore, Unplaced};
pub use store::Sqlite;
