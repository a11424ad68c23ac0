//! Words that must not stay: reminders, ignored tests, paths of one machine.
//!
//! They are spelled in halves here, so that this file passes its own test.

use std::path::Path;

use super::line_of;

/// A reminder is an issue that nobody filed.
const REMINDERS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Directories of the machine that somebody happened to work on.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Checks any text.
pub(super) fn check(text: &str, add: &mut impl FnMut(usize, String)) {
    for word in REMINDERS {
        for at in whole(text, word) {
            add(line_of(text, at), format!("the reminder `{word}` was left behind"));
        }
    }
    for path in MACHINE_PATHS {
        for (at, _) in text.match_indices(path).filter(|(at, _)| !text[..*at].ends_with(is_path_letter)) {
            add(line_of(text, at), format!("`{path}` exists on one machine only"));
        }
    }
}

/// Checks what readers copy: documentation and examples. A token source that is a constant compiles and disarms the fence.
pub(super) fn check_examples(file: &Path, text: &str, add: &mut impl FnMut(usize, String)) {
    let is_example = file.extension().is_some_and(|ending| ending == "md") || file.starts_with("examples");
    for (number, line) in text.lines().enumerate() {
        let is_shown = is_example || line.trim_start().starts_with("//!") || line.trim_start().starts_with("///");
        if is_shown && line.contains("Engine::new(") && line.contains("; 16]") {
            add(number + 1, "an example draws a constant token; draw random ones".to_owned());
        }
    }
}

/// Checks Rust code whose comments and literals are blanked out.
pub(super) fn check_attributes(code: &str, add: &mut impl FnMut(usize, String)) {
    for (at, _) in code.match_indices("#[") {
        if whole(attribute(&code[at..]), "ignore").next().is_some() {
            add(line_of(code, at), "a test is ignored: repair it or delete it".to_owned());
        }
    }
}

/// The attribute that begins here, up to its closing bracket.
fn attribute(code: &str) -> &str {
    let mut depth = 0_usize;
    let end = code.find(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => return false,
        }
        depth == 0
    });
    &code[..end.unwrap_or(code.len())]
}

/// Where `word` stands alone, not as a part of a longer word.
fn whole(text: &str, word: &str) -> impl Iterator<Item = usize> {
    let found = text.match_indices(word).filter(move |(at, _)| {
        !text[..*at].ends_with(is_word_letter) && !text[at + word.len()..].starts_with(is_word_letter)
    });
    found.map(|(at, _)| at)
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// A path may hold the forbidden one further down, as in `docs/work/plan`.
fn is_path_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '}' | ')')
}
