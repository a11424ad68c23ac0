//! Files that no module names: they are not compiled, so they rot unseen.
//!
//! From the roots that cargo finds by itself (`src/lib.rs`, `src/main.rs`, `tests/*.rs` and so on) it follows `mod name;`
//! and `#[path]`. Targets with a path of their own in a manifest are unknown to it; there are none.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ItemMod, Lit, Meta};

use super::{Finding, Sources, is_rust};

/// Where cargo looks for one target per file.
const TARGET_DIRECTORIES: [&str; 4] = ["src/bin", "tests", "examples", "benches"];

/// Finds every Rust file that cannot be reached, and every one that cannot be parsed.
pub(super) fn without_module(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reached = BTreeSet::new();
    let mut open: Vec<(PathBuf, PathBuf)> = roots(sources).into_iter().map(|root| (parent(&root), root)).collect();
    while let Some((directory, file)) = open.pop() {
        let Some(text) = sources.get(&file) else { continue };
        if !reached.insert(file.clone()) {
            continue;
        }
        match syn::parse_file(text) {
            Ok(parsed) => open.extend(named_by(&parsed, &file, directory)),
            Err(error) => findings.push(Finding { file, line: 1, what: format!("cannot be parsed: {error}") }),
        }
    }
    let lost = sources.keys().filter(|file| is_rust(file) && !reached.contains(*file));
    findings.extend(lost.map(|file| Finding { file: file.clone(), line: 1, what: "no module names this file".into() }));
    findings
}

fn roots(sources: &Sources) -> Vec<PathBuf> {
    let manifests = sources.keys().filter(|file| file.file_name().is_some_and(|name| name == "Cargo.toml"));
    let packages: BTreeSet<PathBuf> = manifests.map(|file| parent(file)).collect();
    let is_root = |file: &Path| packages.iter().any(|package| file.strip_prefix(package).is_ok_and(is_root_in_package));
    sources.keys().filter(|file| is_rust(file) && is_root(file)).cloned().collect()
}

/// `file` is relative to the package.
fn is_root_in_package(file: &Path) -> bool {
    let fixed = ["build.rs", "src/lib.rs", "src/main.rs"].iter().any(|root| file == Path::new(root));
    let by_directory = TARGET_DIRECTORIES.iter().any(|directory| {
        let Ok(rest) = file.strip_prefix(directory) else { return false };
        match rest.components().count() {
            1 => true,
            2 => rest.ends_with("main.rs"),
            _ => false,
        }
    });
    fixed || by_directory
}

/// The files that a file's modules name, each after the directory in which its own modules lie.
fn named_by(parsed: &syn::File, file: &Path, directory: PathBuf) -> Vec<(PathBuf, PathBuf)> {
    let mut visitor = Modules { beside: parent(file), directory, inline: false, found: Vec::new() };
    visitor.visit_file(parsed);
    visitor.found
}

struct Modules {
    /// The directory of the file itself: where a `#[path]` outside of inline modules begins.
    beside: PathBuf,
    /// Where modules named here lie.
    directory: PathBuf,
    inline: bool,
    /// Pairs as in [`named_by`].
    found: Vec<(PathBuf, PathBuf)>,
}

impl<'ast> Visit<'ast> for Modules {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let name = module.ident.to_string();
        let name = name.trim_start_matches("r#");
        if module.content.is_some() {
            let outer = (self.directory.clone(), self.inline);
            self.directory.push(name);
            self.inline = true;
            visit::visit_item_mod(self, module);
            (self.directory, self.inline) = outer;
        } else if let Some(path) = module.attrs.iter().find_map(path_attribute) {
            let file = plain(&if self.inline { &self.directory } else { &self.beside }.join(path));
            // Modules of such a file lie beside it.
            self.found.push((parent(&file), file));
        } else {
            let own = self.directory.join(name);
            self.found.push((own.clone(), own.with_extension("rs")));
            self.found.push((own.clone(), own.join("mod.rs")));
        }
    }
}

/// The value of `#[path = "…"]`.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(literal) if pair.path.is_ident("path") => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn parent(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_owned()
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
