//! Which path and which method a request may be taken for by whoever is behind.
//!
//! `//pay`, `/x/../pay` and `/%70ay` reach the same handler as `/pay` in many frameworks and another one in the rest.
//! hapax does not guess which: a route counts if any reading of the path matches it, and of those the strictest applies. Left
//! to `route`: that letters may count without their case, and the last segment without what looks like a format (`.json`).

use std::borrow::Cow;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// The URI that counts for routes, addresses and fingerprints: the one that the client sent. `Router::nest` of axum takes the
/// prefix off the other one, so that `/charges/create` and `/refunds/create` look the same inside.
#[cfg(feature = "axum")]
pub(crate) fn uri_that_counts<'a>(uri: &'a Uri, extensions: &'a Extensions) -> &'a Uri {
    extensions.get::<axum::extract::OriginalUri>().map_or(uri, |original| &original.0)
}

/// The URI that counts for routes, addresses and fingerprints. Nobody says what it was before somebody changed it.
#[cfg(not(feature = "axum"))]
pub(crate) fn uri_that_counts<'a>(uri: &'a Uri, _extensions: &'a Extensions) -> &'a Uri {
    uri
}

/// Every way in which the path may be read, in the spelling of patterns, and as it came.
///
/// Whoever is behind may or may not cut the parameters of segments off (`;v=1`), before it undoes escapes or after; may or
/// may not take an escaped slash for a slash; may or may not resolve dot segments, before it merges slashes or after; may
/// undo escapes more than once; may end a segment at a zero byte, or leave out the dots and white space at its end; and may
/// take an escaped question mark for the end of the path.
pub(crate) fn readings(path: &str) -> Vec<String> {
    if is_plain(path) {
        return vec![path.to_owned()];
    }
    let mut spellings = Vec::new();
    for text in less_escaped(path) {
        for text in [Cow::Borrowed(&*text), without_parameters(&text)] {
            for undo in [Undo::Needless, Undo::Separators] {
                let spelled = spelled(&text, undo);
                add(&mut spellings, without_parameters(&spelled).into_owned());
                add(&mut spellings, spelled);
            }
        }
    }
    let mut readings = vec![path.to_owned()];
    for spelling in spellings {
        for merged in [true, false] {
            let resolved = without_dots(&spelling, merged);
            readings.push(without_last_slash(&resolved).to_owned());
            readings.push(resolved);
        }
        if let Some(trimmed) = trimmed(&spelling) {
            readings.push(without_last_slash(&without_dots(&trimmed, true)).to_owned());
        }
        readings.push(spelling);
    }
    readings.sort_unstable();
    readings.dedup();
    readings
}

/// How often escapes may be undone by whoever is behind: by each of a few servers in a row.
const UNESCAPED_TIMES_MAX: usize = 3;

/// The path, and the path with the escapes of escapes undone, once, twice … Their digits may be escaped as well.
fn less_escaped(path: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let next = |text: &Cow<'_, str>| {
        let has_escaped = text.contains("%25");
        has_escaped.then(|| Cow::Owned(spelled(text, Undo::Needless).replace("%25", "%")))
    };
    std::iter::successors(Some(Cow::Borrowed(path)), next).take(UNESCAPED_TIMES_MAX)
}

/// Every segment up to its first zero byte, and without the dots and white space at its end, as Windows reads it, and nothing
/// behind an escaped question mark or number sign; none if that changes nothing.
fn trimmed(path: &str) -> Option<String> {
    let end = ["%3F", "%23"].into_iter().filter_map(|mark| path.find(mark)).min().unwrap_or(path.len());
    let segments: Vec<&str> = path[..end].split('/').map(trimmed_segment).collect();
    let trimmed = segments.join("/");
    (trimmed != path).then_some(trimmed)
}

fn trimmed_segment(segment: &str) -> &str {
    let cut = segment.split_once("%00").map_or(segment, |(before, _)| before);
    let mut kept = cut;
    while let Some(rest) = [".", "%20", "%09", "%0A", "%0D"].into_iter().find_map(|end| kept.strip_suffix(end)) {
        kept = rest;
    }
    // Of a dot segment that is followed by such things, the dot segment is left.
    let dots = || ["..", "."].into_iter().find(|dots| cut.starts_with(dots));
    if kept.is_empty() { dots().unwrap_or(cut) } else { kept }
}

/// The path without what looks like a format at its end: `/pay` for `/pay.json`, as Rails and others read it.
pub(crate) fn without_format(path: &str) -> Option<&str> {
    let path = without_last_slash(path);
    let (before, format) = path.rsplit_once('.')?;
    let is_format = !format.is_empty() && format.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_format && !before.ends_with('/') && !before.is_empty()).then_some(before)
}

/// The one reading under which all spellings of a path meet: nothing cut off or undone is left to do. A plain path is its own.
pub(crate) fn resolved(path: &str) -> Cow<'_, str> {
    if is_plain(path) {
        return Cow::Borrowed(path);
    }
    let spelled = spelled(&without_parameters(path), Undo::Separators);
    let resolved = without_dots(&without_parameters(&spelled), true);
    Cow::Owned(without_last_slash(&resolved).to_owned())
}

fn add(texts: &mut Vec<String>, text: String) {
    if !texts.contains(&text) {
        texts.push(text);
    }
}

/// One reading only: no escape, no parameter, no empty segment, none that is a dot or ends in one, no slash at the end, and
/// nothing that should be escaped.
pub(crate) fn is_plain(path: &str) -> bool {
    let mut before = 0;
    let is_plain = path.bytes().all(|byte| {
        let is_plain = match byte {
            b'/' => !matches!(before, b'/' | b'.'),
            b'.' => before != b'/',
            _ => needs_no_escape(byte),
        };
        before = byte;
        is_plain
    });
    is_plain && (!matches!(before, b'/' | b'.') || path.len() == 1)
}

/// What may stand in a segment by RFC 3986, without the semicolon, which may begin a parameter.
fn needs_no_escape(byte: u8) -> bool {
    let is_mark = matches!(byte, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+');
    byte.is_ascii_alphanumeric() || is_mark || matches!(byte, b',' | b'=' | b':' | b'@')
}

/// Which escapes are undone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Those of what needs no escape.
    Needless,
    /// Those of slashes and semicolons, too; a backslash counts as a slash.
    Separators,
}

/// The path in one spelling: what needs no escape has none, everything else has one, with upper-case digits.
pub(crate) fn spelled(path: &str, undo: Undo) -> String {
    let bytes = path.as_bytes();
    let mut text = String::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { escaped_at(bytes, at) } else { None };
        at += if escaped.is_some() { 3 } else { 1 };
        match escaped.unwrap_or(byte) {
            separator @ (b'/' | b';') if escaped.is_none() || undo == Undo::Separators => {
                text.push(char::from(separator));
            }
            b'\\' if undo == Undo::Separators => text.push('/'),
            plain if needs_no_escape(plain) => text.push(char::from(plain)),
            other => {
                text.push('%');
                text.extend([other >> 4, other & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
            }
        }
    }
    text
}

/// The byte whose escape begins there.
fn escaped_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// Every segment without what follows its first semicolon.
fn without_parameters(path: &str) -> Cow<'_, str> {
    if !path.contains(';') {
        return Cow::Borrowed(path);
    }
    let segments = path.split('/').map(|segment| segment.split_once(';').map_or(segment, |(name, _)| name));
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// Without dot segments and empty ones, but for a slash at the end. Where slashes are merged, that comes first, so that `..`
/// never takes back an empty segment.
fn without_dots(path: &str, merged: bool) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            "" if merged => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    kept.retain(|segment| !segment.is_empty());
    let end = if ends_in_slash && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

fn without_last_slash(path: &str) -> &str {
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

/// Fields by which frameworks let a request name another method.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// The method in upper case. Methods are case-sensitive, and several frameworks take `post` for POST nevertheless.
pub(crate) fn in_upper_case(method: &Method) -> Cow<'_, Method> {
    match *method {
        Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD | Method::OPTIONS => {
            Cow::Borrowed(method)
        }
        _ => {
            let upper = Method::from_bytes(method.as_str().to_ascii_uppercase().as_bytes());
            upper.map_or(Cow::Borrowed(method), Cow::Owned)
        }
    }
}

/// What an override can ask for. Anything else would make a state-changing request look safe, or like one that no route
/// is for.
const ASKED: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The method that counts, in upper case: the one an override asks for, where it is one that can be asked for.
pub(crate) fn effective_method(method: &Method, headers: &HeaderMap) -> Method {
    let asked = if has_override(headers) { asked(headers).next() } else { None };
    asked.unwrap_or_else(|| in_upper_case(method).into_owned())
}

/// Every method that a request may be taken for: what each override asks for, and always its own. Hardly any service obeys an
/// override, so one adds protection and never takes it away.
pub(crate) fn methods(method: &Method, headers: &HeaderMap) -> Vec<Method> {
    let mut methods = Vec::new();
    for other in asked(headers).chain([in_upper_case(method).into_owned()]) {
        if !methods.contains(&other) {
            methods.push(other);
        }
    }
    methods
}

/// The method as requests are compared by it: the one that counts, and where overrides disagree all that are asked for.
pub(crate) fn compared_method<'a>(method: &'a Method, headers: &HeaderMap) -> Cow<'a, str> {
    if !has_override(headers) {
        return match in_upper_case(method) {
            Cow::Borrowed(method) => Cow::Borrowed(method.as_str()),
            Cow::Owned(method) => Cow::Owned(method.as_str().to_owned()),
        };
    }
    let mut methods = methods(method, headers);
    // Its own comes last, and counts only where nothing else is asked for.
    if methods.len() > 1 && !asked(headers).any(|asked| Some(&asked) == methods.last()) {
        methods.pop();
    }
    Cow::Owned(methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","))
}

/// What the overrides ask for, of what can be asked for. A proxy may have joined several lines by commas.
fn asked(headers: &HeaderMap) -> impl Iterator<Item = Method> {
    overrides(headers).flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).filter_map(|text| {
        let text = text.trim_ascii();
        ASKED.into_iter().find(|method| method.as_str().as_bytes().eq_ignore_ascii_case(text))
    })
}

/// Every line of every override.
fn overrides(headers: &HeaderMap) -> impl Iterator<Item = &HeaderValue> {
    OVERRIDES.iter().flat_map(|name| headers.get_all(*name))
}

/// Whether there is any override. One walk over a few names is cheaper than three look-ups, and nearly always all there is.
pub(crate) fn has_override(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| OVERRIDES.contains(&name.as_str()))
}

/// Fields by which a server in front may name another target than the one that it asks for; IIS and older frameworks obey them.
const REWRITES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// Whether a field may make the request one for another method or another path. One walk over a few names is cheaper than a
/// look-up of each, and nearly always all there is.
pub(crate) fn is_ambiguous(headers: &HeaderMap) -> bool {
    let is_named = |name: &str| OVERRIDES.contains(&name) || REWRITES.contains(&name);
    // All of them begin so, and hardly another field does.
    headers.keys().map(HeaderName::as_str).any(|name| name.starts_with("x-") && is_named(name))
}

/// The paths that such fields name. Of several lines, whoever is behind takes the first or the last.
pub(crate) fn rewritten(headers: &HeaderMap) -> impl Iterator<Item = String> {
    REWRITES.iter().flat_map(|name| {
        let mut lines = headers.get_all(*name).iter();
        [lines.next(), lines.next_back()]
            .into_iter()
            .flatten()
            .map(|line| path_of(&String::from_utf8_lossy(line.as_bytes())))
    })
}

/// The path of a target, which may name a host before it and a query behind.
fn path_of(target: &str) -> String {
    let target = target.trim();
    let behind_scheme = target.split_once("://").filter(|(scheme, _)| !scheme.contains('/')).map(|(_, rest)| rest);
    let path = match behind_scheme {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// The path as requests are compared by it: as it came, with whatever field names another one.
pub(crate) fn compared_path<'a>(path: &'a str, headers: &HeaderMap) -> Cow<'a, str> {
    let mut compared = Cow::Borrowed(path);
    if !is_ambiguous(headers) {
        return compared;
    }
    for name in REWRITES {
        for line in headers.get_all(name) {
            // No path and no field has a line feed in it.
            let line = line.as_bytes().iter().map(|byte| char::from(*byte));
            compared = Cow::Owned(format!("{compared}\n{name}:{}", line.collect::<String>()));
        }
    }
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_has_one_reading() {
        for path in ["/payments/1", "/", "", "*", "/a.b/c..d/e", "/a:b@c/x,y=(1)!~_-*'$&+"] {
            assert!(is_plain(path), "{path}");
            assert_eq!(readings(path), [path]);
        }
        for path in
            ["//", "/a/", "/./a", "/a/..", "/.a", "/a.", "/a./b", "/%41", "/a;b", "/a\\b", "/é", "/a|b", "/a//b"]
        {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_is_resolved_to_the_plain_one() {
        for path in [
            "/kp",
            "/%6bp",
            "/%6Bp",
            "//kp",
            "/kp/",
            "/./kp",
            "/x/../kp",
            "/kp;v=1",
            "/kp%3Bv",
            "/x/..;/kp",
            "/x/..%2fkp",
        ] {
            assert_eq!(resolved(path), "/kp", "{path}");
            assert!(readings(path).contains(&"/kp".to_owned()), "{path}");
        }
        for path in ["/", "", "/kp", "/a/b.c", "/a%20b", "/%C3%A9"] {
            assert_eq!(resolved(path), path, "as it always was");
        }
        assert_eq!((resolved("/a%2fb"), resolved("//"), resolved("/..")), ("/a/b".into(), "/".into(), "/".into()));
    }

    #[test]
    fn an_escape_that_is_needed_leaves_one_reading() {
        assert_eq!(readings("/a%20b/%C3%A9"), ["/a%20b/%C3%A9"]);
        assert_eq!(readings("/100%25"), ["/100%25"]);
    }

    fn reads_as(path: &str, as_what: &str) -> bool {
        readings(path).iter().any(|reading| reading == as_what)
    }

    #[test]
    fn an_ambiguous_path_has_every_reading_a_framework_might_choose() {
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
            "/pay/.",
            "/pay%2f",
            "/pay%3Bv=1",
            "/open/..;/pay",
            "/open/..;a=b/%70ay;v",
            "/open/..%5Cpay",
            "/x//..//../pay",
            "/%2570ay",
            "/%25%37%30ay",
            "/p%25%36%31y",
            "/x/%25%32%65%25%32%65/pay",
            "/x%25%32%66..%25%32%66pay",
            "/pay%0a",
            "/pay%09%0d",
            "/pay%3Fx",
            "/pay%3fx/y",
            "/pay%23x",
            "/%252570ay",
            "/x/%252e%252e/pay",
            "/pay%00",
            "/pay%00.png",
            "/pay.",
            "/pay..",
            "/pay%20",
            "/pay%20.%20",
            "/x/..%20/pay",
            "/x/..%00/pay.",
        ] {
            assert!(reads_as(path, "/pay"), "{path} {:?}", readings(path));
            assert!(readings(path).contains(&path.to_owned()), "{path}");
        }
        for path in ["/%zzpay", "/%+1pay", "/pay%", "/pay%4", "/%2525252570ay", "/%00pay", "/%20pay", "/.pay"] {
            assert!(!reads_as(path, "/pay"), "{path} {:?}", readings(path));
        }
    }

    #[test]
    fn a_path_is_read_in_the_spelling_of_patterns() {
        for (path, reading) in [
            ("/%c3%a9", "/%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2fb", "/a/b"),
            ("/x%2Fy/%70ay", "/x%2Fy/pay"),
            ("/%7euser", "/~user"),
            ("/a%3ab", "/a:b"),
            ("/100%", "/100%25"),
            ("/a%7cb", "/a%7Cb"),
            ("/a|b", "/a%7Cb"),
            ("/pay;x=1/capture", "/pay/capture"),
            ("/open/..;/pay/capture", "/pay/capture"),
            ("/pay;a%2Fb/capture", "/pay/b/capture"),
            ("/pay;a%2Fb/capture", "/pay/capture"),
            ("/a//../b", "/a/b"),
            ("/a//../b", "/b"),
            ("/x/../v1/", "/v1/"),
            ("/v1/x/..", "/v1/"),
        ] {
            assert!(reads_as(path, reading), "{path} {:?}", readings(path));
        }
    }

    #[test]
    fn a_method_counts_in_upper_case() {
        let lower = |name: &str| Method::from_bytes(name.as_bytes()).unwrap();
        for (sent, counts) in
            [("post", "POST"), ("Patch", "PATCH"), ("GET", "GET"), ("trace", "TRACE"), ("pUrge", "PURGE")]
        {
            assert_eq!(effective_method(&lower(sent), &HeaderMap::new()), lower(counts));
            assert_eq!(methods(&lower(sent), &HeaderMap::new()), [lower(counts)]);
        }
        assert!(matches!(in_upper_case(&Method::POST), Cow::Borrowed(_)));
    }

    fn overridden(method: &Method, all: &[(&'static str, &str)]) -> Vec<Method> {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, value.parse().unwrap());
        }
        let methods = methods(method, &headers);
        assert_eq!(methods[0], effective_method(method, &headers));
        assert!(methods.contains(&in_upper_case(method)), "its own");
        methods
    }

    #[test]
    fn an_override_counts_where_it_asks_for_a_change() {
        let method = |method: &Method, asked: &str| overridden(method, &[(OVERRIDES[0], asked)]);
        assert_eq!(method(&Method::POST, "PATCH"), [Method::PATCH, Method::POST]);
        assert_eq!(method(&Method::POST, " delete "), [Method::DELETE, Method::POST]);
        assert_eq!(method(&Method::GET, "post"), [Method::POST, Method::GET]);
        assert_eq!(method(&Method::POST, "POST"), [Method::POST]);
        assert_eq!(method(&Method::GET, "FOO, post"), [Method::POST, Method::GET]);
        assert_eq!(method(&Method::GET, "HEAD"), [Method::GET]);
        assert_eq!(overridden(&Method::POST, &[]), [Method::POST]);
    }

    #[test]
    fn an_override_that_asks_for_anything_else_leaves_the_method() {
        for asked in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "LINK", "FOO", "PUT POST", "", "p\u{e9}"] {
            assert_eq!(overridden(&Method::POST, &[(OVERRIDES[1], asked)]), [Method::POST], "{asked}");
        }
    }

    #[test]
    fn overrides_that_disagree_all_count() {
        let all = overridden(&Method::GET, &[(OVERRIDES[0], "HEAD"), (OVERRIDES[2], "POST"), (OVERRIDES[2], "PUT")]);
        assert_eq!(all, [Method::POST, Method::PUT, Method::GET]);
        let one_unknown = overridden(&Method::POST, &[(OVERRIDES[0], "FOO"), (OVERRIDES[1], "PUT")]);
        assert_eq!(one_unknown, [Method::PUT, Method::POST]);
    }

    #[test]
    fn requests_are_compared_by_every_method_that_is_asked_for() {
        let compared = |method: &Method, asked: &[&str]| {
            let mut map = HeaderMap::new();
            for asked in asked {
                map.append(OVERRIDES[0], asked.parse().unwrap());
            }
            compared_method(method, &map).into_owned()
        };
        assert_eq!(compared(&Method::POST, &[]), "POST");
        assert_eq!(compared(&Method::from_bytes(b"post").unwrap(), &[]), "POST");
        assert_eq!(compared(&Method::POST, &["PUT"]), "PUT");
        assert_eq!(compared(&Method::POST, &["FOO"]), "POST");
        assert_eq!(compared(&Method::POST, &["PUT", "DELETE", "put"]), "PUT,DELETE");
        assert_eq!(compared(&Method::POST, &["PUT", "POST"]), "PUT,POST");
        assert_eq!(compared(&Method::GET, &["POST"]), "POST");
    }

    #[test]
    fn a_format_at_the_end_is_left_out_where_it_looks_like_one() {
        let formats =
            ["/pay.json", "/pay.xml/", "/a/b.tar.gz", "/pay.", "/.json", "/a.b/c", "/pay", "/a/.x", "/pay.a-b", ""];
        let without = [Some("/pay"), Some("/pay"), Some("/a/b.tar"), None, None, None, None, None, None, None];
        assert_eq!(formats.map(without_format), without);
    }

    #[test]
    fn each_field_that_names_another_target_is_noticed() {
        for name in OVERRIDES.iter().chain(&REWRITES) {
            assert!(is_ambiguous(&HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static("a")
            )])));
        }
        let others = ["x-request-id", "accept", "x-original"].map(HeaderName::from_static);
        assert!(!is_ambiguous(&HeaderMap::from_iter(others.map(|name| (name, HeaderValue::from_static("a"))))));
    }

    #[test]
    fn a_field_may_name_another_path() {
        let named = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(REWRITES[0], line.parse().unwrap());
            }
            assert_eq!(is_ambiguous(&headers), !lines.is_empty());
            (rewritten(&headers).collect::<Vec<_>>(), compared_path("/open", &headers).into_owned())
        };
        assert_eq!(named(&[]), (vec![], "/open".to_owned()));
        assert_eq!(named(&["/pay?a=1#b"]), (vec!["/pay".to_owned()], "/open\nx-original-url:/pay?a=1#b".to_owned()));
        assert_eq!(named(&["https://shop/pay?u=http://x/y"]).0, ["/pay"]);
        assert_eq!(named(&["http://shop"]).0, ["/"]);
        assert_eq!(named(&["pay"]).0, ["/pay"]);
        assert_eq!(named(&["/a", "/b", "/c"]).0, ["/a", "/c"]);
    }
}
