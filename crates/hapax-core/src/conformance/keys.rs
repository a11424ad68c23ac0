//! What is kept apart stays apart: keys, scopes, spaces and schemes, whatever characters they have.

use super::harness::Harness;
use super::rig::{Rig, assert_stored};
use super::samples::{address, address_of, running};
use crate::address::Address;
use crate::limits;
use crate::record::Record;
use crate::store::Scan;

/// Writes a record at each address. Each must be found at its own, alone, and on a page under the address as written.
async fn stay_apart<H: Harness>(harness: &H, addresses: &[Address]) {
    let rig = Rig::open(harness).await;
    let mut written = Vec::new();
    for at in addresses {
        let record = running();
        let stamped = rig.put(at, &record).await;
        written.push((at, record, stamped));
    }
    for (at, record, stamped) in &written {
        assert_stored(&rig.get(at).await, record, *stamped);
    }
    let found = rig.scan_all(&Scan { limit: 100, ..Scan::default() }).await;
    assert_eq!(found.len(), addresses.len(), "each address has one record");
    for (at, record, _) in &written {
        let entry = found.iter().find(|entry| entry.stored.record.version == record.version);
        assert_eq!(entry.map(|entry| &entry.address), Some(*at), "the address comes back as it was written");
    }
    // Changing one changes no other.
    let (at, record, _) = &written[0];
    rig.replace(at, record.version, &Record { attempt: 2, ..running() }).await;
    for (at, record, stamped) in &written[1..] {
        assert_stored(&rig.get(at).await, record, *stamped);
    }
}

async fn keys_stay_apart<H: Harness>(harness: &H, keys: &[&str]) {
    let addresses: Vec<_> = keys.iter().map(|key| address("alice", key)).collect();
    stay_apart(harness, &addresses).await;
}

async fn scopes_stay_apart<H: Harness>(harness: &H, scopes: &[&str]) {
    let addresses: Vec<_> = scopes.iter().map(|scope| address(scope, "k-1")).collect();
    stay_apart(harness, &addresses).await;
}

pub(super) async fn longest_parts<H: Harness>(harness: &H) {
    let key = |last: &str| "k".repeat(limits::KEY_CHARS_MAX - 1) + last;
    let scope = |last: &str| "🦀".repeat(limits::SCOPE_CHARS_MAX - 1) + last;
    let space = |last: &str| "s".repeat(limits::SPACE_CHARS_MAX - 1) + last;
    let scheme = |last: &str| "1".repeat(limits::ADDRESS_SCHEME_CHARS_MAX - 1) + last;
    // They differ in the last character only, so that a part cut short is noticed.
    let addresses = [
        address_of(&scheme("a"), &space("a"), &scope("a"), &key("a")),
        address_of(&scheme("b"), &space("a"), &scope("a"), &key("a")),
        address_of(&scheme("a"), &space("b"), &scope("a"), &key("a")),
        address_of(&scheme("a"), &space("a"), &scope("b"), &key("a")),
        address_of(&scheme("a"), &space("a"), &scope("a"), &key("b")),
    ];
    stay_apart(harness, &addresses).await;
}

pub(super) async fn quotes_and_backslashes<H: Harness>(harness: &H) {
    let keys = ["'", "''", "\"", "\"\"", "`", "\\", "\\\\", "\\'", "'\"", "$$", "$1", "?", "?1", ":name", "@name"];
    keys_stay_apart(harness, &keys).await;
}

pub(super) async fn escapes_that_look_like_nul<H: Harness>(harness: &H) {
    keys_stay_apart(harness, &["a", "a\\0", "a%00", "a\\u0000", "a\\x00", "a&#0;", "a\\000", "a\\0b", "a\\N"]).await;
}

pub(super) async fn sql_in_keys_and_scopes<H: Harness>(harness: &H) {
    let texts = [
        "'; DROP TABLE hapax_record; --",
        "' OR '1'='1",
        "\"; DELETE FROM hapax.record; --",
        "1; SELECT pg_sleep(10)",
        "x' UNION SELECT * FROM sqlite_schema --",
        "/* comment */",
        "{\"$ne\": null}",
        "key\\r\\nDEL *",
    ];
    let addresses: Vec<_> =
        texts.iter().flat_map(|text| [address("alice", text), address(text, "k-1"), address(text, text)]).collect();
    stay_apart(harness, &addresses).await;
}

pub(super) async fn glob_and_like_characters<H: Harness>(harness: &H) {
    keys_stay_apart(harness, &["%", "_", "a%", "a_", "ab", "abc", "*", "?", "[a]", "a*", "[^a]", "a", "{a,b}", "~"])
        .await;
}

pub(super) async fn spaces_count<H: Harness>(harness: &H) {
    keys_stay_apart(harness, &["a", " a", "a ", " a ", "a  ", " ", "  ", "a a", "a  a"]).await;
    scopes_stay_apart(harness, &["a", " a", "a ", "a\u{a0}", "\u{2003}a", " "]).await;
}

pub(super) async fn upper_and_lower_case_differ<H: Harness>(harness: &H) {
    keys_stay_apart(harness, &["key", "KEY", "Key", "kEY"]).await;
    scopes_stay_apart(harness, &["straße", "STRASSE", "strasse", "STRAßE", "ı", "i", "I", "İ"]).await;
}

pub(super) async fn unicode_in_scopes<H: Harness>(harness: &H) {
    let scopes = [
        "Ελλάδα",
        "日本",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "\u{202e}abc",
        "abc",
        "👩\u{200d}👩\u{200d}👧",
        "👩👩👧",
        "a\u{200b}",
        "a",
        "\u{feff}a",
        "\u{fffd}",
        "\u{10ffff}",
        "ﬁ",
        "fi",
    ];
    scopes_stay_apart(harness, &scopes).await;
}

pub(super) async fn composed_and_decomposed_scopes_differ<H: Harness>(harness: &H) {
    scopes_stay_apart(harness, &["caf\u{e9}", "cafe\u{301}", "cafe", "\u{212b}", "\u{c5}", "A\u{30a}"]).await;
}

pub(super) async fn the_border_between_scope_and_key_counts<H: Harness>(harness: &H) {
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a:b:c", "c"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("a/b", "c")];
    let addresses: Vec<_> = pairs.iter().map(|(scope, key)| address(scope, key)).collect();
    stay_apart(harness, &addresses).await;
}

pub(super) async fn spaces_scopes_and_schemes_keep_keys_apart<H: Harness>(harness: &H) {
    let addresses = [
        address_of("1", "http", "alice", "k-1"),
        address_of("1", "webhook", "alice", "k-1"),
        address_of("1", "http", "bob", "k-1"),
        address_of("2", "http", "alice", "k-1"),
        address_of("1", "http", "k-1", "alice"),
        address_of("http", "1", "alice", "k-1"),
        address_of("1", "HTTP", "alice", "k-1"),
    ];
    stay_apart(harness, &addresses).await;
}
