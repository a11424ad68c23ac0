//! Recipes, keys, and the scheme texts that name them: each recipe has one text, read back exactly.

use super::*;

fn keys() -> [HmacKey; 2] {
    [HmacKey::new("key-2025", &[1; 32]).unwrap(), HmacKey::new("key-2026", &[2; 32]).unwrap()]
}

fn keyed(id: &str) -> Recipe {
    Recipe::new().with_hmac(id).unwrap()
}

#[test]
fn another_key_gives_another_digest() {
    let same_id = [HmacKey::new("key-2026", &[3; 32]).unwrap()];
    let recipe = keyed("key-2026");
    let one = Fingerprinter::new(base(), &recipe, &keys()).unwrap().current();
    let other = Fingerprinter::new(base(), &recipe, &same_id).unwrap().current();
    assert_eq!(one.scheme, other.scheme);
    assert!(one.matches(&one.digest) && !one.matches(&other.digest));
}

#[test]
fn a_record_is_compared_under_its_own_scheme() {
    let keys = keys();
    let (old, new) = (keyed("key-2025"), keyed("key-2026").with_only(["/amount"]).unwrap());
    let stored = Fingerprinter::new(base(), &old, &keys).unwrap().current();
    let now = Fingerprinter::new(base(), &new, &keys).unwrap();
    assert_eq!(now.under(&stored.scheme), Some(stored));
    assert_eq!(now.under(&new.scheme()), Some(now.current()));
    assert_eq!(now.under(&scheme("1;sha256")).unwrap().digest, digest(base()));
}

#[test]
fn a_missing_key_is_unknown_and_not_a_mismatch() {
    let recipe = Recipe::new();
    let plain = Fingerprinter::new(base(), &recipe, &[]).unwrap();
    assert_eq!(plain.under(&scheme("1;hmac-sha256=key-2026")), None);
    let missing = keyed("key-2027");
    let refused = Fingerprinter::new(base(), &missing, &keys()).unwrap_err();
    assert_eq!(refused, UnknownKey { id: "key-2027".to_owned() });
}

#[test]
fn an_unknown_or_misspelled_scheme_is_not_read() {
    let unknown = [
        "2;sha256",
        "1",
        "1;",
        "1;sha512",
        "sha256",
        "1;sha256;",
        "1;sha256=",
        "1;sha256;headers=",
        "1;sha256;headers=X-A",
        "1;sha256;headers=x-b,x-a",
        "1;sha256;headers=x-a,x-a",
        "1;sha256;only",
        "1;sha256;only=a",
        "1;sha256;only=/b,/a",
        "1;sha256;only=/%61",
        "1;sha256;only=/%2c",
        "1;sha256;only=/%2",
        "1;sha256;only=/%FF",
        "1;sha256;body=whole",
        "1;sha256;body=ignored;headers=x-a",
        "1;sha256;only=/a;except=/b",
        "1;sha256;trailers=x",
        "1;hmac-sha256=",
        "1;hmac-sha256=a=b",
        "01;sha256",
        "1;SHA256",
        "1;hmac-sha256",
    ];
    let recipe = Recipe::new();
    for text in unknown {
        assert_eq!(Recipe::parse(&scheme(text)), None, "{text}");
        let plain = Fingerprinter::new(base(), &recipe, &[]).unwrap();
        assert_eq!(plain.under(&scheme(text)), None, "{text}");
    }
}

#[test]
fn recipes_are_named_as_documented() {
    let recipe = Recipe::new().with_headers(["X-B", "x-a", "x-b"]).unwrap();
    let recipe = recipe.with_only(["/currency", "/amount", "/a,b;c%d é", "/amount"]).unwrap();
    let text = "1;sha256;headers=x-a,x-b;only=/a%2Cb%3Bc%25d%20%C3%A9,/amount,/currency";
    assert_eq!(recipe.scheme().as_str(), text);
    assert_eq!(Recipe::new().scheme().to_string(), "1;sha256");
    assert_eq!(Recipe::new().with_only([""]).unwrap().scheme().as_str(), "1;sha256;only=");
    let keyed = keyed("key-2026").without_body().unwrap();
    assert_eq!(keyed.scheme().as_str(), "1;hmac-sha256=key-2026;body=ignored");
}

#[test]
fn what_cannot_be_a_recipe_is_refused() {
    let none: [&str; 0] = [];
    assert_eq!(Recipe::new().with_only(none), Err(InvalidRecipe::NoPointers));
    assert_eq!(Recipe::new().with_except(none), Err(InvalidRecipe::NoPointers));
    for pointer in ["a", "/~", "/~2", "/a~", &"/a".repeat(129)] {
        let refused = Recipe::new().with_only([pointer]);
        assert!(matches!(refused, Err(InvalidRecipe::Pointer { .. })), "{pointer}");
    }
    for name in ["", "x y", "x:y", "x,y", "é"] {
        assert_eq!(Recipe::new().with_headers([name]), Err(InvalidRecipe::Header(name.to_owned())));
    }
    for id in ["", "a b", "a;b", "a=b", "é", &"k".repeat(KEY_ID_BYTES_MAX + 1)] {
        assert_eq!(Recipe::new().with_hmac(id), Err(InvalidRecipe::KeyId), "{id}");
        assert_eq!(HmacKey::new(id, &[0; 32]).unwrap_err(), InvalidRecipe::KeyId);
    }
    let short = HmacKey::new("k", &[0; HMAC_KEY_BYTES_MIN - 1]);
    assert_eq!(short.unwrap_err(), InvalidRecipe::KeyLength);
    let room = SCHEME_BYTES_MAX - "1;sha256;headers=".len();
    assert!(Recipe::new().with_headers(["x".repeat(room)]).is_ok());
    let long = Recipe::new().with_headers(["x".repeat(room + 1)]);
    assert_eq!(long, Err(InvalidRecipe::TooLong));
}

#[test]
fn a_scheme_is_printable_and_short() {
    assert!(Scheme::new(&"x".repeat(SCHEME_BYTES_MAX)).is_ok());
    for text in ["", "1; sha256", "1;sha256\n", "é", &"x".repeat(SCHEME_BYTES_MAX + 1)] {
        assert!(Scheme::new(text).is_err(), "{text}");
    }
}

#[test]
fn a_fixed_fingerprint_answers_for_its_own_scheme_only() {
    let fixed = Fingerprint { scheme: scheme("fixed"), digest: [7; 32] };
    assert_eq!(fixed.current(), fixed);
    assert_eq!(fixed.under(&scheme("fixed")), Some(fixed.clone()));
    assert_eq!(fixed.under(&scheme("1;sha256")), None);
}

#[test]
fn debug_output_shows_no_secrets() {
    let [_, key] = keys();
    assert_eq!(format!("{key:?}"), "HmacKey { id: \"key-2026\", .. }");
    let recipe = Recipe::new();
    let secret: &[(&str, &[u8])] = &[("authorization", b"hush")];
    let request = Request { headers: secret, query: Some("hush"), body: b"[\"hush\"]", ..base() };
    let fingerprinter = Fingerprinter::new(request, &recipe, &[]).unwrap();
    let fingerprint = fingerprinter.current();
    assert!(!format!("{fingerprinter:?}").contains("hush"));
    assert!(format!("{fingerprint:?}").len() < 40, "{fingerprint:?}");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_recipe_is_read_back_from_its_scheme(recipe in recipe()) {
        let scheme = recipe.scheme();
        prop_assert_eq!(Scheme::new(scheme.as_str()), Ok(scheme.clone()));
        prop_assert_eq!(Recipe::parse(&scheme), Some(recipe));
    }

    #[test]
    fn any_text_is_read_back_to_itself_or_not_at_all(text in "1;(sha256|hmac-sha256=[a-z]{1,2})(;[a-z]{4,7}=[/a%,~0-9A-F]{0,8}){0,2}") {
        if let Some(recipe) = Recipe::parse(&scheme(&text)) {
            prop_assert_eq!(recipe.scheme().to_string(), text);
        }
    }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let pointer = "(/([a-c,;%/= é\u{1}]|~0|~1){0,4}){0,3}";
    let pointers = proptest::collection::vec(pointer, 1..5);
    let headers = proptest::collection::vec("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,6}", 0..4);
    (proptest::option::of("[A-Za-z0-9._-]{1,64}"), headers, 0..4, pointers).prop_map(
        |(key, headers, body, pointers)| {
            let recipe = Recipe::new().with_headers(headers).unwrap();
            let recipe = key.map_or(recipe.clone(), |id| recipe.with_hmac(&id).unwrap());
            match body {
                0 => recipe,
                1 => recipe.without_body().unwrap(),
                2 => recipe.with_only(pointers).unwrap(),
                _ => recipe.with_except(pointers).unwrap(),
            }
        },
    )
}

fn named(text: &str) -> Recipe {
    Recipe::parse(&scheme(text)).unwrap()
}

#[test]
fn the_stricter_of_two_recipes_compares_what_either_compares() {
    for (one, other, stricter) in [
        ("1;sha256", "1;sha256", "1;sha256"),
        ("1;sha256", "1;sha256;only=/a", "1;sha256"),
        ("1;sha256;body=ignored", "1;sha256;only=/a", "1;sha256;only=/a"),
        ("1;sha256;except=/a", "1;sha256;except=/a", "1;sha256;except=/a"),
        ("1;sha256;only=/a", "1;sha256;only=/b", "1;sha256"),
        ("1;sha256;only=/a", "1;sha256;except=/a", "1;sha256"),
        ("1;sha256;headers=x-b", "1;hmac-sha256=k;headers=x-a,x-b", "1;hmac-sha256=k;headers=x-a,x-b"),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            assert_eq!(named(one).stricter(&named(other)), named(stricter), "{one} {other}");
        }
    }
}

#[test]
fn the_stricter_of_two_recipes_has_a_scheme_that_can_be_stored() {
    let long = |letter: &str| letter.repeat(SCHEME_BYTES_MAX * 2 / 3);
    let headers = |letter| Recipe::new().with_headers([long(letter)]).unwrap();
    let ignored = headers("a").without_body().unwrap();
    let only = Recipe::new().with_only([format!("/{}", long("p"))]).unwrap();
    assert_eq!(ignored.stricter(&only), headers("a"), "the whole body in place of parts");
    assert_eq!(headers("a").stricter(&headers("b")), headers("a"), "its own headers");
}
