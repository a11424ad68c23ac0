//! The ledger itself: a file to which one line is added and synced for every execution.
//!
//! Written before anything is answered, so that no crash of anybody can hide an execution. The last line may be torn
//! after a crash of the ledger: it was not acknowledged to anyone, and it is dropped.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

/// One execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// 1 for the first; no gaps.
    pub sequence: u64,
    /// Unlike that of any other execution, of any ledger.
    pub id: String,
    /// The method.
    pub method: String,
    /// The target up to the `?`.
    pub path: String,
    /// What stands behind the `?`.
    pub query: Option<String>,
    /// The idempotency key, without the quotes of a structured field.
    pub key: Option<String>,
    /// The field `Idempotency-Attempt`.
    pub attempt: Option<String>,
    /// The field `Idempotency-Record`.
    pub record: Option<String>,
    /// The credential of the tenant: the value of the tenant header.
    pub tenant: Option<String>,
    /// SHA-256 of the body, in hexadecimal.
    pub body_sha256: String,
    /// When it came, in milliseconds since 1970.
    pub unix_ms: u64,
    /// How it was treated: the behaviour's name, as in [`Behaviour::parse`](super::Behaviour::parse).
    pub treated: String,
}

impl Entry {
    fn line(&self) -> String {
        let json = json!({
            "sequence": self.sequence, "id": self.id, "method": self.method, "path": self.path, "query": self.query,
            "key": self.key, "attempt": self.attempt, "record": self.record, "tenant": self.tenant, "body_sha256": self.body_sha256,
            "unix_ms": self.unix_ms, "treated": self.treated,
        });
        format!("{json}\n")
    }

    fn parse(line: &str) -> Option<Entry> {
        let json: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        Some(Entry {
            sequence: json["sequence"].as_u64()?,
            id: text("id")?,
            method: text("method")?,
            path: text("path")?,
            query: text("query"),
            key: text("key"),
            attempt: text("attempt"),
            record: text("record"),
            tenant: text("tenant"),
            body_sha256: text("body_sha256")?,
            unix_ms: json["unix_ms"].as_u64()?,
            treated: text("treated")?,
        })
    }
}

/// The open ledger.
#[derive(Debug)]
pub(super) struct Book {
    file: File,
    entries: Vec<Entry>,
}

impl Book {
    /// Opens the file, or makes it, and reads what is in it.
    pub(super) fn open(path: &Path) -> Book {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let entries: Vec<_> =
            text[..whole].lines().map(|line| Entry::parse(line).expect("a line of a ledger")).collect();
        let file = OpenOptions::new().create(true).append(true).open(path).expect("the ledger can be opened");
        file.set_len(whole as u64).expect("the ledger can be repaired");
        Book { file, entries }
    }

    /// Adds an entry, gives it its sequence, and returns when it is on the disk.
    pub(super) fn add(&mut self, mut entry: Entry) -> Entry {
        entry.sequence = self.entries.len() as u64 + 1;
        self.file.write_all(entry.line().as_bytes()).expect("the ledger can be written");
        self.file.sync_data().expect("the ledger can be synced");
        self.entries.push(entry.clone());
        entry
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, Entry};

    fn entry(key: &str) -> Entry {
        Entry {
            sequence: 0,
            id: "ex_1".to_owned(),
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: Some("a=\"\n\"".to_owned()),
            key: Some(key.to_owned()),
            attempt: None,
            record: None,
            tenant: None,
            body_sha256: String::new(),
            unix_ms: 1,
            treated: "echo".to_owned(),
        }
    }

    #[test]
    fn an_opened_ledger_knows_what_was_written_and_drops_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let mut book = Book::open(&path);
        let written = [book.add(entry("a")), book.add(entry("b"))];
        drop(book);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"sequence\":3,\"me");
        std::fs::write(&path, text).unwrap();
        let mut book = Book::open(&path);
        assert_eq!(book.entries(), written);
        assert_eq!(book.add(entry("c")).sequence, 3);
        assert_eq!(Book::open(&path).entries().len(), 3);
    }
}
