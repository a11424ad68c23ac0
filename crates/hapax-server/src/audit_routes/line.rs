//! One line of an access log: NDJSON in the field names that servers use, or the Common or Combined Log Format.
//!
//! It takes what it needs and ignores the rest. A line without a method and a path is malformed.

use http::HeaderName;
use serde_json::{Map, Value};

use super::Seen;

const METHOD: &[&str] = &["method", "request_method", "verb", "http_method"];
const PATH: &[&str] = &["path", "uri", "request_uri", "url", "request_path"];
const STATUS: &[&str] = &["status", "status_code", "response_status", "code"];
/// A truth value. Other fields that tell of keys are called after the header fields that hold them.
const HAS_KEY: &[&str] = &["has_key"];

/// What hapax writes into every line of its own log, and access logs do not have both.
const OWN: [&str; 2] = ["target", "level"];

/// What there is on a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Request(Line),
    /// Something else that hapax's own log tells.
    Own,
    Malformed,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    method: String,
    path: String,
    status: Option<u16>,
    has_key: Option<bool>,
}

impl Line {
    pub(super) fn seen(&self) -> Seen<'_> {
        Seen { method: &self.method, path: &self.path, status: self.status, has_key: self.has_key }
    }
}

/// Reads one line without its line feed. A key stands in one of those header fields.
pub(super) fn parse(line: &[u8], key_headers: &[HeaderName]) -> Parsed {
    if line.starts_with(b"{") {
        let Ok(whole) = serde_json::from_slice::<Map<String, Value>>(line) else { return Parsed::Malformed };
        let is_own = || OWN.iter().all(|name| whole.contains_key(*name)) && named(&whole, METHOD).is_none();
        return match object(&whole, key_headers) {
            Some(line) => Parsed::Request(line),
            None if is_own() => Parsed::Own,
            None => Parsed::Malformed,
        };
    }
    // Servers log the bytes of a path as they came.
    common(&String::from_utf8_lossy(line)).map_or(Parsed::Malformed, Parsed::Request)
}

fn object(whole: &Map<String, Value>, key_headers: &[HeaderName]) -> Option<Line> {
    let inner = whole.get("request").or_else(|| whole.get("http")).and_then(Value::as_object);
    let field = |names: &[&str]| named(whole, names).or_else(|| named(inner?, names));
    let line = whole.get("request").and_then(Value::as_str).and_then(request_line);
    let (in_line_method, in_line_path) = line.unzip();
    let method = field(METHOD).and_then(Value::as_str).or(in_line_method)?;
    let target = field(PATH).and_then(Value::as_str).or(in_line_path)?;
    let fields = inner.unwrap_or(whole).get("headers").and_then(Value::as_object);
    let has_key = field(HAS_KEY).map(is_present);
    let has_key = has_key.or_else(|| by_own_field([Some(whole), inner], key_headers));
    let has_key = has_key.or_else(|| fields.map(|fields| key_headers.iter().any(|name| is_sent(fields, name))));
    made(method, target, field(STATUS).and_then(status), has_key)
}

fn named<'v>(object: &'v Map<String, Value>, names: &[&str]) -> Option<&'v Value> {
    names.iter().find_map(|name| object.get(*name))
}

fn status(value: &Value) -> Option<u16> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| number.try_into().ok()),
    }
}

/// Is there a key in this value? Servers write `-` or nothing for a field that was not sent.
fn is_present(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(present) => *present,
        Value::String(text) => !matches!(text.as_str(), "" | "-" | "false" | "0"),
        Value::Array(lines) => lines.iter().any(is_present),
        Value::Number(number) => number.as_u64() != Some(0),
        Value::Object(_) => true,
    }
}

fn is_sent(fields: &Map<String, Value>, header: &HeaderName) -> bool {
    fields.iter().any(|(name, value)| name.eq_ignore_ascii_case(header.as_str()) && is_present(value))
}

/// What the log's own fields for these header fields say: `idempotency_key`, `http_idempotency_key`. One that holds a key is
/// enough; that there was none is known only where each of them is logged.
fn by_own_field(objects: [Option<&Map<String, Value>>; 2], key_headers: &[HeaderName]) -> Option<bool> {
    let entries = || objects.iter().flatten().flat_map(|object| object.iter());
    let said = key_headers
        .iter()
        .map(|header| entries().find(|(field, _)| is_named_after(field, header)).map(|(_, value)| is_present(value)));
    let said: Vec<Option<bool>> = said.collect();
    if said.contains(&Some(true)) {
        return Some(true);
    }
    (!said.is_empty() && said.iter().all(Option::is_some)).then_some(false)
}

fn is_named_after(field: &str, header: &HeaderName) -> bool {
    let bare = field.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case("http_")).map_or(field, |_| &field[5..]);
    let alike = |one: u8, other: u8| one.eq_ignore_ascii_case(&other) || (one == b'_' && other == b'-');
    [field, bare].iter().any(|field| {
        field.len() == header.as_str().len() && field.bytes().zip(header.as_str().bytes()).all(|(a, b)| alike(a, b))
    })
}

/// `host ident user [time] "POST /path HTTP/1.1" 201 12 "referer" "agent"`.
fn common(line: &str) -> Option<Line> {
    let (before, rest) = line.split_once('"')?;
    if !before.trim_end().ends_with(']') {
        return None;
    }
    let (request, after) = rest.split_once('"')?;
    let (method, target) = request_line(request)?;
    let status = after.split_ascii_whitespace().next()?.parse().ok()?;
    made(method, target, Some(status), None)
}

fn request_line(text: &str) -> Option<(&str, &str)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?, words.next()?))
}

fn made(method: &str, target: &str, status: Option<u16>, has_key: Option<bool>) -> Option<Line> {
    let is_token =
        (1..=32).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    let path = path_of(target);
    let status = status.filter(|status| (100..600).contains(status));
    (is_token && path.starts_with('/')).then(|| Line {
        method: method.to_ascii_uppercase(),
        path: path.to_owned(),
        status,
        has_key,
    })
}

/// The path of a request target: without scheme and authority, query and fragment.
fn path_of(target: &str) -> &str {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let target = &target[..end];
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(parsed: Parsed) -> Option<Line> {
        match parsed {
            Parsed::Request(line) => Some(line),
            Parsed::Own | Parsed::Malformed => None,
        }
    }

    fn read(line: &str) -> Option<(String, String, Option<u16>, Option<bool>)> {
        let line = request(parse(line.as_bytes(), &[hapax::http::IDEMPOTENCY_KEY]))?;
        Some((line.method, line.path, line.status, line.has_key))
    }

    #[track_caller]
    fn says(line: &str, method: &str, path: &str, status: Option<u16>, has_key: Option<bool>) {
        assert_eq!(read(line), Some((method.into(), path.into(), status, has_key)), "{line}");
    }

    #[test]
    fn json_in_the_field_names_of_many_servers() {
        says(r#"{"method":"POST","path":"/a?x=1","status":201,"has_key":true}"#, "POST", "/a", Some(201), Some(true));
        let line = r#"{"request_method":"patch","request_uri":"/a","status":"200","http_idempotency_key":""}"#;
        says(line, "PATCH", "/a", Some(200), Some(false));
        says(r#"{"verb":"PUT","url":"https://api.example/a/b?c#d"}"#, "PUT", "/a/b", None, None);
        says(r#"{"method":"POST","uri":"/","idempotency_key":"-"}"#, "POST", "/", None, Some(false));
        says(r#"{"request":"POST /a HTTP/1.1","status":404}"#, "POST", "/a", Some(404), None);
        let line = r#"{"request":{"method":"POST","uri":"/a","headers":{"Idempotency-Key":["k"]}},"status":200}"#;
        says(line, "POST", "/a", Some(200), Some(true));
        let line = r#"{"request":{"method":"POST","uri":"/a","headers":{"Accept":["*/*"]}},"status":200}"#;
        says(line, "POST", "/a", Some(200), Some(false));
    }

    #[test]
    fn the_configured_fields_say_whether_there_was_a_key() {
        let names = ["x-request-key", "x-other"].map(HeaderName::from_static);
        let has_key = |rest: &str, names: &[HeaderName]| {
            let line = format!(r#"{{"method":"POST","path":"/a",{rest}}}"#);
            request(parse(line.as_bytes(), names)).unwrap().has_key
        };
        for rest in [
            r#""headers":{"X-Request-Key":"k"}"#,
            r#""request":{"headers":{"x-other":["k"]}}"#,
            r#""http_x_request_key":"k""#,
            r#""X-Other":"k","x_request_key":"-""#,
        ] {
            assert_eq!(has_key(rest, &names), Some(true), "{rest}");
        }
        assert_eq!(has_key(r#""headers":{"Idempotency-Key":"k"}"#, &names), Some(false), "that field is not looked at");
        assert_eq!(has_key(r#""http_idempotency_key":"k""#, &names), None);
        assert_eq!(has_key(r#""x_other":"-","x_request_key":"-""#, &names), Some(false));
        assert_eq!(has_key(r#""x_other":"-""#, &names), None, "of the other field the log says nothing");
        assert_eq!(has_key(r#""x_other":"-""#, &names[1..]), Some(false));
    }

    #[test]
    fn the_common_and_the_combined_log_format() {
        let common = r#"127.0.0.1 - bob [10/Oct/2000:13:55:36 -0700] "POST /a/7?x HTTP/1.0" 201 23"#;
        says(common, "POST", "/a/7", Some(201), None);
        says(&format!(r#"{common} "http://from/" "agent \"x\"""#), "POST", "/a/7", Some(201), None);
    }

    #[test]
    fn what_is_no_request_is_malformed() {
        for line in [
            "hello",
            "{",
            "{}",
            "[]",
            "null",
            r#"{"method":"POST"}"#,
            r#"{"method":7,"path":"/a"}"#,
            r#"{"method":"PO ST","path":"/a"}"#,
            r#"{"method":"POST","path":"a"}"#,
            r#"{"method":"","path":"/a"}"#,
            r#"1.2.3.4 - - [x] "-" 400 0"#,
            r#"1.2.3.4 - - [x] "\x16\x03\x01" 400 0"#,
            r#"1.2.3.4 - - [x] "POST /a HTTP/1.1""#,
            r#"say "POST /a" 200"#,
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe", &[]), Parsed::Malformed);
        assert_eq!(parse("{\"a\":".repeat(10_000).as_bytes(), &[]), Parsed::Malformed, "deep nesting");
    }

    #[test]
    fn what_else_hapax_logs_is_not_malformed() {
        let own = r#""timestamp":"2026-11-16T12:00:00Z","level":"INFO","target":"hapax::run""#;
        assert_eq!(parse(format!("{{{own},\"message\":\"ready\"}}").as_bytes(), &[]), Parsed::Own);
        let unreadable = format!("{{{own},\"method\":\"POST\",\"path\":7}}");
        assert_eq!(parse(unreadable.as_bytes(), &[]), Parsed::Malformed, "a request, and not to be understood");
        assert_eq!(parse(br#"{"level":"INFO"}"#, &[]), Parsed::Malformed);
        let request = format!("{{{own},\"method\":\"POST\",\"path\":\"/a\"}}");
        assert!(matches!(parse(request.as_bytes(), &[]), Parsed::Request(_)));
    }
}
