//! Paths and methods: no spelling of a protected path is less protected than the plain one.
//!
//! The input is a byte for the protected path, a line with a method override, and one byte for each change of the spelling.
//! A second run takes the rest as a path as it is.

use hapax::http::{Pattern, Route, Routes};
use http::{HeaderMap, HeaderValue, Method};

use crate::input::Input;

pub(crate) const WORDS: &[&str] = &[
    "PUT\n",
    "DELETE\n",
    "GET\n",
    "post\n",
    "POST, PUT\n",
    "\n",
    "/pay",
    "%70ay",
    "%2F",
    "%2f",
    "%5C",
    "\\",
    "//",
    "/./",
    "/../",
    "/x/..",
    ";v=1",
    "%3B",
    "%00",
    "%20",
    ".json",
    "/orders/17/refund",
    "%",
    "%zz",
    "%25",
    "..%2f",
    "%2e%2e/",
];

const PROTECTED: [&str; 4] = ["/pay", "/orders/17/refund", "/a/b/c", "/v1/charges"];

fn routes() -> Routes {
    let pattern = |text: &str| Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Routes::new(Route::unprotected())
        .with(&[Method::POST], pattern("/pay"), Route::new())
        .with(&[Method::POST], pattern("/orders/{id}/refund"), Route::new())
        .with(&[Method::POST], pattern("/a/b/c"), Route::new())
        .with(&[Method::POST], pattern("/v1/charges"), Route::new())
}

/// Runs the target.
pub fn paths(data: &[u8]) {
    let mut input = Input::new(data);
    let path = PROTECTED[input.choice(PROTECTED.len())];
    let headers = overrides(input.line());
    let rest = input.rest();
    let spelled = spelled(path, rest);
    let routes = routes();
    let route = routes.find(&Method::POST, &spelled, &headers);
    assert!(route.is_some_and(|route| route.protected), "POST {spelled} is not protected as {path} is; {headers:?}");
    let Ok(any) = std::str::from_utf8(rest) else { return };
    let any = format!("/{any}");
    if any.parse::<http::uri::PathAndQuery>().is_ok() {
        judge(&routes, &any, &headers);
    }
}

/// A path as it came: at least as protected as each reading that is plain.
fn judge(routes: &Routes, path: &str, headers: &HeaderMap) {
    let with = |headers: &HeaderMap| routes.find(&Method::POST, path, headers).is_some_and(|route| route.protected);
    let plain = with(&HeaderMap::new());
    assert!(!plain || with(headers), "an override takes POST {path} out of protection: {headers:?}");
    let decoded = hapax_reading(path);
    let is_protected = PROTECTED.contains(&decoded.as_str());
    assert!(!is_protected || plain, "POST {path} may be taken for {decoded}, and is not protected");
}

/// One reading, made the simple way: escapes undone, empty and dot segments resolved.
fn hapax_reading(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut text, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let digits = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                text.push(byte);
                at += 3;
            }
            None => {
                text.push(bytes[at]);
                at += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut kept: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

fn overrides(line: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(line)
        && !line.is_empty()
    {
        let names = ["x-http-method-override", "x-http-method", "x-method-override"];
        headers.append(names[line.len() % names.len()], value);
    }
    headers
}

/// The path in another spelling, which many a framework takes for the same.
fn spelled(path: &str, choices: &[u8]) -> String {
    let mut choices = choices.iter().copied();
    let mut text = String::new();
    for letter in path.chars() {
        match (choices.next().unwrap_or(0) % 12, letter) {
            (1, letter) if letter != '/' => text.push_str(&format!("%{:02x}", u32::from(letter))),
            (2, letter) if letter != '/' => text.push_str(&format!("%{:02X}", u32::from(letter))),
            (3, '/') => text.push_str("//"),
            (4, '/') => text.push_str("/./"),
            (5, '/') => text.push_str("/x/../"),
            (6, '/') => text.push_str("/%2e/"),
            (7, '/') if !text.is_empty() => text.push_str("%2F"),
            (8, '/') if !text.is_empty() => text.push_str(";v=1/"),
            (9, '/') if !text.is_empty() => text.push('\\'),
            (10, '/') => text.push_str("/y/%2E%2E/"),
            (11, letter) => text.push(letter.to_ascii_uppercase()),
            (_, letter) => text.push(letter),
        }
    }
    let ends = ["", "/", ";jsessionid=1", "/.", "/z/..", ".json", ".", "%20", "%00"];
    text.push_str(ends[usize::from(choices.next().unwrap_or(0)) % ends.len()]);
    text
}
