//! Functions and files that are too long.

use std::ops::Range;
use std::path::Path;

use super::{is_test, line_of};

/// A function that does not fit a screen is several functions.
const FUNCTION_LINES_MAX: usize = 70;
/// A test tells one story from its set-up to its end, and may take longer.
const TEST_FUNCTION_LINES_MAX: usize = 120;
/// A file is read in one sitting.
const FILE_LINES_MAX: usize = 600;
/// Tests are read one by one.
const TEST_FILE_LINES_MAX: usize = 1000;

/// What holds for one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    file_lines_max: usize,
    function_lines_max: usize,
}

impl Limits {
    pub(super) fn of(file: &Path) -> Limits {
        if is_test(file) {
            Limits { file_lines_max: TEST_FILE_LINES_MAX, function_lines_max: TEST_FUNCTION_LINES_MAX }
        } else {
            Limits { file_lines_max: FILE_LINES_MAX, function_lines_max: FUNCTION_LINES_MAX }
        }
    }
}

/// Checks a file; `code` is its text with comments and literals blanked out.
pub(super) fn check(text: &str, code: &str, limits: Limits, add: &mut impl FnMut(usize, String)) {
    let lines = text.lines().count();
    if lines > limits.file_lines_max {
        add(1, format!("the file has {lines} lines; {} are allowed", limits.file_lines_max));
    }
    let tests = test_modules(code);
    for function in functions(code) {
        let in_tests = tests.iter().any(|module| module.contains(&function.range.start));
        let allowed = if in_tests { TEST_FUNCTION_LINES_MAX } else { limits.function_lines_max };
        let (first, last) = (line_of(code, function.range.start), line_of(code, function.range.end));
        let lines = last - first + 1;
        if lines > allowed {
            add(first, format!("the function `{}` has {lines} lines; {allowed} are allowed", function.name));
        }
    }
}

struct Function<'a> {
    name: &'a str,
    /// From `fn` to the closing brace.
    range: Range<usize>,
}

/// All functions with a body, inner ones too.
fn functions(code: &str) -> Vec<Function<'_>> {
    let found = code.match_indices("fn ").filter(|(at, _)| !ends_with_name(&code[..*at]));
    found
        .filter_map(|(at, word)| {
            let after = code[at + word.len()..].trim_start();
            let length = after.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(after.len());
            let body = body_after(code, at)?;
            (length > 0).then(|| Function { name: &after[..length], range: at..closing_brace(code, body) })
        })
        .collect()
}

/// Modules inside the file that are compiled for tests only.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let found = code.match_indices("#[cfg(test)]").map(|(at, attribute)| at + attribute.len());
    found
        .filter(|after| code[*after..].trim_start().starts_with("mod "))
        .filter_map(|after| Some(after..closing_brace(code, body_after(code, after)?)))
        .collect()
}

fn ends_with_name(before: &str) -> bool {
    before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Where the body of the item at `start` opens; `None` for an item that ends with a semicolon. Both signs have other
/// meanings inside parentheses and brackets.
fn body_after(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in code[start..].char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(start + at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where the brace that opens at `open` is closed.
fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code[open..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}
