//! CSV (RFC 4180) for spreadsheets, which must not take what a caller sent for a formula.

use crate::logs::escaped;

/// Lines of a file with that head.
pub(super) fn csv(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("{}\r\n", head.join(","));
    for row in rows {
        let fields: Vec<String> = row.iter().map(|field| self::field(field)).collect();
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    text
}

/// A field: control characters escaped, a formula made text by an apostrophe, quoted where it must be.
fn field(text: &str) -> String {
    let mut safe = escaped(text).into_owned();
    if text.trim_start().starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) || text.starts_with(['\t', '\r', '\n']) {
        safe.insert(0, '\'');
    }
    if safe.contains([',', '"', ' ']) { format!("\"{}\"", safe.replace('"', "\"\"")) } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_text_and_a_quote_stays_inside() {
        let row = |text: &str| csv(&["a", "b"], &[vec![text.into(), "x".into()]]);
        assert_eq!(row("plain"), "a,b\r\nplain,x\r\n");
        assert_eq!(row("=HYPERLINK(\"http://e\",\"x\")"), "a,b\r\n\"'=HYPERLINK(\"\"http://e\"\",\"\"x\"\")\",x\r\n");
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1"] {
            let line = row(text).lines().nth(1).unwrap().replace('"', "");
            assert!(line.starts_with('\''), "{line}");
        }
        assert_eq!(row("a\r\nb"), "a,b\r\na\\u000d\\u000ab,x\r\n", "one record, one line");
    }
}
