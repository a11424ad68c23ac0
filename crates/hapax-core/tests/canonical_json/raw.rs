//! Values as they stand in a document: against the raw text they were put in as, and against an independent parser.

use hapax_core::canonical_json::{DEPTH_MAX, NotCanonical, Pointer, RawValue, raw_values};
use proptest::prelude::*;

use super::json_model::{Dice, Value, config, number, spell, text, value};

fn at(document: &str, pointer: &str) -> Option<String> {
    let found = raw_values(document.as_bytes(), &[Pointer::new(pointer).unwrap()]).ok()?.remove(0)?;
    Some(found.into_text().into_owned())
}

fn identifier(document: &str, pointer: &str) -> Option<String> {
    let found = raw_values(document.as_bytes(), &[Pointer::new(pointer).unwrap()]).ok()?.remove(0)?;
    found.identifier().map(str::to_owned)
}

/// Puts a value deeper and deeper into a document, beside others, and says where it is then.
fn buried(raw: &str, noise: &[Value], seed: u64) -> (String, String) {
    let dice = &mut Dice(seed);
    let (mut document, mut pointer) = (raw.to_owned(), String::new());
    for (nth, beside) in noise.iter().enumerate() {
        let beside = spell(beside, seed ^ nth as u64);
        match dice.below(4) {
            0 => (document, pointer) = (format!("[{beside},{document}, {beside}]"), format!("/1{pointer}")),
            1 => (document, pointer) = (format!(r#"{{"a":{document},"b":{beside}}}"#), format!("/a{pointer}")),
            2 => {
                // Spelled otherwise, and a name that is almost the same.
                document = format!(r#"{{"\u0061/~":{document} ,"a~1~0":{beside},"A/~":{beside}}}"#);
                pointer = format!("/a~1~0{pointer}");
            }
            _ => {
                (document, pointer) =
                    (format!(r#"{{"":{beside}, "\ud83d\ude02":{document}}}"#), format!("/😂{pointer}"));
            }
        }
    }
    (document, pointer)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_number_keeps_every_letter_of_its_own_text(
        number in number(), noise in proptest::collection::vec(value(), 0..5), seed in any::<u64>()
    ) {
        let raw = spell(&Value::Number(number), seed);
        let raw = raw.trim();
        let (document, pointer) = buried(raw, &noise, seed);
        prop_assert_eq!(at(&document, &pointer), Some(raw.to_owned()), "{} in {}", pointer, document);
        let plain = raw.strip_prefix('-').unwrap_or(raw).bytes().all(|byte| byte.is_ascii_digit()) && raw != "-0";
        prop_assert_eq!(identifier(&document, &pointer), plain.then(|| raw.to_owned()));
    }

    #[test]
    fn a_text_is_what_its_escapes_stand_for(
        text in text(), noise in proptest::collection::vec(value(), 0..5), seed in any::<u64>()
    ) {
        let (document, pointer) = buried(&spell(&Value::Text(text.clone()), seed), &noise, seed);
        prop_assert_eq!(identifier(&document, &pointer), Some(text), "{} in {}", pointer, document);
    }

    #[test]
    fn an_independent_parser_finds_the_same(
        kept in value(), noise in proptest::collection::vec(value(), 0..5), seed in any::<u64>()
    ) {
        let (document, pointer) = buried(&spell(&kept, seed), &noise, seed);
        // Where their numbers overflow, they have no document.
        let Ok(theirs) = serde_json::from_str::<serde_json::Value>(&document) else { return Ok(()) };
        if let (Some(ours), Some(theirs)) = (at(&document, &pointer), theirs.pointer(&pointer)) {
            let read: serde_json::Value = match theirs {
                serde_json::Value::String(_) => serde_json::Value::String(ours),
                _ => serde_json::from_str(&ours).unwrap(),
            };
            prop_assert_eq!(&read, theirs);
        }
    }

    #[test]
    fn a_document_is_one_or_not_as_an_independent_parser_has_it(
        kept in value(), seed in any::<u64>(), cut in any::<prop::sample::Index>(), put in any::<char>()
    ) {
        // Any letter of a sound document is replaced.
        let letters: Vec<char> = spell(&kept, seed).chars().collect();
        let at = cut.index(letters.len());
        let broken: String = letters.iter().enumerate().map(|(nth, c)| if nth == at { put } else { *c }).collect();
        let ours = raw_values(broken.as_bytes(), &[Pointer::new("").unwrap()]);
        let theirs = serde_json::from_str::<serde_json::Value>(&broken);
        let out_of_range = theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
        prop_assert!(ours.is_ok() == theirs.is_ok() || out_of_range, "{:?} {:?} {:?}", broken, ours, theirs);
    }

    #[test]
    fn a_name_that_stands_twice_names_nothing(
        one in value(), other in value(), beside in value(), seed in any::<u64>()
    ) {
        let [one, other, beside] = [one, other, beside].map(|value| spell(&value, seed));
        let document = format!(r#"{{"x":{beside},"id":{{"n":{one}}},"y":[{{"id":{beside}}}],"\u0069d":{{"n":{other}}}}}"#);
        prop_assert_eq!(at(&document, "/id"), None);
        prop_assert_eq!(at(&document, "/id/n"), None);
        prop_assert!(at(&document, "/y/0/id").is_some(), "another object's is its own");
    }
}

#[test]
fn numbers_that_a_double_cannot_hold_or_would_spell_otherwise() {
    for number in [
        "18446744073709551615",
        "18446744073709551616",
        "100000000000000000000123",
        "-9223372036854775809",
        "9007199254740993",
        "0",
        "-1",
    ] {
        assert_eq!(identifier(&format!("{{\"n\":{number}}}"), "/n").as_deref(), Some(number));
    }
    for number in ["1e2", "1E+400", "-0", "0.10", "100.0", "1e-400", "-0.0", "0e0"] {
        let document = format!("[ {number}\t]");
        assert_eq!(at(&document, "/0").as_deref(), Some(number), "its own text, letter by letter");
        assert_eq!(identifier(&document, "/0"), None, "{number} may be known under another spelling");
    }
    for number in ["01", "+1", "1.", ".5", "1e", "--1", "0x10", "NaN", "Infinity", "1_000"] {
        assert_eq!(at(&format!("[{number}]"), "/0"), None, "{number} is no JSON");
    }
}

#[test]
fn only_texts_and_integers_are_identifiers() {
    for (value, found) in [
        (r#""o-1""#, Some("o-1")),
        (r#""""#, Some("")),
        (r#""\ud83d\ude02\u00e4\/""#, Some("😂ä/")),
        ("7", Some("7")),
        ("true", None),
        ("null", None),
        ("[1]", None),
        (r#"{"id":1}"#, None),
    ] {
        assert_eq!(identifier(&format!(r#"{{"id":{value}}}"#), "/id").as_deref(), found, "{value}");
    }
}

#[test]
fn what_is_not_a_document_has_no_values() {
    for document in [
        "",
        "{",
        r#"{"id":1"#,
        r#"{"id":1}}"#,
        r#"{"id":1} 2"#,
        r#"{"id":1,}"#,
        r#"{"id" 1}"#,
        r#"{id:1}"#,
        r#"{"id":"\ud83d"}"#,
        r#"{"id":1,"x":"\udc00"}"#,
        r#"{"id":1,"x":"\u00g0"}"#,
        "{\"id\":1,\"x\":\"\n\"}",
        "\u{feff}{\"id\":1}",
        r#"{"id":1,"x":[1 2]}"#,
        r#"{"id":1,"x":tru}"#,
    ] {
        let found = raw_values(document.as_bytes(), &[Pointer::new("/id").unwrap()]);
        assert!(found.is_err(), "{document}: {found:?}");
    }
    assert!(matches!(raw_values(b"{\"id\":\"\xff\"}", &[]), Err(NotCanonical::Utf8 { at: 7 })));
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(raw_values(deep(DEPTH_MAX).as_bytes(), &[]).is_ok());
    assert!(matches!(raw_values(deep(DEPTH_MAX + 1).as_bytes(), &[]), Err(NotCanonical::Depth { .. })));
}

#[test]
fn several_pointers_are_found_in_one_walk() {
    let pointers = ["", "/a", "/a/b", "/a/b", "/list/1", "/list/01", "/list/-", "/none", "/a/b/c"];
    let pointers = pointers.map(|pointer| Pointer::new(pointer).unwrap());
    let document = r#"{"a": {"b": 1}, "list": [0, [2 ]]}"#;
    let found = raw_values(document.as_bytes(), &pointers).unwrap();
    let texts: Vec<Option<&str>> = found
        .iter()
        .map(|found| match found {
            Some(RawValue::Container(raw) | RawValue::Number(raw)) => Some(*raw),
            _ => None,
        })
        .collect();
    let expected = [Some(document), Some("{\"b\": 1}"), Some("1"), Some("1"), Some("[2 ]"), None, None, None, None];
    assert_eq!(texts, expected);
}

#[test]
fn a_member_is_named_whatever_its_name_is() {
    let document = r#"{"a/b~c":1,"":2,"~1":3}"#;
    for (name, found) in [("a/b~c", "1"), ("", "2"), ("~1", "3")] {
        let found_there = raw_values(document.as_bytes(), &[Pointer::to_member(name)]).unwrap().remove(0);
        assert_eq!(found_there, Some(RawValue::Number(found)), "{name}");
    }
}
