//! Configuration files: any text is read or refused with a message; what is accepted is shown as a file that means the same.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use hapax_server::config::{Explained, Sources, explain, show};

pub(crate) const WORDS: &[&str] = &[
    "to = \"http://127.0.0.1:9000\"\n",
    "[server]\n",
    "[upstream]\n",
    "[store]\n",
    "[defaults]\n",
    "[[route]]\n",
    "[admin]\n",
    "[log]\n",
    "[cors]\n",
    "path = \"/pay\"\n",
    "path = \"/pay/{id}\"\n",
    "methods = [\"POST\"]\n",
    "scope = \"single\"\n",
    "retention = \"1d\"\n",
    "lease = \"30s\"\n",
    "probe = { get = \"/payments/{id}\", happened_if = \"status:200\" }\n",
    "origins = [\"*\"]\n",
    "trusted_peers = [\"10.0.0.0/8\"]\n",
    "labels = { order = \"/order_id\" }\n",
    "\"8MiB\"",
    "\"\"",
    "0",
    "-1",
    "1e9",
    "true",
    "[]",
    "{}",
    "=",
    "\"",
    "\u{1b}[31m",
    "18446744073709551616",
    "\"999999999999999d\"",
];

/// What the file says of a secret instead of the secret.
const HIDDEN: [&str; 2] = ["(hidden)", ":***@"];

/// Runs the target.
pub fn config(data: &[u8]) {
    FILE.with(|file| {
        let path = file.get_or_init(File::new).path.as_path();
        let first = read(path, data);
        match &first.config {
            Err(errors) => {
                let text = errors.to_string();
                let is_clean = |letter: char| !letter.is_control() || letter == '\n';
                assert!(
                    !text.trim().is_empty() && text.chars().all(is_clean),
                    "a message that a terminal obeys: {text:?}"
                );
            }
            Ok(config) => {
                let text = show(&first.settings, false);
                if HIDDEN.iter().any(|hidden| text.contains(hidden)) {
                    return;
                }
                let again = read(path, text.as_bytes());
                let again = again.config.unwrap_or_else(|errors| panic!("what is shown is refused: {errors}\n{text}"));
                assert_eq!(&again, config, "what is shown means something else:\n{text}");
            }
        }
    });
}

fn read(path: &Path, text: &[u8]) -> Explained {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    explain(&Sources { file: Some(path.to_owned()), ..Sources::default() })
}

struct File {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl File {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("no directory: {error}"));
        Self { path: dir.path().join("hapax.toml"), _dir: dir }
    }
}

thread_local! {
    static FILE: OnceCell<File> = const { OnceCell::new() };
}
