//! The commands as a shell sees them: output and exit codes. That every help fits a screen is in `operate.rs`.

use std::path::Path;
use std::process::{Command, Output};

use crate::config::setup::without_file;

fn hapax(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).current_dir(directory).env_clear().output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_sound_configuration_is_said_to_be_sound() {
    let setup = without_file();
    setup.write("hapax.toml", "[[route]]\npath = \"/a\"\n", 0o644);
    let done = hapax(setup.directory.path(), &["config", "check", "--to", "http://127.0.0.1:3000", "--observe"]);
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(
        text(&done.stdout),
        "note: mode is observe: nothing is refused or replayed, so nothing is protected\n\
         The configuration is sound (hapax.toml; store sqlite:hapax.db; 1 route).\n"
    );
}

#[test]
fn check_and_start_refuse_the_same_with_code_2() {
    let setup = without_file();
    setup.write("hapax.toml", "mode = \"x\"\n[defaults]\nlease = \"0s\"\n", 0o644);
    let told = "error: --from: `server.from` must be an address and a port, such as \"127.0.0.1:8080\", not \"8080\"\n";
    let flags = ["--to", "http://127.0.0.1:3000", "--from", "8080"];
    for command in [&["config", "check"][..], &["proxy"][..]] {
        let done = hapax(setup.directory.path(), &[command, &flags].concat());
        assert_eq!(done.status.code(), Some(2), "{command:?}");
        let shown = text(&done.stderr);
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(
            shown.starts_with("error: hapax.toml:1: `mode` must be \"enforce\" or \"observe\", not \"x\"\n"),
            "{shown}"
        );
        assert!(shown.ends_with(told), "{shown}");
        assert!(done.stdout.is_empty());
    }
}

#[test]
fn show_prints_what_it_could_read_and_then_what_is_wrong() {
    let setup = without_file();
    let done = hapax(setup.directory.path(), &["config", "show", "--origin", "--from", "127.0.0.1:9"]);
    assert_eq!(done.status.code(), Some(2));
    let shown = text(&done.stdout);
    assert!(
        shown.lines().any(|line| line.starts_with("from = \"127.0.0.1:9\" ") && line.ends_with(" # --from")),
        "{shown}"
    );
    assert_eq!(text(&done.stderr), "error: no upstream is named; pass --to URL or set `upstream.to`\n");
}

#[test]
fn default_prints_the_default_file() {
    let done = hapax(Path::new("."), &["config", "default"]);
    assert_eq!(text(&done.stdout), hapax_server::config::DEFAULT_FILE);
    assert_eq!(done.status.code(), Some(0));
}

#[test]
fn the_version_is_told_and_an_unknown_flag_is_refused_with_code_2() {
    let done = hapax(Path::new("."), &["--version"]);
    assert_eq!(text(&done.stdout), format!("hapax {}\n", env!("CARGO_PKG_VERSION")));
    let done = hapax(Path::new("."), &["proxy", "--too", "x"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("'--to'"), "{}", text(&done.stderr));
}

#[test]
fn flags_that_set_a_key_set_it() {
    let setup = without_file();
    let done = hapax(
        setup.directory.path(),
        &[
            "config",
            "show",
            "--to",
            "http://127.0.0.1:3000",
            "--store",
            "memory:",
            "--scope",
            "credential",
            "--scope",
            "header:X-Org",
            "--anonymous",
            "--keys",
            "optional",
            "--dialect",
            "stripe",
            "--admin",
            "off",
            "--observe",
        ],
    );
    let shown: toml::Table = text(&done.stdout).parse().unwrap();
    assert_eq!(shown["scope"].to_string(), "[\"credential\", \"header:x-org\"]");
    assert_eq!(shown["defaults"]["required"].as_bool(), Some(false));
    assert_eq!((shown["mode"].as_str(), shown["dialect"].as_str()), (Some("observe"), Some("stripe")));
    assert_eq!((shown["store"]["url"].as_str(), shown["admin"]["from"].as_str()), (Some("memory:"), Some("off")));
    assert_eq!(
        (shown["anonymous"].as_bool(), shown["upstream"]["to"].as_str()),
        (Some(true), Some("http://127.0.0.1:3000"))
    );
}
