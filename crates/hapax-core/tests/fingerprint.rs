//! Fingerprints: every part counts, no two lists of parts run together, spelling does not matter
//! where it means nothing, and stored digests stay what they are.

#![expect(clippy::unwrap_used, reason = "helpers of tests stop where they cannot go on")]

use hapax_core::fingerprint::{
    Fingerprint, Fingerprinter, Fingerprints, HMAC_KEY_BYTES_MIN, HmacKey, InvalidRecipe, KEY_ID_BYTES_MAX, Recipe,
    Request, SCHEME_BYTES_MAX, Scheme, UnknownKey,
};
use json_model::{Dice, Value, change, config, spell, text, value};
use proptest::prelude::*;
use std::collections::HashSet;

#[expect(dead_code, reason = "the other test of this model uses more of it")]
mod json_model;
#[path = "fingerprint/recipes.rs"]
mod recipes;

const BODY: &[u8] = br#"{"amount":10,"currency":"EUR"}"#;

fn base() -> Request<'static> {
    Request {
        authority: "api.example.com",
        content_type: Some(b"application/json"),
        ..Request::new("POST", "/payments", BODY)
    }
}

fn with_body(body: &[u8]) -> Request<'_> {
    Request { body, ..base() }
}

fn digest_under(recipe: &Recipe, request: Request<'_>) -> [u8; 32] {
    Fingerprinter::new(request, recipe, &[]).unwrap().current().digest
}

fn digest(request: Request<'_>) -> [u8; 32] {
    digest_under(&Recipe::new(), request)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap()
}

mod parts {
    use super::*;

    #[test]
    fn each_part_alone_changes_the_digest() {
        let requests = [
            base(),
            Request { method: "PATCH", ..base() },
            Request { method: "post", ..base() },
            Request { authority: "api.example.com:8443", ..base() },
            Request { path: "/refunds", ..base() },
            Request { path: "/payments/", ..base() },
            Request { query: Some(""), ..base() },
            Request { query: Some("dry_run=1"), ..base() },
            Request { content_type: None, ..base() },
            Request { content_type: Some(b""), ..base() },
            Request { content_type: Some(b"application/json; charset=utf-8"), ..base() },
            Request { content_encoding: Some(b""), ..base() },
            Request { content_encoding: Some(b"identity"), ..base() },
            Request { content_encoding: Some(b"gzip"), ..base() },
            Request { if_match: Some(b""), ..base() },
            Request { if_match: Some(b"\"v1\""), ..base() },
            with_body(b""),
            with_body(br#"{"amount":11,"currency":"EUR"}"#),
        ];
        let digests: HashSet<_> = requests.iter().map(|request| digest(*request)).collect();
        assert_eq!(digests.len(), requests.len());
    }

    #[test]
    fn parts_do_not_run_together() {
        let split = |method, authority, path| digest(Request { method, authority, path, ..base() });
        let digests = HashSet::from([
            split("ab", "c", "d"),
            split("a", "bc", "d"),
            split("ab", "", "cd"),
            split("a", "b", "cd"),
            split("", "abc", "d"),
        ]);
        assert_eq!(digests.len(), 5);

        // Bytes that look like the next part's length and content.
        let forged = b"/\x01\x01\0\0\0\0\0\0\0q";
        let forged = str::from_utf8(forged).unwrap();
        let with_query = Request { path: "/", query: Some("q"), ..base() };
        assert_ne!(digest(Request { path: forged, ..base() }), digest(with_query));
        let swapped = Request { content_type: Some(b"a"), content_encoding: None, ..base() };
        let other = Request { content_type: None, content_encoding: Some(b"a"), ..base() };
        assert_ne!(digest(swapped), digest(other));
    }

    #[test]
    fn headers_count_only_if_named_and_then_in_order_with_repeats() {
        let named = Recipe::new().with_headers(["X-Region", "x-account"]).unwrap();
        let lists: [&[(&str, &[u8])]; 9] = [
            &[],
            &[("x-region", b"")],
            &[("x-account", b"")],
            &[("x-region", b"eu")],
            &[("x-region", b"eu"), ("x-account", b"a")],
            &[("x-region", b"eu"), ("x-region", b"us")],
            &[("x-region", b"us"), ("x-region", b"eu")],
            &[("x-region", b"euus")],
            &[("x-region", b"eu"), ("x-region", b"")],
        ];
        let request = |headers| Request { headers, ..base() };
        let digests: HashSet<_> = lists.iter().map(|list| digest_under(&named, request(list))).collect();
        assert_eq!(digests.len(), lists.len());

        let plain: HashSet<_> = lists.iter().map(|list| digest(request(list))).collect();
        assert_eq!(plain, HashSet::from([digest(base())]));

        let spelled: &[(&str, &[u8])] = &[("X-ACCOUNT", b"a"), ("accept", b"*/*"), ("X-Region", b"eu")];
        assert_eq!(digest_under(&named, request(spelled)), digest_under(&named, request(lists[4])));
    }

    #[test]
    fn the_scheme_is_part_of_the_digest() {
        let recipes = [
            Recipe::new(),
            Recipe::new().with_headers(["x-a"]).unwrap(),
            Recipe::new().with_headers(["x-b"]).unwrap(),
            Recipe::new().with_except(["/none"]).unwrap(),
            Recipe::new().with_except(["/nothing"]).unwrap(),
        ];
        let digests: HashSet<_> = recipes.iter().map(|recipe| digest_under(recipe, base())).collect();
        assert_eq!(digests.len(), recipes.len());
    }
}

mod bodies {
    use super::*;

    fn as_type<'a>(content_type: &'a str, body: &'a [u8]) -> Request<'a> {
        Request { content_type: Some(content_type.as_bytes()), body, ..base() }
    }

    const REORDERED: &[u8] = b" { \"currency\" : \"\\u0045UR\", \"amount\" : 1.0e1 } ";

    #[test]
    fn json_is_compared_by_meaning() {
        for json in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            " application/json ;x",
            "application/merge-patch+json",
            "application/vnd.api+JSON;v=2",
        ] {
            assert_eq!(digest(as_type(json, BODY)), digest(as_type(json, REORDERED)), "{json}");
        }
        assert_eq!(digest(with_body(b"1")), digest(with_body(b"1.0")));
        let identity = |body| digest(Request { content_encoding: Some(b" Identity"), body, ..base() });
        assert_eq!(identity(BODY), identity(REORDERED));
    }

    #[test]
    fn other_content_is_compared_byte_by_byte() {
        for other in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "application/json-seq",
            "+json",
            "text/plain; a=application/json",
            "",
        ] {
            assert_ne!(digest(as_type(other, BODY)), digest(as_type(other, REORDERED)), "{other}");
        }
        let absent = |body| digest(Request { content_type: None, body, ..base() });
        assert_ne!(absent(BODY), absent(REORDERED));
        for encoding in ["gzip", "identity, gzip", ""] {
            let encoded = |body| digest(Request { content_encoding: Some(encoding.as_bytes()), body, ..base() });
            assert_ne!(encoded(BODY), encoded(REORDERED), "{encoding}");
        }
    }

    #[test]
    fn amounts_that_no_double_tells_apart_differ() {
        assert_ne!(digest(with_body(b"9007199254740992")), digest(with_body(b"9007199254740993")));
        assert_ne!(digest(with_body(b"0.1")), digest(with_body(b"0.10000000000000001")));
    }

    #[test]
    fn json_without_a_canonical_form_is_compared_byte_by_byte() {
        let spaced: [(&[u8], &[u8]); 4] = [
            (b"{\"a\":1,\"a\":2}", b"{\"a\":1, \"a\":2}"),
            (b"[\"\xff\"]", b"[ \"\xff\"]"),
            (b"[\"\\ud800\"]", b"[ \"\\ud800\"]"),
            (b"[1", b"[ 1"),
        ];
        for (one, other) in spaced {
            assert_eq!(digest(with_body(one)), digest(with_body(one)));
            assert_ne!(digest(with_body(one)), digest(with_body(other)));
        }
        assert_ne!(digest(with_body(br#"{"a":1,"a":2}"#)), digest(with_body(br#"{"a":2}"#)));
    }

    #[test]
    fn without_its_body_a_multipart_form_has_no_boundary() {
        let of = |recipe: &Recipe, kind: &str| {
            digest_under(recipe, Request { content_type: Some(kind.as_bytes()), ..base() })
        };
        let ignored = Recipe::new().without_body().unwrap();
        let plain = of(&ignored, "multipart/form-data");
        for same in ["; boundary=x", ";boundary=\"a;b\\\"c\"", "; Boundary = y"] {
            assert_eq!(of(&ignored, &format!("multipart/form-data{same}")), plain, "{same}");
        }
        for other in ["; charset=utf-8", "; boundary=x; charset=utf-8", "; boundary=x, text/plain", "; boundaryx=1"] {
            assert_ne!(of(&ignored, &format!("multipart/form-data{other}")), plain, "{other}");
        }
        assert_eq!(
            of(&ignored, "Multipart/x; a=1; boundary=x; b=2"),
            of(&ignored, "Multipart/x; boundary=y; a=1; b=2")
        );
        assert_ne!(of(&ignored, "text/plain; boundary=x"), of(&ignored, "text/plain; boundary=y"));
        let whole = Recipe::new();
        assert_ne!(of(&whole, "multipart/form-data; boundary=x"), of(&whole, "multipart/form-data; boundary=y"));
    }

    #[test]
    fn an_ignored_body_does_not_count() {
        let ignored = Recipe::new().without_body().unwrap();
        assert_eq!(digest_under(&ignored, base()), digest_under(&ignored, with_body(b"\xff")));
        assert_ne!(digest_under(&ignored, base()), digest_under(&ignored, Request { path: "/", ..base() }));
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn spellings_of_one_value_agree_and_other_values_do_not(value in value(), a in any::<u64>(), b in any::<u64>()) {
            let one = digest(with_body(spell(&value, a).as_bytes()));
            prop_assert_eq!(one, digest(with_body(spell(&value, b).as_bytes())));

            let mut changed = value;
            change(&mut changed, &mut Dice(a));
            prop_assert_ne!(one, digest(with_body(spell(&changed, b).as_bytes())));
        }
    }
}

mod pointers {
    use super::*;

    /// Whether two bodies count as one when these pointers alone count, and when they do not.
    fn agree(pointers: &[&str], a: &str, b: &str) -> (bool, bool) {
        let agree = |recipe: &Recipe| {
            digest_under(recipe, with_body(a.as_bytes())) == digest_under(recipe, with_body(b.as_bytes()))
        };
        let only = Recipe::new().with_only(pointers).unwrap();
        let except = Recipe::new().with_except(pointers).unwrap();
        (agree(&only), agree(&except))
    }

    /// Pointers, two bodies, and whether they agree.
    type Case = (&'static [&'static str], &'static str, &'static str, (bool, bool));

    const SAME: (bool, bool) = (true, true);
    const DIFFERENT: (bool, bool) = (false, false);
    const ONLY: (bool, bool) = (true, false);
    const EXCEPT: (bool, bool) = (false, true);

    #[test]
    fn what_a_pointer_names_is_all_that_counts_or_all_that_does_not() {
        let cases: [Case; 24] = [
            (&["/a"], r#"{"a":1,"b":2}"#, r#"{"b":2.0,"a":1e0}"#, SAME),
            (&["/a"], r#"{"a":1,"b":2}"#, r#"{"a":1,"b":3}"#, ONLY),
            (&["/a"], r#"{"a":1,"b":2}"#, r#"{"a":3,"b":2}"#, EXCEPT),
            (&["/a"], r#"{"a":1,"b":2}"#, r#"{"a":3,"b":3}"#, DIFFERENT),
            (&["/b"], r#"{"a":1,"b":2}"#, r#"{"a":1}"#, EXCEPT),
            (&["/a"], r#"{"a":null}"#, "{}", EXCEPT),
            (&["/a", "/b"], r#"{"a":1}"#, r#"{"b":1}"#, EXCEPT),
            (&["/a", "/c"], r#"{"a":1,"b":2,"c":3}"#, r#"{"b":2}"#, EXCEPT),
            (&["/b", "/c"], r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1}"#, EXCEPT),
            (&["/a", "/b"], r#"{"a":1,"b":2,"c":3}"#, r#"{"c":3}"#, EXCEPT),
            (&["/a/b"], r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":3,"c":2}}"#, EXCEPT),
            (&["/a/b"], r#"{"a":{"b":1}}"#, r#"{"a":{}}"#, EXCEPT),
            (&["/a/b"], r#"{"a":{}}"#, "{}", ONLY),
            (&["/a/b", "/a"], r#"{"a":{"b":1},"c":1}"#, r#"{"a":[],"c":1}"#, EXCEPT),
            (&["/items/1"], r#"{"items":[1,2,3]}"#, r#"{"items":[1,9,3]}"#, EXCEPT),
            (&["/items/1"], r#"{"items":[1,2,3]}"#, r#"{"items":[9,2,3]}"#, ONLY),
            (&["/0/id"], r#"[{"id":1},{"id":2}]"#, r#"[{"id":1},{"id":3}]"#, ONLY),
            (&["/1"], r#"{"1":[1,2]}"#, r#"{"1":[1,3]}"#, EXCEPT),
            (&["/01", "/-", "/+1", "/1e0"], "[1,2]", "[1,3]", ONLY),
            (&["/a"], r#""a""#, r#""b""#, ONLY),
            (&["/a~1b", "/m~0n", "/ ", "/"], r#"{"a/b":1,"m~n":1," ":1,"":1}"#, "{}", EXCEPT),
            (&["/\"\\\u{1}é"], r#"{"\"\\\u0001é":1}"#, "{}", EXCEPT),
            (&["/a"], r#"{"x":"{\"a\":1,[","a":[["]"],"}"]}"#, r#"{"x":"{\"a\":1,[","a":0}"#, EXCEPT),
            (&[""], r#"{"a":1}"#, "[]", EXCEPT),
        ];
        for (pointers, a, b, expected) in cases {
            assert_eq!(agree(pointers, a, b), expected, "{pointers:?}: {a} and {b}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_does_not_count_may_as_well_be_absent(value in object(), seed in any::<u64>()) {
            let mut dice = Dice(seed);
            let mut paths = member_paths(&value);
            let first = dice.below(paths.len());
            paths.rotate_left(first);
            paths.truncate(1 + dice.below(4));

            let mut rest = value.clone();
            paths.iter().for_each(|path| remove(&mut rest, path));
            let recipe = Recipe::new().with_except(paths.iter().map(|path| pointer(path))).unwrap();
            let digests = |recipe: &Recipe| [&value, &rest].map(|value| {
                digest_under(recipe, with_body(spell(value, seed).as_bytes()))
            });
            let [whole, without] = digests(&recipe);
            prop_assert_eq!(whole, without);
            let [whole, without] = digests(&Recipe::new());
            prop_assert_ne!(whole, without);
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map(text(), value(), 1..5).prop_map(Value::Object)
    }

    /// The names that lead to each member, through objects alone.
    fn member_paths(value: &Value) -> Vec<Vec<String>> {
        let Value::Object(members) = value else { return Vec::new() };
        let mut paths = Vec::new();
        for (name, value) in members {
            paths.push(vec![name.clone()]);
            let below = member_paths(value).into_iter();
            paths.extend(below.map(|path| [vec![name.clone()], path].concat()));
        }
        paths
    }

    fn remove(value: &mut Value, path: &[String]) {
        if let (Value::Object(members), [name, rest @ ..]) = (value, path) {
            match rest {
                [] => drop(members.remove(name)),
                _ => members.get_mut(name).into_iter().for_each(|value| remove(value, rest)),
            }
        }
    }

    fn pointer(path: &[String]) -> String {
        let names = path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
        names.collect()
    }

    #[test]
    fn bodies_without_a_canonical_form_count_whole() {
        assert_eq!(agree(&["/a"], r#"{"a":1,"b":1,"b":2}"#, r#"{"a":1,"b":1,"b":3}"#), DIFFERENT);
        let only = Recipe::new().with_only(["/a"]).unwrap();
        let form = |body| Request { content_type: Some(b"text/plain"), body, ..base() };
        assert_ne!(digest_under(&only, form(b"{\"b\":1}")), digest_under(&only, form(b"{}")));
    }
}

/// Digests as records have them, computed by a separate program from the description in the module.
/// If one of these fails, stored records would no longer be recognised: make a new scheme version.
mod pinned {
    use super::*;

    fn full() -> Request<'static> {
        Request {
            query: Some("dry_run=1"),
            if_match: Some(b"\"v1\""),
            headers: &[("X-Region", b"eu"), ("x-account", b"acct_1"), ("x-region", b"us")],
            body: br#"{"sent_at":"now","currency":"EUR","amount":10.0,"lines":[9007199254740993,-0]}"#,
            ..base()
        }
    }

    #[track_caller]
    fn assert_pinned(scheme_text: &str, request: Request<'_>, expected: &str) {
        let keys = [HmacKey::new("key-2026", b"0123456789abcdef0123456789abcdef").unwrap()];
        let recipe = Recipe::parse(&scheme(scheme_text)).unwrap();
        let fingerprint = Fingerprinter::new(request, &recipe, &keys).unwrap().current();
        assert_eq!(hex(&fingerprint.digest), expected, "{scheme_text}");
    }

    #[test]
    fn canonical_json_under_plain_sha_256() {
        assert_pinned("1;sha256", full(), "0eaa334e076f2295c7641871dcb06be4039431ab042bc4e2567eb47f26febdd1");
    }

    #[test]
    fn raw_bytes_under_plain_sha_256() {
        let form = Request {
            content_type: Some(b"application/x-www-form-urlencoded"),
            body: b"amount=10&currency=EUR",
            ..base()
        };
        assert_pinned("1;sha256", form, "5c80e1dd5e1d0ae4a80013655d36ac6d9a5db80fbb34c7acb53247d9cfc80f1c");
    }

    #[test]
    fn headers_and_selected_values_under_hmac() {
        let text = "1;hmac-sha256=key-2026;headers=x-account,x-region,x-unset;only=/amount,/lines/0,/missing";
        assert_pinned(text, full(), "cef988e40efb0c78e898ae4009fcb5a1d7e812b9b4ac0649f408c882182a0669");
    }

    #[test]
    fn the_rest_of_a_body() {
        assert_pinned(
            "1;sha256;except=/lines/1,/sent_at",
            full(),
            "fc4aa0a6008052aa388b2bbba972a876d78ca818284e7bd7b4b017ab6beba11b",
        );
    }

    #[test]
    fn no_body() {
        assert_pinned(
            "1;sha256;body=ignored",
            Request::new("POST", "/pay", b"{}"),
            "d6a42637381a2eb4822f8e3b2e96115ada3bb62fb92391ac74b72739f95f021a",
        );
    }
}

#[test]
fn a_fingerprinter_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let recipe = Recipe::new();
    shared(&Fingerprinter::new(base(), &recipe, &[]).unwrap());
}
