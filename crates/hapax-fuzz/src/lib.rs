//! What a stranger can send, made up and mutated. Each target takes any bytes and panics where a rule is broken.
//!
//! | target | what it drives | what must hold |
//! |---|---|---|
//! | `http1` | the framing of HTTP/1, in pieces | what passes is read by an independent parser in exactly one way |
//! | `http2` | the listener over a socket, with requests that no client library would send | what arrives is one well-formed HTTP/1.1 request |
//! | `labels` | labels and JSON pointers | a label is the text that stands in the document, digits included |
//! | `paths` | routes, readings of paths, method overrides | no spelling of a protected path is less protected |
//! | `config` | configuration files | no panic; what is accepted is shown as a file that means the same |
//!
//! Two drivers: [`generate`], a seeded generator that needs nothing else and runs for a moment with the tests, and
//! libFuzzer (`fuzz/`, `cargo xtask fuzz`), which is guided by coverage. Both begin with the inputs in `corpus/`.

#![allow(clippy::panic, reason = "a target panics where a rule is broken, and where it cannot be run")]

mod config;
mod generate;
mod http1;
mod http2;
mod http2_frames;
mod input;
mod labels;
mod paths;

use std::path::PathBuf;

pub use config::config;
pub use generate::{Generator, generate};
pub use http1::http1;
pub use http2::http2;
pub use labels::labels;
pub use paths::paths;

/// A function that panics where a rule is broken.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Words that its inputs are made of.
    pub words: &'static [&'static str],
}

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target { name: "http1", run: http1, words: http1::WORDS },
    Target { name: "http2", run: http2, words: http2::WORDS },
    Target { name: "labels", run: labels, words: labels::WORDS },
    Target { name: "paths", run: paths, words: paths::WORDS },
    Target { name: "config", run: config, words: config::WORDS },
];

impl Target {
    /// The target of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// The directory of its corpus.
    #[must_use]
    pub fn corpus_dir(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }

    /// The inputs of its corpus, by name.
    ///
    /// # Panics
    ///
    /// If the corpus cannot be read.
    #[must_use]
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let dir = self.corpus_dir();
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut inputs: Vec<(String, Vec<u8>)> = entries
            .map(|entry| entry.unwrap_or_else(|error| panic!("{}: {error}", dir.display())))
            .map(|entry| {
                let bytes = std::fs::read(entry.path()).unwrap_or_else(|error| panic!("{entry:?}: {error}"));
                (entry.file_name().to_string_lossy().into_owned(), bytes)
            })
            .collect();
        inputs.sort();
        inputs
    }
}
