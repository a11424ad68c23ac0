//! `[[admin.tokens]]`: who may do what, and what is wrong with a token.

use hapax_server::config::Role;

use crate::config::setup::{file, problem};

const OPS: &str = "[[admin.tokens]]\nname = \"ops\"\nrole = \"operator\"\nvalue = \"hunter2hunter2hunter2\"\n";

#[test]
fn a_token_has_a_name_a_role_and_a_value_that_may_stand_in_a_file() {
    let setup = file("");
    let secret = setup.write("board", "looks-only-looks-only\n", 0o600);
    let board =
        format!("[[admin.tokens]]\nname = \"board\"\nrole = \"viewer\"\nvalue_file = \"{}\"\n", secret.display());
    setup.write("hapax.toml", &format!("{OPS}{board}"), 0o600);
    let config = setup.load();
    let tokens: Vec<_> =
        config.admin.tokens.iter().map(|token| (token.name.as_str(), token.role, token.value.expose())).collect();
    let expected = [("ops", Role::Operator, "hunter2hunter2hunter2"), ("board", Role::Viewer, "looks-only-looks-only")];
    assert_eq!(tokens, expected);
    assert!(!format!("{config:?}").contains("hunter2"));
    let shown = hapax_server::config::show(&setup.explain().settings, true);
    assert!(
        shown.contains("[[admin.tokens]]") && !shown.contains("hunter2") && !shown.contains("looks-only"),
        "{shown}"
    );
    assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
}

#[test]
fn what_is_wrong_with_a_token_is_said_without_repeating_it() {
    let token = |text: &str| format!("[[admin.tokens]]\n{text}\n");
    let value = "value = \"hunter2hunter2hunter2\"";
    for (text, cause) in [
        (token(&format!("role = \"viewer\"\n{value}")), "a token has no name"),
        (token(&format!("name = \"ops\"\n{value}")), "a token has no role"),
        (token("name = \"ops\"\nrole = \"viewer\""), "a token has no value"),
        (token(&format!("name = \"ops\"\nrole = \"root\"\n{value}")), "`admin.tokens.role` must be"),
        (token(&format!("name = \"o(p)s\"\nrole = \"viewer\"\n{value}")), "the name of a token must be"),
        (token("name = \"ops\"\nrole = \"viewer\"\nvalue = \"hunter2\""), "fewer than 16 characters"),
        (token(&format!("name = \"ops\"\nrole = \"viewer\"\n{value}\nscope = \"all\"")), "unknown key `scope`"),
        (format!("{OPS}{}", OPS.replace("hunter2h", "another-")), "two tokens are called `ops`"),
        (format!("{OPS}{}", OPS.replace("\"ops\"", "\"dev\"")), "has the value of another one"),
        (format!("[admin]\ntoken = \"hunter2hunter2hunter2\"\n{OPS}"), "has the value of `admin.token`; give each"),
        (
            format!("[admin]\ntoken = \"another-another-another\"\n{}", OPS.replace("\"ops\"", "\"admin\"")),
            "which is what `admin.token` is called",
        ),
        (OPS.replace("[[", "[").replace("]]", "]"), "double the brackets"),
        ("[admin]\ntokens = 5".to_owned(), "double the brackets"),
        ("[admin]\ntokens = [5]".to_owned(), "a token must be a table"),
    ] {
        let problem = problem(&text);
        assert!(problem.contains(cause) && problem.starts_with("hapax.toml:"), "{text}\n{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn a_token_that_a_variable_sets_as_well_is_said_to_come_from_there() {
    let problems = file(OPS).variable("HAPAX_ADMIN_TOKEN", "hunter2hunter2hunter2").problems();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    let said = "the token `ops` has the value of `admin.token`, which HAPAX_ADMIN_TOKEN sets; unset that variable";
    assert!(problem.starts_with("hapax.toml:2: ") && problem.contains(said), "{problem}");
}

#[test]
fn a_token_in_a_file_that_anyone_can_read_is_refused() {
    let setup = file("");
    setup.write("hapax.toml", OPS, 0o644);
    let problems = setup.problems();
    assert!(problems.len() == 1 && problems[0].contains("`admin.tokens[0].value` is a secret"), "{problems:?}");
}

#[test]
fn tokens_and_read_only_change_without_a_restart() {
    let old = file("").load();
    assert_eq!(old.needs_restart(&file(&format!("[admin]\nread_only = true\n{OPS}")).load()), [""; 0]);
}
