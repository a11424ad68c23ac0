//! Which path and which method a request may be taken for by whoever is behind.
//!
//! `//pay`, `/x/../pay` and `/%70ay` reach the same handler as `/pay` in many frameworks and another one in the rest.
//! hapax does not guess which: a route counts if any reading of the path matches it, and of those the strictest applies.

use http::{HeaderMap, Method};

/// Every way in which the path may be read, the plain one first.
pub(crate) fn readings(path: &str) -> Vec<String> {
    let mut readings = vec![path.to_owned()];
    if is_plain(path) {
        return readings;
    }
    let decoded = percent_decoded(path);
    let bare = path.split(';').next().unwrap_or(path);
    for reading in [without_dots(path), without_dots(&decoded), without_dots(bare), decoded] {
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

/// One reading only.
pub(crate) fn is_plain(path: &str) -> bool {
    let ends_in_slash = path.len() > 1 && path.ends_with('/');
    !ends_in_slash && !path.contains("//") && !path.contains("/.") && !path.contains(['%', ';', '\\'])
}

/// Without empty and dot segments; a backslash counts as a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split(['/', '\\']) {
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

fn percent_decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Fields by which frameworks let a request name another method.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// The method that counts: the one an override asks for, unless that would make a state-changing request look safe.
pub(crate) fn effective_method(method: &Method, headers: &HeaderMap) -> Method {
    if !has_override(headers) {
        return method.clone();
    }
    match asked(headers).next() {
        Some(asked) if !asked.is_safe() || method.is_safe() => asked,
        _ => method.clone(),
    }
}

/// Every method that a request may be taken for: the one that counts, and where overrides disagree all of them.
pub(crate) fn methods(method: &Method, headers: &HeaderMap) -> Vec<Method> {
    let mut methods = vec![effective_method(method, headers)];
    if asked(headers).nth(1).is_some() {
        methods.push(method.clone());
        methods.extend(asked(headers));
    }
    methods
}

/// What the overrides ask for, every line of them.
fn asked(headers: &HeaderMap) -> impl Iterator<Item = Method> {
    OVERRIDES.iter().flat_map(|name| headers.get_all(*name)).filter_map(|value| {
        let text = value.to_str().ok()?.trim().to_ascii_uppercase();
        Method::from_bytes(text.as_bytes()).ok()
    })
}

/// Whether there is any override. One walk over a few names is cheaper than three look-ups, and nearly always all there is.
pub(crate) fn has_override(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| OVERRIDES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_has_one_reading() {
        assert_eq!(readings("/payments/1"), ["/payments/1"]);
        assert_eq!(readings("/"), ["/"]);
    }

    #[test]
    fn an_ambiguous_path_has_every_reading_a_framework_might_choose() {
        let reads_as_pay = |path: &str| readings(path).iter().any(|reading| reading == "/pay");
        for path in [
            "//pay",
            "/./pay",
            "/x/../pay",
            "/%70ay",
            "/x/%2e%2e/pay",
            "/%2Fpay",
            "/pay;v=1",
            "\\pay",
            "/../pay",
            "/pay/",
        ] {
            assert!(reads_as_pay(path), "{path} {:?}", readings(path));
        }
        assert!(!reads_as_pay("/%zzpay"));
        assert_eq!(percent_decoded("/%"), "/%");
        assert_eq!(percent_decoded("/%4"), "/%4");
    }

    #[test]
    fn an_override_counts_unless_it_would_make_a_change_look_safe() {
        let method = |method: Method, asked: &str| {
            let headers = HeaderMap::from_iter([("x-http-method-override".parse().unwrap(), asked.parse().unwrap())]);
            effective_method(&method, &headers)
        };
        assert_eq!(method(Method::POST, "PATCH"), Method::PATCH);
        assert_eq!(method(Method::GET, "post"), Method::POST);
        assert_eq!(method(Method::POST, "GET"), Method::POST);
        assert_eq!(method(Method::GET, "HEAD"), Method::HEAD);
        assert_eq!(effective_method(&Method::POST, &HeaderMap::new()), Method::POST);
        assert_eq!(methods(&Method::POST, &HeaderMap::new()), [Method::POST]);
    }

    #[test]
    fn overrides_that_disagree_all_count() {
        let mut all = HeaderMap::new();
        for (name, value) in [(OVERRIDES[0], "HEAD"), (OVERRIDES[2], "POST"), (OVERRIDES[2], "PUT")] {
            all.append(name, value.parse().unwrap());
        }
        let methods = methods(&Method::GET, &all);
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT] {
            assert!(methods.contains(&method), "{method}");
        }
    }
}
