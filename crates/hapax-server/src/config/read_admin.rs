//! `[admin]` and `[[admin.tokens]]`: where operators ask, and what they have to show.
//!
//! Left to others: what a token opens (`admin::access`).

use super::choice::Role;
use super::model::{Admin, AdminToken};
use super::problem::Origin;
use super::reader::Section;
use super::secret::Secret;
use super::sections::HIDDEN;
use super::source::{Node, Raw};
use super::value::quoted;

/// A name is written into every note of the audit log.
const NAME_CHARS_MAX: usize = 32;

/// Shorter tokens can be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// Who acts with `admin.token`, in the audit log.
pub(crate) const OPERATOR: &str = "admin";

/// Reads the section.
pub(super) fn admin(section: &mut Section<'_, '_>) -> Admin {
    let from = section.value("from", Admin::default().from);
    let token = section.secret("token", "token_file", |_| HIDDEN.to_owned(), &quoted("off"));
    if token.as_ref().is_some_and(is_guessable) {
        let message =
            format!("`admin.token` has fewer than {TOKEN_CHARS_MIN} characters and could be guessed; use a longer one");
        section.reader.refuse(&["admin.token", "admin.token_file"], message);
    }
    let hosts = hosts(section);
    let read_only = section.value("read_only", false);
    let tokens = tokens(section);
    check_distinct(section, token.as_ref(), &tokens);
    Admin { from, token, hosts, read_only, tokens }
}

fn hosts(section: &mut Section<'_, '_>) -> Vec<String> {
    let hosts: Vec<String> = section.value("hosts", Vec::new());
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if let Some(name) = hosts.iter().find(|name| !is_name(name)) {
        let message =
            format!("`admin.hosts` has {name:?}, which is not a host's name; leave out scheme, port and path");
        section.reader.refuse(&["admin.hosts"], message);
    }
    hosts
}

fn tokens(section: &mut Section<'_, '_>) -> Vec<AdminToken> {
    let tables = match section.ask("tokens") {
        None => return Vec::new(),
        Some(Node { raw: Raw::List(tables), .. }) => tables,
        Some(Node { raw, line }) => {
            let origin = section.reader.at_line(*line);
            let found = if matches!(raw, Raw::Table(_)) { "[admin.tokens]".to_owned() } else { raw.shown() };
            let message = format!("tokens are written [[admin.tokens]], not {found}; double the brackets");
            section.problem(Some(&origin), message);
            return Vec::new();
        }
    };
    let mut tokens = Vec::with_capacity(tables.len());
    for (at, table) in tables.iter().enumerate() {
        let Raw::Table(entries) = &table.raw else {
            let origin = section.reader.at_line(table.line);
            let message = format!("a token must be a table, [[admin.tokens]], not {}", table.raw.shown());
            section.problem(Some(&origin), message);
            continue;
        };
        let line = table.line;
        tokens.extend(section.reader.section(format!("admin.tokens[{at}]"), entries, |section| token(section, line)));
    }
    tokens
}

/// Reads one token; nothing, where a part of it is missing or wrong.
fn token(section: &mut Section<'_, '_>, line: usize) -> Option<AdminToken> {
    let problems_before = section.reader.problems.len();
    let origin = section.reader.at_line(line);
    let name: Option<String> = section.needed("name");
    let role: Option<Role> = section.needed("role");
    let value = section.secret("value", "value_file", |_| HIDDEN.to_owned(), "");
    if section.reader.problems.len() > problems_before {
        return None;
    }
    let missing = match (&name, role, &value) {
        (None, ..) => "a token has no name; write name = \"ops\"",
        (_, None, _) => "a token has no role; write role = \"viewer\" or role = \"operator\"",
        (.., None) => "a token has no value; name the file that holds it with value_file",
        (Some(name), ..) if !is_name(name) => {
            "the name of a token must be 1 to 32 letters, digits, dots, hyphens and underscores"
        }
        (.., Some(value)) if is_guessable(value) => {
            "the value of a token has fewer than 16 characters and could be guessed; use a longer one"
        }
        _ => return Some(AdminToken { name: name?, role: role?, value: value? }),
    };
    section.problem(Some(&origin), missing.to_owned());
    None
}

fn is_guessable(token: &Secret) -> bool {
    token.expose().trim().chars().count() < TOKEN_CHARS_MIN
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_CHARS_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// A token says who acts and what is allowed, so there is one answer to each.
fn check_distinct(section: &mut Section<'_, '_>, token: Option<&Secret>, tokens: &[AdminToken]) {
    let mut names: Vec<&str> = token.iter().map(|_| OPERATOR).collect();
    let own = token.map(|token| token.expose().trim());
    let mut values: Vec<&str> = own.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let key = format!("admin.tokens[{at}].name");
        if names.contains(&token.name.as_str()) {
            let taken = if token.name == OPERATOR { ", which is what `admin.token` is called" } else { "" };
            let message = format!("two tokens are called `{}`{taken}; give each its own name", token.name);
            section.reader.refuse(&[&key], message);
        }
        if values.contains(&token.value.expose().trim()) {
            let is_own = own == Some(token.value.expose().trim());
            let other = if is_own { of_operator(section) } else { "another one; give each its own".to_owned() };
            section.reader.refuse(&[&key], format!("the token `{}` has the value of {other}", token.name));
        }
        names.push(&token.name);
        values.push(token.value.expose().trim());
    }
}

/// `admin.token`, where it comes from, and what to do: a variable may have been set for a command, and not for this node.
fn of_operator(section: &Section<'_, '_>) -> String {
    let setting = section.reader.settings.iter().find(|setting| setting.key == "admin.token");
    match setting.map(|setting| &setting.origin) {
        Some(Origin::Environment(name)) => {
            format!("`admin.token`, which {name} sets; unset that variable, or give each its own value")
        }
        _ => "`admin.token`; give each its own".to_owned(),
    }
}
