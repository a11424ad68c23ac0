//! `hapax config show`: the settings in force, as a file that could be read again.
//!
//! With origins, each line says where its value comes from and whom it beat. Secrets are hidden already. Left to
//! others: finding the settings (`reader`).

use super::problem::Origin;
use super::reader::Setting;

/// All settings as TOML.
#[must_use]
pub fn show(settings: &[Setting], with_origin: bool) -> String {
    let mut text = String::new();
    let mut section_before = "";
    for setting in settings {
        let (section, key) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
        if section != section_before {
            text.push_str(&heading(section));
            section_before = section;
        }
        let line =
            if setting.value.is_empty() { format!("# {key} is not set") } else { format!("{key} = {}", setting.value) };
        match with_origin {
            true => text.push_str(&format!("{line:<48} # {}\n", provenance(setting))),
            false => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

fn heading(section: &str) -> String {
    match section.split_once('[') {
        Some((name, _)) => format!("\n[[{name}]]\n"),
        None => format!("\n[{section}]\n"),
    }
}

/// `HAPAX_SERVER_FROM, over hapax.toml:3`
fn provenance(setting: &Setting) -> String {
    let over: Vec<String> = setting.over.iter().map(Origin::to_string).collect();
    match over.as_slice() {
        [] => setting.origin.to_string(),
        over => format!("{}, over {}", setting.origin, over.join(" and ")),
    }
}
