//! JSON in one spelling: the published test data of RFC 8785, the numbers on which we deviate from
//! it, what is refused, and properties over documents made at random. Where we accept a document,
//! an independent parser must, too.

#![expect(clippy::unwrap_used, reason = "helpers of tests stop where they cannot go on")]

use hapax_core::canonical_json::{DEPTH_MAX, DOCUMENT_BYTES_MAX, EXPONENT_MAX, NotCanonical, canonicalise};
use json_model::{Dice, Number, Value, change, config, small_number, spell, text, value};
use proptest::prelude::*;
use std::path::PathBuf;

mod json_model;
#[path = "canonical_json/raw.rs"]
mod raw;

mod published {
    use super::*;

    const DOCUMENTS: [&str; 6] = ["arrays", "french", "structures", "unicode", "values", "weird"];

    /// Every deviation from the published outputs: document, their text, ours.
    const DEVIATIONS: [(&str, &str, &str); 1] = [("values", "333333333.3333333", "33333333333333329e-8")];

    fn data(path: &str) -> Vec<u8> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/jcs");
        std::fs::read(root.join(path)).unwrap()
    }

    fn from_hex(text: &[u8]) -> Vec<u8> {
        let text = str::from_utf8(text).unwrap();
        text.split_ascii_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    #[test]
    fn documents_come_out_as_published_except_where_listed() {
        for name in DOCUMENTS {
            let published = data(&format!("output/{name}.json"));
            assert_eq!(published, from_hex(&data(&format!("outhex/{name}.txt"))), "{name}");

            let mut expected = String::from_utf8(published).unwrap();
            for (_, theirs, ours) in DEVIATIONS.iter().filter(|(document, ..)| *document == name) {
                assert_eq!(expected.matches(theirs).count(), 1, "{name}");
                expected = expected.replace(theirs, ours);
            }
            let canonical = canonicalise(&data(&format!("input/{name}.json"))).unwrap();
            assert_eq!(String::from_utf8(canonical).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn what_ecmascript_prints_for_a_double_is_canonical() {
        let lines = data("es6numbers-10000.txt");
        let lines = str::from_utf8(&lines).unwrap().lines();
        let mut count = 0;
        for (bits, text) in lines.map(|line| line.split_once(',').unwrap()) {
            assert_eq!(canonicalise(text.as_bytes()).unwrap(), text.as_bytes());

            let double = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
            assert_eq!(text.parse(), Ok(double), "the data itself");
            count += 1;
        }
        assert_eq!(count, 10_000);
    }
}

mod numbers {
    use super::*;

    #[track_caller]
    fn assert_all_become(spellings: &[&str], expected: &str) {
        for spelling in spellings {
            let canonical = canonicalise(spelling.as_bytes()).unwrap();
            assert_eq!(str::from_utf8(&canonical).unwrap(), expected, "{spelling}");
        }
    }

    #[test]
    fn one_value_has_one_spelling() {
        assert_all_become(&["1", "1.0", "1e0", "1E+0", "1e-0", "10e-1", "0.1e1", "100E-2"], "1");
        assert_all_become(&["0", "-0", "0.0", "-0.000", "0e5", "-0E-5", "0e99999999999999999999"], "0");
        assert_all_become(&["-12.5", "-1250e-2", "-0.125e+2", "-12.50"], "-12.5");
        assert_all_become(&["1e21", "1000000000000000000000", "0.1e22"], "1e+21");
        assert_all_become(&["100000000000000000000", "1e20"], "100000000000000000000");
        assert_all_become(&["0.0000001", "1e-7", "10e-8", "1e-0000000000000000000000007"], "1e-7");
        assert_all_become(&["9007199254740992", "9007199254740992.0"], "9007199254740992");
    }

    #[test]
    fn digits_that_no_double_holds_are_kept() {
        let exact = [
            ("9007199254740993", "9007199254740993e0"),
            ("90071992547409930.00", "9007199254740993e1"),
            ("-9007199254740993", "-9007199254740993e0"),
            ("12345678901234567890", "1234567890123456789e1"),
            ("333333333.33333329", "33333333333333329e-8"),
            ("0.1000000000000000055511151231257827", "1000000000000000055511151231257827e-34"),
            ("0.30000000000000001", "30000000000000001e-17"),
            ("18446744073709551615", "18446744073709551615e0"),
            ("123456789012345678.90", "1234567890123456789e-1"),
        ];
        for (written, expected) in exact {
            assert_all_become(&[written, expected], expected);
        }
    }

    #[test]
    fn values_beyond_the_range_of_doubles_are_kept() {
        assert_all_become(&["1e309", "10e308", "0.1e310"], "1e309");
        assert_all_become(&["-1e400", "-100E398"], "-1e400");
        assert_all_become(&["1e-400", "0.01e-398"], "1e-400");
        assert_all_become(&["2e-324"], "2e-324");
        assert_all_become(&["4.9e-324"], "49e-325");
        assert_all_become(&["5e-324"], "5e-324");
        assert_all_become(&["1e999999999999", "0.1e1000000000000"], "1e999999999999");
    }

    #[test]
    fn the_exponent_is_limited_by_value_and_not_by_spelling() {
        let most = format!("1e{EXPONENT_MAX}");
        assert_all_become(&[&most, &format!("100e{}", EXPONENT_MAX - 2)], &most);
        let least = format!("1e-{EXPONENT_MAX}");
        assert_all_become(&[&least, &format!("0.01e-{}", EXPONENT_MAX - 2)], &least);

        let beyond = [
            format!("1e{}", EXPONENT_MAX + 1),
            format!("10e{EXPONENT_MAX}"),
            format!("0.1e-{EXPONENT_MAX}"),
            "1e99999999999999999999999999999999999999".to_owned(),
            "1e-99999999999999999999999999999999999999".to_owned(),
        ];
        for number in beyond {
            let refused = Err(NotCanonical::Exponent { at: 1 });
            assert_eq!(canonicalise(format!("[{number}]").as_bytes()), refused, "{number}");
        }
    }

    #[test]
    fn a_million_digits_are_kept_or_dropped_as_zeros() {
        let sevens = "7".repeat(1_000_000);
        assert_all_become(&[&sevens], &format!("{sevens}e0"));
        let zeros = "0".repeat(1_000_000);
        assert_all_become(&[&format!("1.{zeros}"), &format!("0.{zeros}1e1000001")], "1");
        assert_all_become(&[&format!("1{zeros}")], "1e1000000");
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn neighbouring_integers_differ(number in any::<u64>(), step in 1_u64..4) {
            let neighbour = number.wrapping_add(step);
            prop_assert_ne!(
                canonicalise(number.to_string().as_bytes()).unwrap(),
                canonicalise(neighbour.to_string().as_bytes()).unwrap(),
            );
        }
    }
}

mod strings_and_names {
    use super::*;

    #[test]
    fn only_what_must_be_escaped_is() {
        let spelled = r#""\u0000\u001F\b\u0008\t\n\f\r\u0022\"\u005c\\\/\u007f\u0080\u20AC\uD83D\uDE02""#;
        let expected = "\"\\u0000\\u001f\\b\\b\\t\\n\\f\\r\\\"\\\"\\\\\\\\/\u{7f}\u{80}€😂\"";
        let canonical = canonicalise(spelled.as_bytes()).unwrap();
        assert_eq!(str::from_utf8(&canonical).unwrap(), expected);
    }

    #[test]
    fn names_sort_by_utf_16_code_units() {
        let sorted = "{\"\":0,\"\\u0000\":0,\"\\t\":0,\"\\\"\":0,\"A\":0,\"AA\":0,\"\\\\\":0,\"a\":0,\"é\":0,\
             \"\u{d7ff}\":0,\"😂\":0,\"\u{10ffff}\":0,\"\u{e000}\":0,\"\u{ffff}\":0}";
        let mut members: Vec<&str> = sorted.trim_matches(['{', '}']).split(',').collect();
        for _ in 0..members.len() {
            members.rotate_left(1);
            let document = format!("{{{}}}", members.join(","));
            let canonical = canonicalise(document.as_bytes()).unwrap();
            assert_eq!(str::from_utf8(&canonical).unwrap(), sorted);
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn names_sort_as_their_utf_16_forms_do(names in proptest::collection::hash_set(text(), 0..8)) {
            let object = names.iter().map(|name| (name.clone(), Value::Null)).collect();
            let canonical = canonicalise(spell(&Value::Object(object), 0).as_bytes()).unwrap();

            let mut sorted: Vec<String> = names.into_iter().collect();
            sorted.sort_by_key(|name| name.encode_utf16().collect::<Vec<_>>());
            let members = sorted.iter().map(|name| format!("{}:null", serde_json::to_string(name).unwrap()));
            let expected = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
            prop_assert_eq!(String::from_utf8(canonical).unwrap(), expected);
        }
    }
}

mod refused {
    use super::*;
    use NotCanonical::{Depth, DuplicateName, Size, Surrogate, Syntax, Utf8};

    #[test]
    fn what_is_not_json() {
        let cases: [(&str, usize); 40] = [
            ("", 0),
            (" ", 1),
            ("\u{feff}1", 0),
            ("nul", 3),
            ("nulL", 3),
            ("True", 0),
            ("NaN", 0),
            ("Infinity", 0),
            ("1 2", 2),
            ("[1,]", 3),
            ("[,1]", 1),
            ("[1 2]", 3),
            ("[1}", 2),
            ("[", 1),
            ("[1", 2),
            ("]", 0),
            ("{", 1),
            ("{\"a\"}", 4),
            ("{\"a\":}", 5),
            ("{\"a\":1,}", 7),
            ("{\"a\":1]", 6),
            ("{\"a\" 1}", 5),
            ("{a:1}", 1),
            ("{1:1}", 1),
            ("{,}", 1),
            ("'a'", 0),
            ("\"a", 2),
            ("\"a\nb\"", 2),
            ("\"\\x\"", 2),
            ("\"\\", 2),
            ("\"\\u12\"", 5),
            ("\"\\u00g0\"", 5),
            ("-", 1),
            ("+1", 0),
            ("01", 1),
            ("1.", 2),
            (".5", 0),
            ("1e", 2),
            ("1e+", 3),
            ("// comment\n1", 0),
        ];
        for (document, at) in cases {
            assert_eq!(canonicalise(document.as_bytes()), Err(Syntax { at }), "{document:?}");
            assert!(serde_json::from_str::<serde_json::Value>(document).is_err(), "{document:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8() {
        assert_eq!(canonicalise(b"\"\xff\""), Err(Utf8 { at: 1 }));
        assert_eq!(canonicalise(b"[\"\xed\xa0\x80\"]"), Err(Utf8 { at: 2 }), "an encoded surrogate");
        assert_eq!(canonicalise(b"\"\xc0\x80\""), Err(Utf8 { at: 1 }), "an overlong zero");
    }

    #[test]
    fn half_a_surrogate_pair() {
        for string in
            [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\ud800x""#, r#""\udc00\ud800""#, r#""\ud800\n""#]
        {
            assert_eq!(canonicalise(string.as_bytes()), Err(Surrogate { at: 1 }), "{string}");
        }
    }

    #[test]
    fn two_members_of_one_name() {
        assert_eq!(canonicalise(br#"{"a":1,"a":1}"#), Err(DuplicateName { at: 7 }));
        assert_eq!(canonicalise(br#"{"a":1,"b":1,"\u0061":2}"#), Err(DuplicateName { at: 13 }));
        assert_eq!(canonicalise(br#"[{"x":{"b":1,"a":1,"b":1}}]"#), Err(DuplicateName { at: 19 }));
        assert!(canonicalise(br#"{"a":{"a":1},"b":[{"a":1},{"a":1}]}"#).is_ok());
    }

    #[test]
    fn a_document_over_the_size_limit() {
        let bytes = DOCUMENT_BYTES_MAX + 1;
        assert_eq!(canonicalise(&vec![b' '; bytes]), Err(Size { bytes }));
    }

    #[test]
    fn nesting_over_the_depth_limit() {
        let arrays = |depth| [vec![b'['; depth], vec![b']'; depth]].concat();
        let objects = |depth| format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for depth in [100, DEPTH_MAX] {
            assert_eq!(canonicalise(&arrays(depth)).unwrap(), arrays(depth));
            assert_eq!(canonicalise(objects(depth).as_bytes()).unwrap(), objects(depth).into_bytes());
        }
        assert_eq!(canonicalise(&arrays(DEPTH_MAX + 1)), Err(Depth { at: DEPTH_MAX }));
        let deep = objects(DEPTH_MAX + 1);
        assert_eq!(canonicalise(deep.as_bytes()), Err(Depth { at: 5 * DEPTH_MAX }));
    }

    #[test]
    fn a_million_brackets_need_no_stack() {
        let deep = move || {
            let refused = Err(Depth { at: DEPTH_MAX });
            assert_eq!(canonicalise(&vec![b'['; 1_000_000]), refused);
            let deepest = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
            assert_eq!(canonicalise(deepest.as_bytes()).unwrap(), deepest.as_bytes());
        };
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(deep);
        thread.unwrap().join().unwrap();
    }
}

mod large {
    use super::*;

    #[test]
    fn ten_megabytes_of_records() {
        let record = |n: u32| format!(r#"{{"name":"item {n}", "price":{n}.50, "id":{n}, "tags":["a","b"]}}"#);
        let expected = |n: u32| format!(r#"{{"id":{n},"name":"item {n}","price":{n}.5,"tags":["a","b"]}}"#);
        let document = |one: &dyn Fn(u32) -> String| {
            let records = (1..160_000).map(one).collect::<Vec<_>>();
            format!("[{}]", records.join(","))
        };
        let written = document(&record);
        assert!(written.len() > 10_000_000);
        assert_eq!(canonicalise(written.as_bytes()).unwrap(), document(&expected).into_bytes());
    }

    #[test]
    fn an_object_of_a_million_members_out_of_order() {
        let member = |n: u32| format!("\"{n:07}\":0");
        let object = |members: Vec<String>| format!("{{{}}}", members.join(",")).into_bytes();
        let reversed = object((0..1_000_000).rev().map(member).collect());
        let sorted = object((0..1_000_000).map(member).collect());
        assert!(canonicalise(&reversed).unwrap() == sorted);
    }
}

mod properties {
    use super::*;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn order_space_and_spelling_do_not_matter(value in value(), a in any::<u64>(), b in any::<u64>()) {
            let canonical = canonicalise(spell(&value, a).as_bytes()).unwrap();
            prop_assert_eq!(&canonical, &canonicalise(spell(&value, b).as_bytes()).unwrap());
            prop_assert_eq!(&canonical, &canonicalise(&canonical).unwrap(), "canonical bytes stay");
        }

        #[test]
        fn any_change_of_a_value_changes_the_bytes(value in value(), seed in any::<u64>()) {
            let mut changed = value.clone();
            change(&mut changed, &mut Dice(seed));
            prop_assert_ne!(&value, &changed);
            prop_assert_ne!(
                canonicalise(spell(&value, seed).as_bytes()).unwrap(),
                canonicalise(spell(&changed, seed).as_bytes()).unwrap(),
            );
        }

        #[test]
        fn numbers_have_equal_bytes_exactly_if_they_are_equal(a in small_number(), b in small_number(), seed in any::<u64>()) {
            let bytes = |number: &Number| canonicalise(spell(&Value::Number(number.clone()), seed).as_bytes());
            prop_assert_eq!(a == b, bytes(&a) == bytes(&b));
        }

        #[test]
        fn an_independent_parser_reads_the_same_value(value in value(), seed in any::<u64>()) {
            let canonical = canonicalise(spell(&value, seed).as_bytes()).unwrap();
            match serde_json::from_slice(&canonical) {
                Ok(read) => prop_assert!(is_same(&value, &read), "{value:?} was read as {read}"),
                Err(error) => prop_assert!(is_out_of_range(&error), "{error}"),
            }
        }

        #[test]
        fn an_independent_parser_refuses_the_same_documents(
            value in value(), seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..3
        ) {
            let mut document = spell(&value, seed).into_bytes();
            let at = at.index(document.len());
            match how {
                0 => document[at] = byte,
                1 => document.insert(at, byte % 128),
                _ => drop(document.remove(at)),
            }
            let read = serde_json::from_slice::<serde_json::Value>(&document);
            match (canonicalise(&document), read) {
                (Ok(_), Err(error)) => prop_assert!(is_out_of_range(&error), "{error}"),
                (Err(NotCanonical::DuplicateName { .. } | NotCanonical::Exponent { .. }), _) => {}
                (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = canonicalise(&bytes);
        }
    }

    /// The parser reads numbers as doubles and refuses those that are none.
    fn is_out_of_range(error: &serde_json::Error) -> bool {
        error.to_string().starts_with("number out of range")
    }

    fn is_same(value: &Value, read: &serde_json::Value) -> bool {
        use serde_json::Value as Read;
        match (value, read) {
            (Value::Null, Read::Null) => true,
            (Value::Bool(a), Read::Bool(b)) => a == b,
            (Value::Number(a), Read::Number(b)) => a.is_near(b.as_f64().unwrap()),
            (Value::Text(a), Read::String(b)) => a == b,
            (Value::Array(a), Read::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
            (Value::Object(a), Read::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
            }
            _ => false,
        }
    }
}
