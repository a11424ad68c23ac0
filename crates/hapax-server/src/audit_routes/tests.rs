//! The audit as a whole: logs in, report out.

use std::io::{BufReader, Cursor};

use super::*;

static KEY_HEADERS: [HeaderName; 1] = [hapax::http::IDEMPOTENCY_KEY];

fn routes() -> Vec<Route> {
    let route = |methods: &[&str], pattern: &str, keys| Route {
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
        pattern: pattern.to_owned(),
        policy: format!("keys {keys:?}").to_lowercase(),
        keys,
    };
    vec![
        route(&["POST"], "/v1/payments", Keys::Required),
        route(&["POST", "PATCH"], "/v1/orders/*", Keys::Optional),
        route(&[], "/hooks", Keys::Ignored),
    ]
}

fn matching(method: &str, path: &str) -> Option<(usize, Keys)> {
    match (method, path) {
        ("POST", "/v1/payments") => Some((0, Keys::Required)),
        ("POST" | "PATCH", path) if path.starts_with("/v1/orders/") => Some((1, Keys::Optional)),
        (_, "/hooks") => Some((2, Keys::Ignored)),
        _ => None,
    }
}

fn audited(log: &str) -> Report {
    let routes = routes();
    let mut audit = Audit::new(&routes, &KEY_HEADERS, matching);
    audit.read(Cursor::new(log)).unwrap();
    audit.finish()
}

fn line(method: &str, path: &str, has_key: bool) -> String {
    format!("{{\"method\":\"{method}\",\"path\":\"{path}\",\"status\":200,\"has_key\":{has_key}}}\n")
}

#[test]
fn what_no_route_protects_is_found_with_its_identifiers_collapsed() {
    let mut log = String::new();
    for id in 0..30 {
        log += &line("DELETE", &format!("/v1/users/{id}"), false);
    }
    log += &line("GET", "/v1/users/1", false);
    log += &line("POST", "/v1/payments", true);
    log += &line("POST", "/hooks", true);
    let report = audited(&log);
    let found: Vec<_> = report.endpoints.iter().map(|e| (&*e.method, &*e.path, e.hits, e.finding)).collect();
    let expected =
        [("DELETE", "/v1/users/{id}", 30, Finding::Unprotected), ("POST", "/hooks", 1, Finding::Unprotected)];
    assert_eq!(found, expected);
    let hits: Vec<u64> = report.routes.iter().map(|route| route.hits).collect();
    assert_eq!(hits, [1, 0, 1]);
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn a_protected_endpoint_that_is_mostly_called_without_keys_is_found() {
    let keyless = line("PATCH", "/v1/orders/7", false).repeat(3);
    let report = audited(&(keyless.clone() + &line("PATCH", "/v1/orders/8", true).repeat(2)));
    assert_eq!(report.endpoints.len(), 1);
    assert_eq!(report.endpoints[0].finding, Finding::MostlyWithoutKeys);
    assert!(report.to_table().contains("3 of 5 without a key"), "{}", report.to_table());
    let refused = line("POST", "/v1/payments", false).repeat(2);
    let report = audited(&(refused.clone() + &line("POST", "/v1/payments", true)));
    assert_eq!(report.endpoints[0].finding, Finding::MostlyWithoutKeys);
    let report = audited(&(refused + &line("POST", "/v1/payments", true).repeat(2)));
    assert_eq!((report.endpoints.len(), report.exit_code()), (0, 0), "where keys are required, none runs without");
}

#[test]
fn a_single_request_without_a_key_is_found_where_keys_are_optional() {
    let report = audited(&(line("PATCH", "/v1/orders/7", true).repeat(99) + &line("PATCH", "/v1/orders/8", false)));
    assert_eq!((report.endpoints.len(), report.exit_code()), (1, 1));
    assert_eq!(report.endpoints[0].finding, Finding::PartlyWithoutKeys);
    assert!(report.to_table().contains("1 of 100 without a key"), "{}", report.to_table());
}

#[test]
fn a_log_that_does_not_tell_of_keys_is_no_proof_where_keys_are_optional() {
    let untold = "1.2.3.4 - - [x] \"PATCH /v1/orders/7 HTTP/1.1\" 200 5\n";
    let report = audited(untold);
    assert_eq!((report.endpoints.len(), report.exit_code()), (1, 1));
    assert_eq!(report.endpoints[0].finding, Finding::KeysUnknown);
    assert!(report.to_table().contains("keys are optional, and the log does not tell"), "{}", report.to_table());
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["endpoints"][0]["finding"], "keys-unknown");
}

#[test]
fn nothing_is_promised_about_what_was_not_judged() {
    let report = audited("# only a comment\n");
    assert!(report.to_table().contains("There is no request in the log, so nothing was judged."));
    let report = audited(&format!("nonsense\n{}", line("POST", "/v1/payments", true)));
    assert!(
        report.to_table().contains("Every state-changing endpoint in the lines that were understood is protected.")
    );
}

#[test]
fn an_endpoint_of_which_a_part_is_unprotected_is_found_whichever_comes_last() {
    let routes = routes();
    for last in ["/v1/users/1", "/v1/users/2"] {
        let mut audit = Audit::new(&routes, &KEY_HEADERS, |_: &str, path: &str| {
            (path == "/v1/users/1").then_some((0, Keys::Required))
        });
        for path in ["/v1/users/1", "/v1/users/2", last] {
            audit.see(&Seen { method: "POST", path, status: Some(200), has_key: Some(true) });
        }
        let report = audit.finish();
        assert_eq!(report.endpoints.len(), 1);
        assert_eq!(report.endpoints[0].finding, Finding::Unprotected);
    }
}

#[test]
fn a_log_that_does_not_tell_of_keys_accuses_nobody_where_keys_are_required() {
    let report = audited("1.2.3.4 - - [x] \"POST /v1/payments HTTP/1.1\" 201 5\n");
    assert_eq!((report.endpoints.len(), report.exit_code()), (0, 0));
    assert!(report.to_table().contains("Every state-changing endpoint in the log is protected."));
}

#[test]
fn guesses_of_scanners_are_no_endpoints() {
    let log = "1.2.3.4 - - [x] \"POST /wp-login.php HTTP/1.1\" 404 5\n1.2.3.4 - - [x] \"PUT /x HTTP/1.1\" 405 5\n";
    assert_eq!(audited(log).exit_code(), 0);
    let real = format!("{log}1.2.3.4 - - [x] \"POST /wp-login.php HTTP/1.1\" 200 5\n");
    assert_eq!(audited(&real).endpoints.len(), 1);
}

#[test]
fn malformed_lines_are_counted_and_the_first_are_named() {
    let long = format!("{{\"method\":\"POST\",\"path\":\"/{}\"}}\n", "a".repeat(LINE_BYTES_MAX));
    let log = format!("# comment\n\n{}{long}{}", "nonsense\n".repeat(20), line("POST", "/v1/payments", true));
    let report = audited(&log);
    assert_eq!((report.lines, report.malformed), (24, 21));
    assert_eq!(report.malformed_first, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(report.routes[0].hits, 1, "the line after the long one is read");
    assert!(report.to_table().contains("21 could not be understood: line 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, …."));
}

#[test]
fn a_log_without_lines_is_no_finding_and_the_last_line_needs_no_line_feed() {
    let report = audited("");
    assert_eq!((report.lines, report.exit_code()), (0, 0));
    assert!(!report.to_table().contains("lines read"), "nothing was read, so nothing is judged");
    assert_eq!(audited(line("POST", "/x", true).trim_end()).endpoints.len(), 1);
}

#[test]
fn escapes_in_a_log_do_not_reach_the_terminal() {
    let report = audited("{\"method\":\"POST\",\"path\":\"/\\u001b[2J\\u202e\\n/x\",\"status\":200}\n");
    let table = report.to_table();
    assert!(table.contains(r"/\u001b[2J\u202e\u000a/x"), "{table}");
    assert!(!table.contains('\u{1b}') && !table.contains('\u{202e}'));
}

#[test]
fn the_json_report_says_the_same() {
    let report = audited(&line("PUT", "/x", false));
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["endpoints"][0]["finding"], "unprotected");
    assert_eq!(json["routes"][0]["keys"], "required");
    assert_eq!(json["lines"], 1);
}

/// Makes a log of a million lines on the fly, most of them to paths that nobody will ask for again.
struct Million(u32);

impl Read for Million {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 1_000_000 {
            return Ok(0);
        }
        let text = format!("1.2.3.4 - - [x] \"POST /guess-{}-x HTTP/1.1\" 200 5\n", self.0);
        self.0 += 1;
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }
}

#[test]
fn a_million_lines_are_read_in_bounded_memory() {
    let routes = routes();
    let mut audit = Audit::new(&routes, &KEY_HEADERS, matching);
    audit.read(BufReader::new(Million(0))).unwrap();
    assert_eq!(audit.endpoints.len(), ENDPOINTS_MAX);
    let report = audit.finish();
    assert_eq!((report.lines, report.unlisted), (1_000_000, 990_000));
    assert_eq!(report.exit_code(), 1);
    assert!(report.to_table().contains("990000 requests went to further endpoints"));
}
