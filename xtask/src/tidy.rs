//! The tidy test: what neither compiler nor linter sees.
//!
//! Functions and files that have grown too long to be read in one sitting, modules that need each other, files that no module names, files without a
//! header, reminders and ignored tests that were left behind, paths that exist on one machine only. Every rule is a
//! function from the sources to its findings. It does not judge style: the formatter and clippy do.

mod cycles;
mod length;
mod masked;
mod modules;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text files of the repository, by their path in it.
pub(crate) type Sources = BTreeMap<PathBuf, String>;

/// Something to be tidied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Everything that is untidy, in order of file and line.
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = modules::without_module(sources);
    findings.extend(cycles::check(sources));
    for (file, text) in sources {
        let mut add = |line: usize, what: String| findings.push(Finding { file: file.clone(), line, what });
        words::check(text, &mut add);
        words::check_examples(file, text, &mut add);
        if is_rust(file) {
            let code = masked::masked(text);
            length::check(text, &code, length::Limits::of(file), &mut add);
            words::check_attributes(&code, &mut add);
            if !text.starts_with("//!") {
                add(1, "the file does not begin with a `//!` header that says what it does and why".to_owned());
            }
        }
    }
    findings.sort();
    findings
}

/// Reads the files that git knows or would add; without git, all files outside `target`.
pub(crate) fn sources(root: &Path) -> std::io::Result<Sources> {
    let mut files = match listed_by_git(root) {
        Some(files) => files,
        None => walked(root, Path::new(""))?,
    };
    files.retain(|file| is_text(file) && root.join(file).is_file());
    files.into_iter().map(|file| Ok((file.clone(), std::fs::read_to_string(root.join(file))?))).collect()
}

fn listed_by_git(root: &Path) -> Option<Vec<PathBuf>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let names = String::from_utf8(listed.stdout).ok().filter(|_| listed.status.success())?;
    Some(names.split_terminator('\0').map(PathBuf::from).collect())
}

fn walked(root: &Path, directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join(directory))? {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            files.push(path);
        } else if path != Path::new("target") && path != Path::new(".git") {
            files.extend(walked(root, &path)?);
        }
    }
    Ok(files)
}

/// Rust, Markdown, TOML, SQL, and whatever lies in the directories of scripts.
fn is_text(file: &Path) -> bool {
    let by_name = file.extension().is_some_and(|extension| {
        ["rs", "md", "toml", "sql", "sh"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    by_name || file.starts_with("scripts") || file.starts_with(".ci")
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

/// True for files that hold nothing but tests.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests") || file.file_stem().is_some_and(|stem| stem == "tests")
}

/// The number of the line in which the byte at `offset` stands.
fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
