//! Who wins: flag, variable, file, default; and that `config show --origin` says so.

use hapax_server::config;

use crate::config::setup::{file, without_file};

const FILE: &str = "[server]\nfrom = \"127.0.0.1:1\"\n";

#[test]
fn a_flag_beats_a_variable_which_beats_the_file_which_beats_the_default() {
    let port = |setup: crate::config::setup::Setup| setup.load().server.from.port();
    assert_eq!(port(without_file()), 8080);
    assert_eq!(port(file(FILE)), 1);
    assert_eq!(port(file(FILE).variable("HAPAX_SERVER_FROM", "127.0.0.1:2")), 2);
    let all = file(FILE).variable("HAPAX_SERVER_FROM", "127.0.0.1:2").flag("--from", "server.from", "localhost:3");
    assert_eq!(port(all), 3);
}

#[test]
fn where_variable_and_file_disagree_the_origin_says_who_won() {
    assert_eq!(without_file().told("server.from"), "\"127.0.0.1:8080\" # default");
    assert_eq!(file(FILE).told("server.from"), "\"127.0.0.1:1\" # hapax.toml:2");
    let setup = file(FILE).variable("HAPAX_SERVER_FROM", "127.0.0.1:2");
    assert_eq!(setup.told("server.from"), "\"127.0.0.1:2\" # HAPAX_SERVER_FROM, over hapax.toml:2");
    let setup = setup.flag("--from", "server.from", "127.0.0.1:3");
    assert_eq!(setup.told("server.from"), "\"127.0.0.1:3\" # --from, over HAPAX_SERVER_FROM and hapax.toml:2");
}

#[test]
fn a_value_that_loses_is_not_read() {
    let setup = file("[server]\nfrom = 5\n").variable("HAPAX_SERVER_FROM", "127.0.0.1:2");
    assert_eq!(setup.load().server.from.port(), 2);
}

#[test]
fn a_misspelt_variable_is_refused_with_what_was_meant() {
    let setup = without_file().variable("HAPAX_DEFAULTS_RETENTOIN", "1h");
    assert_eq!(
        setup.problems(),
        ["HAPAX_DEFAULTS_RETENTOIN: there is no such setting; did you mean `HAPAX_DEFAULTS_RETENTION`?"]
    );
}

#[test]
fn a_bad_value_in_a_variable_is_refused_with_the_variable() {
    let setup = without_file().variable("HAPAX_DEFAULTS_RETENTION", "soon").variable("HAPAX_UPSTREAM_H2", "on");
    assert_eq!(
        setup.problems(),
        [
            "HAPAX_UPSTREAM_H2: `upstream.h2` must be true or false, not \"on\"",
            "HAPAX_DEFAULTS_RETENTION: `defaults.retention` must be a duration with a unit, such as \"30s\" or \
             \"24h\", not \"soon\"",
        ]
    );
}

#[test]
fn lists_tables_and_off_can_be_set_by_variables() {
    let setup = file("[admin]\nfrom = \"127.0.0.1:7\"\n")
        .variable("HAPAX_DEFAULTS_NOT_STORED", "401,429")
        .variable("HAPAX_DEFAULTS_LABELS", "order=request:/order,charge=answer:/id")
        .variable("HAPAX_ADMIN_FROM", "off");
    let config = setup.load();
    assert_eq!(config.defaults.not_stored.len(), 2);
    assert_eq!(config.defaults.labels.len(), 2);
    assert_eq!(config.admin.from, None);
}

#[test]
fn a_secret_comes_from_the_file_that_a_variable_names() {
    let setup = file("[admin]\ntoken = \"from-the-configuration\"\n");
    let path = setup.write("token", "from-a-file-of-its-own\n", 0o600).display().to_string();
    let setup = setup.variable("HAPAX_ADMIN_TOKEN_FILE", &path);
    assert_eq!(setup.load().admin.token.unwrap().expose(), "from-a-file-of-its-own");
    assert_eq!(setup.told("admin.token"), "\"(hidden)\" # HAPAX_ADMIN_TOKEN_FILE, over hapax.toml:2");
    let setup = setup.variable("HAPAX_ADMIN_TOKEN", "of-the-same-strength");
    assert_eq!(setup.problems(), ["HAPAX_ADMIN_TOKEN: `admin.token` and `admin.token_file` are both set; remove one"]);
}

#[test]
fn a_store_url_comes_from_a_file_and_its_password_is_not_shown() {
    let setup = file("");
    let path = setup.write("url", "postgres://me:hunter2@db/app\n", 0o600).display().to_string();
    let setup = setup.variable("HAPAX_STORE_URL_FILE", &path);
    assert_eq!(setup.load().store.backend.shown(), "postgres://me:***@db/app");
    assert!(!config::show(&setup.explain().settings, true).contains("hunter2"));
}

#[test]
fn a_file_of_a_secret_that_is_off_leaves_the_secret_as_it_is() {
    let setup = file("[store]\nurl = \"postgres://me@db/app\"\n").variable("HAPAX_STORE_URL_FILE", "off");
    assert_eq!(setup.load().store.backend.shown(), "postgres://me:***@db/app");
    assert_eq!(setup.told("store.url"), "\"postgres://me:***@db/app\" # hapax.toml:2");
}

#[test]
fn a_link_that_leads_nowhere_is_no_absent_file() {
    let mut setup = without_file();
    setup.sources.directory = Some(setup.directory.path().to_owned());
    std::os::unix::fs::symlink("/nowhere/hapax.toml", setup.directory.path().join("hapax.toml")).unwrap();
    let problems = setup.problems();
    assert!(problems[0].contains("does not exist"), "{problems:?}");
}

#[test]
fn a_stronger_off_beats_a_weaker_secret() {
    let setup = file("[admin]\ntoken = \"hunter2hunter2hunter2\"\n").variable("HAPAX_ADMIN_TOKEN", "off");
    assert_eq!(setup.load().admin.token, None);
}

#[test]
fn a_file_in_the_directory_is_read_and_a_named_one_is_read_in_its_place() {
    let mut setup = file(FILE);
    setup.sources.file = None;
    assert_eq!(setup.load().server.from.port(), 8080, "no directory, no file");
    setup.sources.directory = Some(setup.directory.path().to_owned());
    assert_eq!(setup.load().server.from.port(), 1);
    let other = setup.write("other.toml", "[server]\nfrom = \"127.0.0.1:2\"\n", 0o644).display().to_string();
    let setup = setup.variable("HAPAX_CONFIG", &other);
    assert_eq!(setup.load().server.from.port(), 2);
}

#[test]
fn no_two_keys_share_a_variable() {
    let mut names: Vec<String> = config::keys().iter().map(|key| key.replace('.', "_")).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text = "mode = \"observe\"\n[server]\nheader_timeout = \"1500ms\"\n[[route]]\npath = \"/a\"\nlease = \"1m\"\n\
                [[route]]\nmethods = [\"PUT\"]\npath = \"/b\"\nlabels = { a = \"request:/a\" }\n";
    let first = file(text);
    let shown = config::show(&first.explain().settings, false);
    let second = file(&shown).without_flags();
    assert_eq!(second.load(), config::Config { file: second.sources.file.clone(), ..first.load() });
}
