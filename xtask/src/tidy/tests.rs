//! The repository is tidy, and each rule catches what it is there for.

use std::path::Path;

use super::{Sources, check, sources};

/// A package in which nothing is wrong.
fn clean() -> Sources {
    sources_of(&[
        ("Cargo.toml", "[package]\n"),
        ("src/lib.rs", "//! Fine.\n\nmod part;\n"),
        ("src/part.rs", "//! Fine.\n"),
    ])
}

fn sources_of(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(file, text)| ((*file).into(), (*text).to_owned())).collect()
}

/// What is found in the clean package after these files were added or replaced.
fn found_with(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = clean();
    all.extend(sources_of(files));
    check(&all).iter().map(ToString::to_string).collect()
}

fn function(name: &str, lines: usize) -> String {
    format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above");
    let all = sources(root).expect("the sources can be read");
    assert!(all.contains_key(Path::new("xtask/src/tidy/tests.rs")), "the sources were not found");
    let findings: Vec<String> = check(&all).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn a_clean_package_has_no_findings() {
    assert_eq!(found_with(&[]), [""; 0]);
}

#[test]
fn a_function_that_is_too_long_is_found() {
    let text = format!("//! Long.\n\n{}{}", function("fits", 70), function("spills", 71));
    assert_eq!(
        found_with(&[("src/part.rs", &text)]),
        ["src/part.rs:73: the function `spills` has 71 lines; 70 are allowed"]
    );
}

#[test]
fn modules_that_need_each_other_are_found() {
    let root = ("src/lib.rs", "//! Root.\n\nmod part;\nmod other;\npub use other::Name;\n");
    let found = |part: &str, other: &str| {
        let text = |code: &str| format!("//! Fine.\n\n{code}\n");
        found_with(&[root, ("src/part.rs", &text(part)), ("src/other.rs", &text(other))])
    };
    let cycle = ["src/other.rs:1: import cycle other → part → other, by src/other.rs, src/part.rs"];
    assert_eq!(found("use crate::other::Name;", "fn f() { crate::part::f() }"), cycle);
    assert_eq!(found("use super::{other, Fine};", "type T = super::part::T;"), cycle);
    assert_eq!(found("use crate::Name;", "use crate::part::f;"), cycle, "the root exports it");
    assert_eq!(found("use crate::other::Name;", "use super::Fine;"), [""; 0]);
    let test = "#[cfg(test)]\nmod tests {\n    use crate::part::f;\n}";
    assert_eq!(found("use crate::other::Name;", test), [""; 0], "tests may look at anything");
}

#[test]
fn tests_may_be_longer_but_not_endless() {
    let long = format!("//! Tests.\n\n{}", function("story", 120));
    let inline = format!("//! With tests.\n\n#[cfg(test)]\nmod tests {{\n{}}}\n", function("story", 120));
    assert_eq!(found_with(&[("tests/story.rs", &long), ("src/part.rs", &inline)]), [""; 0]);
    let endless = format!("//! Tests.\n\n{}", function("saga", 121));
    assert_eq!(
        found_with(&[("tests/story.rs", &endless)]),
        ["tests/story.rs:3: the function `saga` has 121 lines; 120 are allowed"]
    );
}

#[test]
fn methods_and_signatures_of_many_lines_count() {
    let body = "        step();\n".repeat(68);
    let text =
        format!("//! Long.\n\nimpl Thing {{\n    pub async fn go(\n        at: [u8; 4],\n    ) {{\n{body}    }}\n}}\n");
    assert_eq!(
        found_with(&[("src/part.rs", &text)]),
        ["src/part.rs:4: the function `go` has 72 lines; 70 are allowed"]
    );
}

#[test]
fn braces_in_literals_and_comments_do_not_end_a_function() {
    let tricks = r###"    let _ = ("}", '}', b'}', "\"}", r#"}"}"#, br"}", 'a', '\'', "é}");
    // } and /* are comments
    /* } /* } */ } */
    fn inner<'a>(at: &'a str) -> &'a str { at }
"###;
    let body = "    step();\n".repeat(68);
    let text = format!("//! Tricks.\n\nfn tricky() {{\n{tricks}{body}}}\n");
    assert_eq!(
        found_with(&[("src/part.rs", &text)]),
        ["src/part.rs:3: the function `tricky` has 74 lines; 70 are allowed"]
    );
}

#[test]
fn a_function_without_a_body_is_not_measured() {
    let text = format!("//! A trait.\n\ntrait T {{\n    fn f(&self);\n{}}}\n", "    const C: u8;\n".repeat(80));
    assert_eq!(found_with(&[("src/part.rs", &text)]), [""; 0]);
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let text = |lines: usize| format!("//! Long.\n{}", "// line\n".repeat(lines - 1));
    assert_eq!(found_with(&[("src/part.rs", &text(600)), ("tests/all.rs", &text(1000))]), [""; 0]);
    assert_eq!(
        found_with(&[("src/part.rs", &text(601)), ("tests/all.rs", &text(1001))]),
        [
            "src/part.rs:1: the file has 601 lines; 600 are allowed",
            "tests/all.rs:1: the file has 1001 lines; 1000 are allowed"
        ]
    );
}

#[test]
fn a_file_that_no_module_names_is_found() {
    let lost = ["src/lost.rs", "src/part/lost.rs", "tests/helpers/lost.rs"];
    let files = lost.map(|file| (file, "//! Lost.\n"));
    assert_eq!(found_with(&files), lost.map(|file| format!("{file}:1: no module names this file")));
}

#[test]
fn files_that_modules_name_are_reached() {
    let root = "//! Root.\n\nmod part;\nmod inner {\n    mod deep;\n}\n#[path = \"odd/place.rs\"]\nmod named;\n";
    let files = [
        ("src/lib.rs", root),
        ("src/part.rs", "//! Part.\n\nmod child;\nmod old;\n"),
        ("src/part/child.rs", "//! Child.\n"),
        ("src/part/old/mod.rs", "//! In the old style.\n\nmod leaf;\n"),
        ("src/part/old/leaf.rs", "//! Leaf.\n"),
        ("src/inner/deep.rs", "//! Deep.\n"),
        ("src/odd/place.rs", "//! Elsewhere.\n\nmod beside;\n"),
        ("src/odd/beside.rs", "//! Beside.\n"),
        ("src/main.rs", "//! A program.\n"),
        ("tests/all.rs", "//! Tests.\n\nmod common;\n"),
        ("tests/common/mod.rs", "//! Common.\n"),
        ("tests/large/main.rs", "//! A test of several files.\n\nmod one;\n"),
        ("tests/large/one.rs", "//! One.\n"),
        ("examples/show.rs", "//! An example.\n"),
        ("benches/speed.rs", "//! A benchmark.\n"),
    ];
    assert_eq!(found_with(&files), [""; 0]);
}

#[test]
fn a_module_in_a_comment_names_nothing() {
    let files = [("src/lib.rs", "//! Root.\n\nmod part;\n// mod gone;\n"), ("src/gone.rs", "//! Gone.\n")];
    assert_eq!(found_with(&files), ["src/gone.rs:1: no module names this file"]);
}

#[test]
fn a_file_that_cannot_be_parsed_is_found() {
    let found = found_with(&[("src/part.rs", "//! Broken.\n\nfn (\n")]);
    assert!(found.len() == 1 && found[0].starts_with("src/part.rs:1: cannot be parsed"), "{found:?}");
}

#[test]
fn a_missing_header_is_found() {
    assert_eq!(
        found_with(&[("src/part.rs", "// A comment is no header.\n")]),
        ["src/part.rs:1: the file does not begin with a `//!` header that says what it does and why"]
    );
}

#[test]
fn reminders_are_found_as_whole_words() {
    for halves in [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"]] {
        let word = halves.concat();
        let text = format!(
            "//! Reminds.\n\n// {word}: later\n// un{word}ed my{word}, {word}S and {word}_LIST are other words\n"
        );
        let expected = |file: &str, line: usize| format!("{file}:{line}: the reminder `{word}` was left behind");
        assert_eq!(found_with(&[("src/part.rs", &text)]), [expected("src/part.rs", 3)]);
        let note = format!("# Notes\n\n({word})\n");
        assert_eq!(
            found_with(&[("NOTES.md", &note), ("scripts/run", &note)]),
            [expected("NOTES.md", 3), expected("scripts/run", 3)]
        );
    }
}

#[test]
fn an_example_with_a_constant_token_is_found() {
    let constant = "Engine::new(store, || [7; 16])";
    let found = found_with(&[
        ("src/part.rs", &format!("//! Fine.\n//! let engine = {constant};\n\nfn f() {{ {constant}; }}\n")),
        ("docs/page.md", &format!("    {constant}\n    Engine::new(store, random)\n")),
    ]);
    let what = "an example draws a constant token; draw random ones";
    assert_eq!(found, [format!("docs/page.md:1: {what}"), format!("src/part.rs:2: {what}")]);
}

#[test]
fn ignored_tests_are_found() {
    let text = "//! Tests.\n\n#[test]\n#[ignore]\nfn a() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn b() {}\n\n\
                #[cfg_attr(miri, ignore)]\nfn c() {}\n\n// #[ignore]\n#[doc = \"ignore\"]\nfn d() { ignore(); }\n";
    let expected = [4, 8, 11].map(|line| format!("tests/all.rs:{line}: a test is ignored: repair it or delete it"));
    assert_eq!(found_with(&[("tests/all.rs", text)]), expected);
}

#[test]
fn paths_of_one_machine_are_found() {
    for halves in [["/wo", "rk/"], ["/ro", "ot/"]] {
        let path = halves.concat();
        let text = format!("# Notes\n\nSee `{path}notes`, but docs{path}notes is fine.\n");
        let expected = |file: &str| format!("{file}:3: `{path}` exists on one machine only");
        assert_eq!(
            found_with(&[("NOTES.md", &text), (".ci/run", &text), ("deny.toml", &text)]),
            [expected(".ci/run"), expected("NOTES.md"), expected("deny.toml")]
        );
    }
}

#[test]
fn without_git_the_files_are_walked() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    for (file, text) in
        [("src/lib.rs", "//! Root.\n"), ("target/out.rs", "no"), ("scripts/run", "#!"), ("logo.png", "no")]
    {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("directories can be made");
        std::fs::write(path, text).expect("files can be written");
    }
    let found = sources(directory.path()).expect("the files can be read");
    assert_eq!(found, sources_of(&[("src/lib.rs", "//! Root.\n"), ("scripts/run", "#!")]));
}
