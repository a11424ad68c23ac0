//! The trace that a request belongs to: `traceparent` of W3C Trace Context.
//!
//! hapax takes no part in a trace: it passes `traceparent` and `tracestate` on as they came and makes none where there are
//! none. It reads the trace's id, so that its log lines and records can be found by it.

use http::{HeaderMap, HeaderName};

/// Characters of a `traceparent` of version 00; later versions may have more behind.
const LENGTH: usize = 55;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The id of the trace, 32 hexadecimal digits, where the request names one in the way that the standard says.
pub(crate) fn id(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let text = lines.next()?.to_str().ok()?;
    if lines.next().is_some() { None } else { read(text) }
}

fn read(text: &str) -> Option<&str> {
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lengths = [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2] && parts.next().is_none();
    let digits = [version, trace, parent, flags].into_iter().all(is_hex);
    let ends = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let sound = lengths && digits && ends && version != "ff" && !is_zero(trace) && !is_zero(parent);
    sound.then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_traceparent_as_the_standard_has_it_names_a_trace() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let with = |version: &str, rest: &str| format!("{version}-{trace}-00f067aa0ba902b7-01{rest}");
        assert_eq!(read(&with("00", "")), Some(trace));
        assert_eq!(read(&with("cc", "-what-the-future-brings")), Some(trace));
        let odd = [
            String::new(),
            with("00", "-more"),
            with("cc", ".more"),
            with("ff", ""),
            with("00", "").to_uppercase(),
            with("00", "").replace(trace, &"0".repeat(32)),
            with("00", "").replace("00f067aa0ba902b7", &"0".repeat(16)),
            with("00", "").replace('-', "_"),
            with("00", "").replace("4b", "\u{e9}"),
            with("0", ""),
        ];
        for text in odd {
            assert_eq!(read(&text), None, "{text}");
        }
        let mut headers = HeaderMap::new();
        headers.append("traceparent", with("00", "").parse().unwrap());
        assert_eq!(id(&headers), Some(trace));
        headers.append("traceparent", with("00", "").parse().unwrap());
        assert_eq!(id(&headers), None, "said twice");
    }
}
