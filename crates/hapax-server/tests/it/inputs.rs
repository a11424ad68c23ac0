//! Bad and odd keys and bodies: inputs 1 to 30 and 57 to 69 of the list of bad inputs, over real sockets against the binary.
//!
//! Each refusal is asserted word by word, and after it the connection is in step or closed. Framing has its own tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;

use crate::node::{self, Kept, Node, refused, unkeyed};
use hapax_testkit::raw_http::{Conn, Request, Response, request};

const BODY: &str = r#"{"amount":1200,"currency":"EUR"}"#;

const EMPTY: &str = "the field is empty; send a new random key, such as a UUID";
const SEVERAL: &str = "the field came more than once with different values; send one key";
const COMMA: &str = "a bare key with a comma could be two keys; put it in quotes, or send one key";
const QUOTES: &str =
    "the quotes are not balanced, or an escape is not one of \\\" and \\\\; send \"key\" or the bare key";
const AFTER_QUOTES: &str =
    "what follows the closing quote is no parameter such as ;x=1, whose name is lower-case; send \"key\" alone";
const NOT_ASCII: &str = "the key has a character that is not printable ASCII; use letters, digits and hyphens";
const NOT_A_STRING: &str = "the value is not a string; send \"key\" in quotes, or a bare key";
const NOT_QUOTED: &str = "this route asks for a structured string; put the key in double quotes";
const REUSED: &str = "the key was used for another request (method, host, path, query, content type or body differ); \
                      send a new key with this one";
const INCOMPLETE: &str = "the body ended before it was complete; nothing was run; send the request again";

fn start() -> Node {
    node::start(Kept::Sqlite)
}

fn start_with(config: &str) -> Node {
    node::start_with(Kept::Sqlite, |builder| builder.with_config(config))
}

/// A payment of alice's with that field, its bytes exactly as given.
fn pay(key: &[u8]) -> Vec<u8> {
    let head = "POST /payments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-secret\r\n";
    let rest = format!("\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
    [head.as_bytes(), b"Idempotency-Key:", key, rest.as_bytes()].concat()
}

fn detail(response: &Response) -> String {
    response.json()["detail"].as_str().expect("a refusal has a detail").to_owned()
}

/// Asserts all that every refusal has.
#[track_caller]
fn assert_problem(response: &Response, status: u16, code: &str, cause: &str) {
    assert_eq!((refused(response), detail(response)), ((status, code.to_owned()), cause.to_owned()));
    assert_eq!(response.json()["status"], status);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert!(!response.is_replay());
}

/// Asserts that the request was refused, that the connection is in step, and that nothing but the proof of it went on.
#[track_caller]
fn assert_refused_in_step(node: &Node, bytes: &[u8], code: &str, cause: &str) {
    let before = node.ledger.all().len();
    let mut conn = Conn::open(node.hapax.address());
    conn.write(bytes);
    let response = conn.read_response().expect("a refusal");
    assert_problem(&response, 400, code, cause);
    assert_eq!(conn.expect_usable("/after").status, 200);
    let paths: Vec<_> = node.ledger.all().into_iter().skip(before).map(|entry| entry.path).collect();
    assert_eq!(paths, ["/after"]);
}

#[track_caller]
fn assert_malformed(node: &Node, key: &[u8], cause: &str) {
    assert_refused_in_step(node, &pay(key), "key-malformed", cause);
}

/// Asserts that the request was refused by the listener, which closes the connection, and that nothing went on.
#[track_caller]
fn assert_refused_and_closed(node: &Node, bytes: &[u8], status: u16, code: &str, cause: &str) {
    let before = node.ledger.all().len();
    let mut conn = Conn::open(node.hapax.address());
    // The refusal may come before the last byte is taken.
    let _ = conn.try_write(bytes);
    let response = conn.read_response().expect("a refusal");
    assert_problem(&response, status, code, cause);
    assert_eq!(response.header("connection"), Some("close"));
    conn.expect_closed();
    assert_eq!(node.ledger.all().len(), before);
}

/// Asserts that these are spellings of one key: the first runs, the others are replays of it, on one connection.
#[track_caller]
fn assert_one_key(node: &Node, spellings: &[&str]) {
    let before = node.ledger.all().len();
    let mut conn = Conn::open(node.hapax.address());
    conn.write(&pay(spellings[0].as_bytes()));
    let first = conn.read_response().expect("an answer");
    assert_eq!((first.status, first.is_replay()), (201, false), "{:?}: {}", spellings[0], first.text());
    for spelling in spellings {
        conn.write(&pay(spelling.as_bytes()));
        let retry = conn.read_response().expect("an answer");
        assert_eq!((retry.status, retry.is_replay(), &retry.body), (201, true, &first.body), "{spelling:?}");
    }
    assert_eq!(node.ledger.all().len(), before + 1, "{spellings:?}");
    let forwarded = node.ledger.last();
    assert_eq!(forwarded.all("idempotency-key"), [spellings[0].trim()], "forwarded as it came");
}

// Keys.

#[test]
fn input_01_a_missing_key_is_refused() {
    let node = start();
    let cause = "this request changes something and has no `idempotency-key`; \
                 send a new random key with it, such as a UUID";
    assert_refused_in_step(&node, &unkeyed(BODY).bytes(), "key-missing", cause);
    assert_refused_in_step(&node, &unkeyed(BODY).chunked().bytes(), "key-missing", cause);
    let large = "x".repeat(200 * 1024);
    assert_refused_in_step(&node, &unkeyed(&large).bytes(), "key-missing", cause);
}

#[test]
fn input_01_a_missing_key_before_a_huge_body_is_refused_and_the_rest_is_never_a_request() {
    let node = start();
    let mut conn = Conn::open(node.hapax.address());
    let smuggled = "POST /smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let body = smuggled.repeat(8 * 1024 * 1024 / smuggled.len());
    let _ = conn.try_write(&unkeyed(&body).bytes());
    match conn.read_response() {
        Ok(response) => assert_eq!(refused(&response), (400, "key-missing".into())),
        Err(error) => panic!("the refusal was lost: {error}"),
    }
    conn.expect_closed();
    assert!(node.ledger.all().is_empty());
}

#[test]
fn input_02_an_empty_key_is_refused() {
    let node = start();
    for key in ["", " \"\"", " \"\";a=1"] {
        assert_malformed(&node, key.as_bytes(), EMPTY);
    }
}

#[test]
fn input_03_a_key_of_spaces_is_refused() {
    let node = start();
    for key in [" ", "     ", "\t", " \t "] {
        assert_malformed(&node, key.as_bytes(), EMPTY);
    }
}

#[test]
fn input_03_a_quoted_key_of_spaces_is_a_key() {
    assert_one_key(&start(), &["\"  \""]);
}

#[test]
fn input_04_the_same_key_on_two_lines_is_one_key() {
    let node = start();
    let twice = || pay(b" k\r\nIdempotency-Key: k");
    let mut conn = Conn::open(node.hapax.address());
    conn.write(&twice());
    assert_eq!(conn.read_response().unwrap().status, 201);
    for again in [twice(), pay(b" k"), pay(b" k\r\nIdempotency-Key: \"k\"")] {
        conn.write(&again);
        assert!(conn.read_response().unwrap().is_replay());
    }
    assert_eq!(node.ledger.all().len(), 1);
}

#[test]
fn input_05_two_different_keys_are_refused() {
    let node = start();
    for second in ["b", "A", "\"b\"", "\"a \""] {
        assert_malformed(&node, format!(" a\r\nIdempotency-Key: {second}").as_bytes(), SEVERAL);
    }
    assert_malformed(&node, b" a\r\nIdempotency-Key:", EMPTY);
}

#[test]
fn input_06_a_list_of_keys_is_refused() {
    let node = start();
    for key in ["a, b", "a,b", ",", "a,"] {
        assert_malformed(&node, key.as_bytes(), COMMA);
    }
    assert_malformed(&node, b"\"a\", \"b\"", SEVERAL);
    assert_malformed(&node, b"(\"a\" \"b\")", NOT_A_STRING);
}

#[test]
fn input_06_a_comma_in_quotes_is_part_of_the_key() {
    assert_one_key(&start(), &["\"a,b\""]);
}

#[test]
fn input_07_an_unquoted_key_is_the_quoted_one() {
    let node = start();
    assert_one_key(&node, &["8e03978e-40d5-43dd-bc93-6894a57f9324", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\""]);
    assert_one_key(&node, &["\"quoted-first\"", "quoted-first", "  quoted-first  "]);
}

#[test]
fn input_07_an_unquoted_key_is_refused_where_the_syntax_is_strict() {
    let node = start_with("[keys]\nsyntax = \"strict\"\n");
    for key in ["k", "8e03978e-40d5-43dd-bc93-6894a57f9324", "a, b"] {
        assert_malformed(&node, key.as_bytes(), NOT_QUOTED);
    }
    assert_one_key(&node, &["\"k\""]);
}

#[test]
fn input_08_unbalanced_quotes_are_refused() {
    let node = start();
    for key in ["\"a", "\"", "a\"", "a\"b", "\"a\" \"b\"", "\"a\\\""] {
        assert_malformed(&node, key.as_bytes(), QUOTES);
    }
    assert_malformed(&node, b"\"a\"b", AFTER_QUOTES);
}

#[test]
fn input_09_an_escaped_quote_is_part_of_the_key() {
    let node = start();
    assert_one_key(&node, &["\"a\\\"b\""]);
    assert_one_key(&node, &["\"a\\\\b\"", "a\\b"]);
    assert_malformed(&node, b"\"a\\nb\"", QUOTES);
}

#[test]
fn input_10_a_key_of_256_characters_is_refused_and_one_of_255_is_not() {
    let node = start();
    let cause = |chars: usize| {
        format!("the key has {chars} characters; at most 255 are accepted; send a shorter one, such as a UUID")
    };
    assert_malformed(&node, "k".repeat(256).as_bytes(), &cause(256));
    assert_malformed(&node, format!("\"{}\"", "k".repeat(256)).as_bytes(), &cause(256));
    assert_malformed(&node, "k".repeat(20_000).as_bytes(), &cause(20_000));
    assert_one_key(&node, &[&"k".repeat(255), &format!("\"{}\"", "k".repeat(255))]);
    // Quotes and escapes are not counted: this is one of 255.
    assert_one_key(&node, &[&format!("\"{}\"", "\\\"".repeat(255))]);
}

#[test]
fn input_11_a_key_of_64_kb_is_refused_with_the_whole_head() {
    let node = start();
    let bytes = pay("k".repeat(65_536).as_bytes());
    assert_refused_and_closed(&node, &bytes, 431, "head-too-large", "Send fewer or shorter header fields.");
}

#[test]
fn input_12_a_control_character_in_the_key_is_refused() {
    let node = start();
    let cause = "A header field holds a control character. Remove it.";
    for key in [b"a\0b".as_slice(), b"\0", b"a\x1bb", b"a\x7fb", b"a\x01"] {
        assert_refused_and_closed(&node, &pay(key), 400, "bad-framing", cause);
    }
}

#[test]
fn input_13_a_line_break_in_the_key_by_http2_never_becomes_a_request() {
    let node = start();
    for key in ["a\r\nX-Injected: 1", "a\nb", "a\rb", "a\0b"] {
        let mut conn = Conn::open(node.hapax.address());
        conn.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        conn.write(&frame(SETTINGS, 0, 0, &[]));
        conn.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &header_block(key)));
        assert_eq!(first_about_a_stream(&mut conn), (GOAWAY, 0), "{key:?}");
        conn.expect_closed();
    }
    assert!(node.ledger.all().is_empty());
    assert_one_key(&node, &["and-the-server-lives"]);
}

#[test]
fn input_13_a_bad_key_by_http2_is_refused_and_the_connection_goes_on() {
    let node = start();
    let keys: [(&[u8], &str); 4] = [(b"a\tb", NOT_ASCII), (b"", EMPTY), (b"\xff", NOT_ASCII), (b"a,b", COMMA)];
    let answers = by_http2(node.hapax.address(), &keys.map(|(key, _)| key));
    for ((status, document), (key, cause)) in answers.iter().zip(keys) {
        assert_eq!((*status, document["detail"].as_str()), (400, Some(cause)), "{key:?}");
        assert_eq!(document["type"], "urn:hapax:problem:key-malformed");
    }
    let (status, _) = answers.last().expect("the good one behind the bad ones");
    assert_eq!((*status, node.ledger.all().len()), (201, 1));
}

#[test]
fn input_14_a_tab_in_the_key_is_refused() {
    let node = start();
    assert_malformed(&node, b"a\tb", NOT_ASCII);
    assert_malformed(&node, b"\"a\tb\"", NOT_ASCII);
    assert_one_key(&node, &["\tk\t", "k"]);
}

#[test]
fn input_15_bytes_that_are_no_text_are_refused() {
    let node = start();
    for key in [b"\xff".as_slice(), b"a\x80b", b"\xc3\x28", b"\"\xfe\""] {
        assert_malformed(&node, key, NOT_ASCII);
    }
}

#[test]
fn input_16_both_unicode_forms_are_refused_alike() {
    let node = start();
    for key in ["cl\u{e9}", "cle\u{301}", "\"cl\u{e9}\""] {
        assert_malformed(&node, key.as_bytes(), NOT_ASCII);
    }
}

#[test]
fn input_17_a_right_to_left_mark_is_refused() {
    let node = start();
    for key in ["a\u{200f}b", "\u{202e}k", "a\u{200b}", "\u{feff}k", "\u{a0}"] {
        assert_malformed(&node, key.as_bytes(), NOT_ASCII);
    }
}

#[test]
fn input_18_an_emoji_is_refused() {
    assert_malformed(&start(), "\u{1f4b6}".as_bytes(), NOT_ASCII);
}

#[test]
fn input_19_sql_in_a_key_is_a_key() {
    let node = start();
    assert_one_key(&node, &["'; DROP TABLE record; --", "\"'; DROP TABLE record; --\""]);
    assert_one_key(&node, &["' OR '1'='1"]);
    assert_one_key(&node, &["and-the-store-lives"]);
}

#[test]
fn input_20_a_path_in_a_key_is_a_key() {
    let node = start();
    assert_one_key(&node, &["../../etc/passwd"]);
    assert_one_key(&node, &["../"]);
}

#[test]
fn input_21_an_encoded_nul_in_a_key_is_three_characters() {
    let node = start();
    assert_one_key(&node, &["a%00"]);
    assert_one_key(&node, &["a"]);
}

#[test]
fn input_22_a_template_in_a_key_is_a_key() {
    let node = start();
    assert_one_key(&node, &["{{7*7}}"]);
    assert_one_key(&node, &["49"]);
}

#[test]
fn input_23_a_script_in_a_key_is_a_key_and_is_echoed_nowhere() {
    let node = start();
    assert_one_key(&node, &["<script>alert(1)</script>"]);
    let reused = node.send(&unkeyed("{}").header("Idempotency-Key", "<script>alert(1)</script>"));
    assert_eq!(refused(&reused), (422, "key-reused".into()));
    assert!(!reused.text().contains("script"), "{}", reused.text());
}

#[test]
fn input_24_a_glob_in_a_key_matches_nothing_but_itself() {
    let node = start();
    assert_one_key(&node, &["abc"]);
    assert_one_key(&node, &["*"]);
    assert_one_key(&node, &["a%"]);
    assert_one_key(&node, &["a_c"]);
}

#[test]
fn input_25_braces_in_a_key_are_part_of_it() {
    let node = start();
    assert_one_key(&node, &["{tag}a"]);
    assert_one_key(&node, &["{tag}b"]);
}

#[test]
fn input_26_an_integer_is_a_bare_key_and_refused_where_the_syntax_is_strict() {
    assert_one_key(&start(), &["42", "\"42\""]);
    let strict = start_with("[keys]\nsyntax = \"strict\"\n");
    for key in ["42", "-1.5"] {
        assert_malformed(&strict, key.as_bytes(), NOT_QUOTED);
    }
}

#[test]
fn input_27_items_of_another_type_are_refused() {
    let node = start();
    for key in ["?1", "?0", ":aGFwYXg=:", "@1659578233", "%\"a\"", "(a b)"] {
        assert_malformed(&node, key.as_bytes(), NOT_A_STRING);
        assert_malformed(&node, format!("{key};a=1").as_bytes(), NOT_A_STRING);
    }
}

#[test]
fn input_28_parameters_are_not_part_of_a_quoted_key() {
    let node = start();
    assert_one_key(&node, &["\"a\";x=1", "\"a\"", "a", "\"a\";y"]);
    // Without quotes nobody can tell where they begin.
    assert_one_key(&node, &["a;x=1"]);
    for key in ["\"a\";X=1", "\"a\";x=", "\"a\";"] {
        assert_malformed(&node, key.as_bytes(), AFTER_QUOTES);
    }
}

#[test]
fn input_29_a_key_of_one_character_is_a_key_unless_the_route_wants_more() {
    assert_one_key(&start(), &["1"]);
    let node = start_with("[defaults]\nkey_length_min = 16\n");
    let cause = "the key has 1 characters; this route asks for at least 16; send a longer random one";
    assert_malformed(&node, b"1", cause);
    assert_malformed(&node, b"\"1\"", cause);
    assert_one_key(&node, &["0123456789abcdef"]);
}

#[test]
fn input_29_a_route_may_want_uuids() {
    let node = start_with("[defaults]\nkey_format = \"uuid\"\n");
    let cause = "this route asks for a UUID; send one, such as 8e03978e-40d5-43dd-bc93-6894a57f9324";
    for key in ["1", "8e03978e40d543ddbc936894a57f9324", "{8e03978e-40d5-43dd-bc93-6894a57f9324}"] {
        assert_malformed(&node, key.as_bytes(), cause);
    }
    assert_one_key(&node, &["8e03978e-40d5-43dd-bc93-6894a57f9324"]);
}

#[test]
fn input_29_a_route_may_want_new_uuids() {
    let node = start_with("[defaults]\nkey_format = \"uuidv7\"\nkey_age_max = \"1h\"\n");
    let uuid4 = b"8e03978e-40d5-43dd-bc93-6894a57f9324";
    assert_malformed(&node, uuid4, "this route asks for a UUID of version 7; send a new one");
    let too_old = "the key was made too long ago or in the future; send a new one, or correct the clock";
    for key in ["018bcfe5-6800-7000-8000-000000000000", "ffffffff-ffff-7000-8000-000000000000"] {
        assert_malformed(&node, key.as_bytes(), too_old);
    }
    // Half as far in the future as a key may be old.
    assert_malformed(&node, uuid7(hapax::clock::wall_ms() + 1_800_000).as_bytes(), too_old);
    assert_one_key(&node, &[&uuid7(hapax::clock::wall_ms() - 1_800_000)]);
    assert_one_key(&node, &[&uuid7(hapax::clock::wall_ms() + 30_000)]);
}

/// A UUID of version 7 that says it was made then.
fn uuid7(made_ms: u64) -> String {
    let hex = format!("{made_ms:012x}");
    format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])
}

#[test]
fn input_30_the_name_of_the_field_may_be_in_any_case() {
    let node = start();
    let spelled = |name: &str| unkeyed(BODY).header(name, "k");
    assert_eq!(node.send(&spelled("iDEMPOTENCY-kEY")).status, 201);
    for name in ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"] {
        assert!(node.send(&spelled(name)).is_replay(), "{name}");
    }
    node.ledger.assert_once("k");
    assert_malformed(&node, b" a\r\nIDEMPOTENCY-KEY: b", SEVERAL);
}

#[test]
fn input_30_a_name_that_only_looks_alike_is_no_key() {
    let node = start();
    for name in ["Idempotency_Key", "IdempotencyKey", "X-Idempotency-Key"] {
        assert_eq!(refused(&node.send(&unkeyed(BODY).header(name, "k"))), (400, "key-missing".into()), "{name}");
    }
}

#[test]
fn refusals_among_pipelined_requests_are_answered_in_their_turn() {
    let node = start();
    let mut conn = Conn::open(node.hapax.address());
    let after = request("GET", "/after").bytes();
    conn.write(&[pay(b"good"), pay(b"\"bad"), unkeyed(BODY).chunked().bytes(), pay(b"good"), after].concat());
    let answers: Vec<Response> = (0..5).map(|_| conn.read_response().expect("an answer")).collect();
    assert_eq!((answers[0].status, answers[0].is_replay()), (201, false));
    assert_problem(&answers[1], 400, "key-malformed", QUOTES);
    assert_eq!(refused(&answers[2]), (400, "key-missing".into()));
    assert_eq!((answers[3].is_replay(), &answers[3].body), (true, &answers[0].body));
    assert_eq!(answers[4].status, 200);
    let paths: Vec<_> = node.ledger.all().into_iter().map(|entry| entry.path).collect();
    assert_eq!(paths, ["/payments", "/after"]);
}

// Bodies and fingerprints.

fn post(target: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    request("POST", target)
        .header("Authorization", "Bearer alice-secret")
        .header("Idempotency-Key", "k")
        .header("Content-Type", content_type)
        .body(body)
}

fn json(body: impl Into<Vec<u8>>) -> Request {
    post("/payments", "application/json", body)
}

/// Asserts that after `first` the others are retries of it.
#[track_caller]
fn assert_same(first: &Request, others: &[Request]) {
    let node = start();
    let answer = node.send(first);
    assert_eq!((answer.status, answer.is_replay()), (201, false), "{}", answer.text());
    let mut conn = Conn::open(node.hapax.address());
    for other in others {
        let retry = conn.send(other);
        assert_eq!((retry.status, retry.is_replay(), &retry.body), (201, true, &answer.body), "{other:?}");
    }
    assert_eq!(node.ledger.all().len(), 1);
}

/// Asserts that after `first` the others are other requests, that the connection stays in step, and that `first` can still
/// be replayed.
#[track_caller]
fn assert_reused(first: &Request, others: &[Request]) {
    let node = start();
    let answer = node.send(first);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let mut conn = Conn::open(node.hapax.address());
    for other in others {
        let refusal = conn.send(other);
        assert_eq!(refusal.status, 422, "{other:?}: {}", refusal.text());
        assert_problem(&refusal, 422, "key-reused", REUSED);
        assert_eq!(refusal.header("stripe-should-retry"), Some("false"));
    }
    assert_eq!(conn.send(first).body, answer.body);
    assert_eq!(node.ledger.all().len(), 1);
}

#[test]
fn input_57_the_order_of_members_does_not_count() {
    let nested = r#"{"a":{"x":[1,2],"y":null},"b":"\u00e9"}"#;
    assert_same(&json(nested), &[json(r#" { "b" : "é", "a" : { "y" : null, "x" : [ 1, 2 ] } } "#)]);
}

#[test]
fn input_57_the_order_of_a_list_counts() {
    assert_reused(&json("[1,2]"), &[json("[2,1]"), json("[1,2,2]"), json("[[1,2]]")]);
}

#[test]
fn input_58_duplicate_members_count_byte_by_byte() {
    let twice = r#"{"a":1,"a":2}"#;
    assert_same(&json(twice), &[json(twice)]);
    assert_reused(&json(twice), &[json(r#"{"a":2}"#), json(r#"{"a":2,"a":1}"#), json(r#"{"a":1, "a":2}"#)]);
}

#[test]
fn input_59_spellings_of_one_number_are_one_number() {
    assert_same(&json(r#"{"n":1}"#), &[json(r#"{"n":1.0}"#), json(r#"{"n":1e0}"#), json(r#"{"n":10E-1}"#)]);
}

#[test]
fn input_59_numbers_that_a_double_cannot_tell_apart_are_two() {
    assert_reused(&json("9007199254740992"), &[json("9007199254740993"), json("\"9007199254740992\"")]);
    assert_reused(&json("0.1"), &[json("0.10000000000000000001")]);
}

#[test]
fn input_60_a_byte_order_mark_counts() {
    let marked = format!("\u{feff}{BODY}");
    assert_same(&json(marked.clone()), &[json(marked.clone())]);
    assert_reused(&json(marked), &[json(BODY)]);
}

#[test]
fn input_61_invalid_utf_8_counts_byte_by_byte() {
    let invalid = b"{\"a\":\"\xff\"}";
    assert_same(&json(invalid), &[json(invalid)]);
    assert_reused(
        &json(invalid),
        &[json(b"{\"a\":\"\xfe\"}"), json("{\"a\":\"\u{fffd}\"}"), json(b"{ \"a\":\"\xff\"}")],
    );
}

#[test]
fn input_62_an_encoded_body_is_not_the_plain_one() {
    // `{}` compressed by gzip.
    let zipped: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0";
    let encoded = json(zipped).header("Content-Encoding", "gzip");
    assert_same(&encoded, std::slice::from_ref(&encoded));
    assert_reused(&encoded, &[json("{}"), json(zipped), json("{}").header("Content-Encoding", "gzip")]);
}

#[test]
fn input_62_an_encoded_body_is_forwarded_as_it_came() {
    let node = start();
    let bomb = vec![0x1f, 0x8b, 8, 0, 0xff, 0, 1, 2, 3];
    assert_eq!(node.send(&json(bomb.clone()).header("Content-Encoding", "gzip")).status, 201);
    assert_eq!(node.ledger.last().body, bomb);
    assert_eq!(node.ledger.last().header("content-encoding"), Some("gzip"));
}

#[test]
fn input_63_a_form_with_another_boundary_is_another_request() {
    let form = |boundary: &str| {
        let body = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n");
        post("/payments", &format!("multipart/form-data; boundary={boundary}"), body)
    };
    assert_same(&form("x"), &[form("x")]);
    assert_reused(&form("x"), &[form("y")]);
}

#[test]
fn input_63_a_form_with_another_boundary_is_the_same_request_where_bodies_do_not_count() {
    let node = start_with("[defaults]\nfingerprint = \"ignored\"\n");
    let form = |boundary: &str| {
        post("/payments", &format!("multipart/form-data; boundary={boundary}"), format!("--{boundary}--\r\n"))
    };
    assert_eq!(node.send(&form("x")).status, 201);
    assert!(node.send(&form("y")).is_replay());
}

#[test]
fn the_spelling_of_a_host_does_not_count() {
    let node = start();
    let to = |host: &str| {
        let head = format!("POST /payments HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer alice-secret\r\n");
        let mut conn = Conn::open(node.hapax.address());
        conn.write(format!("{head}Idempotency-Key: k\r\nContent-Length: 0\r\n\r\n").as_bytes());
        conn.read_response().expect("an answer")
    };
    assert_eq!(to("shop.example").status, 201);
    for same in ["SHOP.example", "shop.example:80", "Shop.Example:80"] {
        assert!(to(same).is_replay(), "{same}");
    }
    for other in ["shop.example:443", "shop.example:8080", "shop2.example"] {
        assert_eq!(to(other).problem().as_deref(), Some("key-reused"), "{other}");
    }
}

#[test]
fn input_64_an_empty_body_is_an_absent_one() {
    let absent = request("POST", "/payments")
        .header("Authorization", "Bearer alice-secret")
        .header("Idempotency-Key", "k")
        .header("Content-Type", "application/json");
    assert_same(&absent, &[json(""), json("").chunked()]);
    assert_reused(&absent, &[json(" "), json("{}"), json("null")]);
}

#[test]
fn input_65_the_order_of_the_query_counts() {
    let with = |query: &str| post(&format!("/payments{query}"), "application/json", BODY);
    assert_reused(&with("?a=1&b=2"), &[with("?b=2&a=1"), with("?a=1&b=2&"), with("?a=%31&b=2"), with(""), with("?")]);
    assert_reused(&with(""), &[with("?")]);
}

#[test]
fn input_66_a_trailing_slash_counts() {
    let at = |path: &str| post(path, "application/json", BODY);
    assert_reused(&at("/payments"), &[at("/payments/"), at("//payments"), at("/Payments"), at("/./payments")]);
}

#[test]
fn input_67_an_encoded_slash_is_not_a_slash() {
    let at = |path: &str| post(path, "application/json", BODY);
    assert_reused(&at("/a/b"), &[at("/a%2Fb"), at("/a%2fb"), at("/%61/b")]);
    assert_reused(&at("/a%2Fb"), &[at("/a%2fb")]);
}

#[test]
fn input_68_another_content_type_is_another_request() {
    let none = request("POST", "/payments")
        .header("Authorization", "Bearer alice-secret")
        .header("Idempotency-Key", "k")
        .body(BODY);
    let of = |content_type: &str| post("/payments", content_type, BODY);
    let first = of("application/json");
    assert_reused(&first, &[of("text/plain"), of("application/json; charset=utf-8"), of("application/x+json"), none]);
}

#[test]
fn input_68_a_second_content_type_or_precondition_counts() {
    let first = json(BODY).header("If-Match", "\"1\"");
    let second = |name: &str, value: &str| first.clone().header(name, value);
    assert_reused(&first, &[second("If-Match", "\"2\""), second("Content-Type", "text/plain")]);
}

#[test]
fn input_69_a_truncated_body_is_refused_and_nothing_is_run() {
    let node = start();
    let whole = json(BODY).bytes();
    let chunked = json(BODY).chunked().bytes();
    for part in [&whole[..whole.len() - 1], &whole[..whole.len() - BODY.len()], &chunked[..chunked.len() - 5]] {
        let mut conn = Conn::open(node.hapax.address());
        conn.write(part);
        conn.half_close();
        let response = conn.read_response().expect("a refusal");
        assert_problem(&response, 400, "body-incomplete", INCOMPLETE);
        conn.expect_closed();
    }
    assert!(node.ledger.all().is_empty());
    assert_eq!(node.send(&json(BODY)).status, 201, "the key is still free");
}

#[test]
fn input_69_a_truncated_retry_of_a_known_key_is_refused_too() {
    let node = start();
    assert_eq!(node.send(&json(BODY)).status, 201);
    let bytes = json(BODY).bytes();
    let mut conn = Conn::open(node.hapax.address());
    conn.write(&bytes[..bytes.len() - 1]);
    conn.half_close();
    assert_problem(&conn.read_response().expect("a refusal"), 400, "body-incomplete", INCOMPLETE);
    conn.expect_closed();
    assert!(node.send(&json(BODY)).is_replay());
}

#[test]
fn input_69_a_body_of_malformed_chunks_is_refused_and_nothing_is_run() {
    let node = start();
    let head = "POST /payments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-secret\r\n\
                Idempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n";
    let malformed = ["not a size\r\n", "0\r\nno field\r\n\r\n", "0\r\nX-Sum : 5\r\n\r\n"];
    for rest in malformed {
        let mut conn = Conn::open(node.hapax.address());
        conn.write(format!("{head}5\r\nhello\r\n{rest}").as_bytes());
        let cause = "the body's chunks or trailers are malformed; nothing was run; send a well-formed request";
        assert_problem(&conn.read_response().expect("a refusal"), 400, "bad-framing", cause);
        conn.expect_closed();
    }
    assert!(node.ledger.all().is_empty());
}

#[test]
fn input_69_trailers_that_may_not_be_any_change_nothing_about_a_protected_request() {
    let node = start();
    let head = "POST /payments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-secret\r\n\
                Idempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut conn = Conn::open(node.hapax.address());
    let forbidden =
        ["Content-Length: 1", "Transfer-Encoding: chunked", "Idempotency-Key: b", "Authorization: Bearer bob"];
    for (nth, trailer) in forbidden.iter().enumerate() {
        conn.write(format!("{head}5\r\nhello\r\n0\r\n{trailer}\r\n\r\n").as_bytes());
        let answer = conn.read_response().expect("an answer");
        assert_eq!((answer.status, answer.is_replay()), (201, nth > 0), "{trailer}");
    }
    node.ledger.assert_once("k");
    node.ledger.assert_never("b");
}

#[test]
fn input_69_a_broken_body_of_an_unprotected_request_is_named_logged_and_counted() {
    let node = start();
    let head =
        "PUT /payments HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut conn = Conn::open(node.hapax.address());
    conn.write(format!("{head}5\r\nhello\r\n0\r\nno field\r\n\r\n").as_bytes());
    let answer = conn.read_response().expect("a refusal");
    assert_eq!((answer.status, answer.header("x-request-id")), (400, Some("mine-1")));
    assert_eq!(answer.json()["request_id"], "mine-1");
    let line = node.hapax.line_with("mine-1");
    assert!(line.contains("refused") && line.contains("bad-framing"), "{line}");
    assert!(node.hapax.metric("hapax_refused_total{reason=\"bad-framing\"}") >= 1.0);
    conn.expect_closed();
}

// HTTP/2.

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:method POST`, `:scheme http`, `:path /`, `:authority a`, a credential, and the key as it is: no client sends that.
fn header_block(key: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x84, 0x41, 1, b'a'];
    for (name, value) in [("authorization", "Bearer alice-secret"), ("idempotency-key", key)] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The first frame that is about a stream, or ends the connection.
fn first_about_a_stream(conn: &mut Conn) -> (u8, u32) {
    loop {
        let head = conn.read_bytes(9);
        conn.read_bytes(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if stream > 0 || head[3] == GOAWAY {
            return (head[3], stream);
        }
    }
}

/// Sends a payment with each key, and one more with a good one, on one connection; gives statuses and documents.
#[tokio::main(flavor = "current_thread")]
async fn by_http2(to: SocketAddr, keys: &[&[u8]]) -> Vec<(u16, serde_json::Value)> {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for key in keys.iter().copied().chain([b"good".as_slice()]) {
        let request = http::Request::post(format!("http://{to}/payments"))
            .header("authorization", "Bearer alice-secret")
            .header("idempotency-key", http::HeaderValue::from_bytes(key).unwrap())
            .body(())
            .unwrap();
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data("{}".into(), true).unwrap();
        let (head, mut body) = response.await.unwrap().into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            bytes.extend_from_slice(&data.unwrap());
        }
        answers.push((head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default()));
    }
    answers
}
