//! Labels and JSON pointers: what a pointer finds is the text that stands in the document, digits included.
//!
//! The input is a line with a pointer, then the document. The judge is `serde_json`, which keeps the last of two members
//! with one name and turns numbers into doubles: where that matters, only what both can know is compared.

use hapax_core::canonical_json::{Pointer, RawValue, canonicalise, raw_values};
use serde_json::Value;

use crate::input::Input;

pub(crate) const WORDS: &[&str] = &[
    "/order_id\n",
    "/a/0/b\n",
    "/a~1b\n",
    "\n",
    "{\"order_id\":",
    "{\"a\":[{\"b\":",
    "18446744073709551616",
    "9007199254740993",
    "-0",
    "1e2",
    "1E+400",
    "0.10",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"order_id\":1,",
    "\"\\u006frder_id\":2,",
    "}",
    "]",
    "[[[[[[[[",
    "null",
    "true",
    " ",
    ",",
    ":",
];

/// Runs the target.
pub fn labels(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(pointer) = std::str::from_utf8(input.line()).ok().and_then(|text| Pointer::new(text).ok()) else { return };
    let document = input.rest();
    if let Ok(canonical) = canonicalise(document) {
        assert_eq!(canonicalise(&canonical).as_ref(), Ok(&canonical), "canonical, and not its own canonical form");
    }
    let Ok(found) = raw_values(document, std::slice::from_ref(&pointer)) else { return };
    // Whoever is stricter than the judge has to say why; the other way round it would be a defect.
    let judged: Value = match serde_json::from_slice(document) {
        Ok(value) => value,
        Err(error) if is_limit(&error) => return,
        Err(error) => panic!("values are found in what is not JSON: {error}"),
    };
    let judged = judged.pointer(pointer.as_str());
    let Some(value) = &found[0] else {
        let is_ambiguous = canonicalise(document).is_err();
        assert!(judged.is_none() || is_ambiguous, "{pointer:?} finds nothing where {judged:?} is");
        return;
    };
    let Some(judged) = judged else { panic!("{pointer:?} finds {value:?} where nothing is") };
    judge(value, judged, document);
}

/// Limits of the judge, not of JSON: its depth, and numbers that no double holds.
fn is_limit(error: &serde_json::Error) -> bool {
    let text = error.to_string();
    text.contains("recursion limit") || text.contains("number out of range")
}

fn judge(value: &RawValue<'_>, judged: &Value, document: &[u8]) {
    match (value, judged) {
        (RawValue::Text(text), Value::String(judged)) => assert_eq!(text, judged),
        (RawValue::Number(digits), Value::Number(judged)) => {
            let stands = document.windows(digits.len()).any(|window| window == digits.as_bytes());
            assert!(stands, "{digits} does not stand in the document");
            assert_eq!(digits.parse::<f64>().ok(), judged.as_f64(), "{digits} is not {judged}");
        }
        (RawValue::Bool(value), Value::Bool(judged)) => assert_eq!(value, judged),
        (RawValue::Null, Value::Null) => {}
        (RawValue::Container(raw), Value::Array(_) | Value::Object(_)) => {
            let again: Result<Value, _> = serde_json::from_str(raw);
            assert_eq!(again.ok().as_ref(), Some(judged), "{raw}");
        }
        (value, judged) => panic!("{value:?} is not {judged}"),
    }
    if let (Some(identifier), Value::Number(number)) = (value.identifier(), judged) {
        let is_plain = identifier.strip_prefix('-').unwrap_or(identifier).bytes().all(|byte| byte.is_ascii_digit());
        assert!(is_plain, "{number} is labelled {identifier}");
    }
}
