//! docs/benchmarks.md: each benchmark writes its own section, between markers, and leaves the others alone.

use std::path::PathBuf;
use std::process::Command;

const TITLE: &str = "# Benchmarks\n";

/// Replaces one section of the page, or adds it at the end.
pub(crate) fn write_section(name: &str, text: &str) {
    write_section_in("docs/benchmarks.md", name, text);
}

/// The same in another page of the repository.
pub(crate) fn write_section_in(page: &str, name: &str, text: &str) {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(page);
    let old = std::fs::read_to_string(&page).unwrap_or_else(|_| TITLE.to_owned());
    std::fs::write(page, with_section(&old, name, text)).expect("the page is written");
}

fn with_section(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
    let section = format!("{begin}\n{}\n\n{end}", text.trim());
    match page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1))) {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{}\n\n{section}", page.trim_end()),
    }
}

/// What the figures were measured on: how large, not whose.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let date = said("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default();
    let kernel = said("uname", &["-sr"]).unwrap_or_default();
    // The version, and nothing about whose build it is.
    let kernel = kernel.split('.').take(2).collect::<Vec<_>>().join(".");
    format!("{date}, {cores} cores, {} GiB, {kernel}.", kib / 1024 / 1024)
}

pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::with_section;

    #[test]
    fn a_section_is_added_at_the_end_and_replaced_in_its_place() {
        let one = with_section("# Benchmarks\n", "stores", "old\n");
        let two = with_section(&one, "proxy", "other");
        let three = with_section(&two, "stores", "\nnew\n\n");
        let expected = "# Benchmarks\n\n<!-- begin stores -->\n\nnew\n\n<!-- end stores -->\n\n\
                        <!-- begin proxy -->\n\nother\n\n<!-- end proxy -->\n";
        assert_eq!(three, expected);
        assert_eq!(with_section(&three, "stores", "new"), three, "twice is the same as once");
    }

    #[test]
    fn a_marker_without_its_end_does_not_swallow_the_page() {
        let page = "# Benchmarks\n\n<!-- begin stores -->\nwritten by hand\n";
        let added = with_section(page, "stores", "new");
        assert!(added.contains("written by hand") && added.ends_with("new\n\n<!-- end stores -->\n"), "{added}");
    }
}
