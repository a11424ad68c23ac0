//! The papers: the default file and the documentation name every key, with its default.

use std::path::Path;

use hapax_server::config;

use crate::config::setup::{file, without_file};

#[test]
fn the_default_file_says_what_the_defaults_are() {
    let by_file = file(config::DEFAULT_FILE);
    let built_in = without_file().load();
    assert_eq!(config::Config { file: None, ..by_file.load() }, built_in);
    assert_eq!(built_in, config::Config::new("http://127.0.0.1:3000".parse().unwrap()));
}

#[test]
fn every_key_stands_in_the_default_file_with_a_comment() {
    let table: toml::Table = config::DEFAULT_FILE.parse().unwrap();
    for key in config::keys() {
        if key == "upstream.to" {
            assert!(
                config::DEFAULT_FILE.contains("\n# to = \"http://127.0.0.1:3000\"\n"),
                "the upstream has no default"
            );
            continue;
        }
        let found = match key.split_once('.') {
            Some((section, name)) => table.get(section).and_then(|section| section.get(name)),
            None => table.get(&key),
        };
        assert!(found.is_some(), "{key} is not in hapax.default.toml");
    }
}

#[test]
fn the_example_route_of_the_default_file_is_one() {
    let example = config::DEFAULT_FILE.split("# [[route]]\n").nth(1).expect("there is an example");
    let route: String = example.lines().map(|line| format!("{}\n", line.trim_start_matches("# "))).collect();
    let config = file(&format!("[[route]]\n{route}")).load();
    assert_eq!(config.routes[0].path.as_str(), "/payments/{id}/capture");
}

#[test]
fn every_key_stands_in_the_documentation_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    for setting in without_file().explain().settings {
        let name = setting.key.strip_prefix("defaults.").unwrap_or(&setting.key);
        let value = if setting.key == "upstream.to" { "none" } else { &format!("`{}`", setting.value) };
        let row = format!("| `{name}` | {value} |");
        assert!(text.contains(&row), "docs/configuration.md has no row {row}");
    }
}
