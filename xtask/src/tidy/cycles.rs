//! Import cycles: modules of one crate that need each other cannot be read, tested or moved one by one.
//!
//! The graph has a node for each module at the top of a crate, with all that is inside it, and an edge for each path that
//! leads into another one. A name that the root exports from a module leads into that module. Tests do not count: they may
//! look at anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree};

use super::{Finding, Sources, is_rust};

/// Crates that are not in layers yet: the stores, and the proxy, where a body knows the connection that it came by.
const NOT_YET: [&str; 3] =
    ["crates/hapax-postgres/src/lib.rs", "crates/hapax-proxy/src/lib.rs", "crates/hapax-sqlite/src/lib.rs"];

/// An edge: from a module to another, and the first file with such a path.
type Edges = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// Finds one cycle in each crate that has any.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let is_checked =
        |file: &&PathBuf| file.ends_with("src/lib.rs") && !NOT_YET.iter().any(|root| *file == Path::new(root));
    let roots = sources.keys().filter(is_checked);
    roots.filter_map(|root| cycle(&edges(sources, root)).map(|path| finding(&path))).collect()
}

fn finding(path: &[(String, PathBuf)]) -> Finding {
    let names: Vec<&str> = path.iter().map(|(name, _)| name.as_str()).collect();
    let files: Vec<String> = path.iter().map(|(_, file)| file.display().to_string()).collect();
    let what = format!("import cycle {} → {}, by {}", names.join(" → "), names[0], files.join(", "));
    Finding { file: path[0].1.clone(), line: 1, what }
}

/// The graph of the crate with that root.
fn edges(sources: &Sources, root: &Path) -> Edges {
    let directory = root.parent().unwrap_or(Path::new(""));
    let inside = |file: &Path| file.strip_prefix(directory).ok().map(Path::to_owned).filter(|_| is_rust(file));
    let files: Vec<(PathBuf, Vec<String>)> = sources
        .keys()
        .filter_map(|file| Some((file.clone(), module_path(&inside(file)?)?)))
        .filter(|(_, path)| !path.iter().any(|name| name == "tests"))
        .collect();
    let modules: BTreeSet<&str> = files.iter().filter_map(|(_, path)| path.first()).map(String::as_str).collect();
    let exports = exports(sources.get(root).map_or("", String::as_str), &modules);
    let mut edges = Edges::new();
    for (file, path) in &files {
        let Some(from) = path.first() else { continue };
        let Some(parsed) = sources.get(file).and_then(|text| syn::parse_file(text).ok()) else { continue };
        let mut paths = Paths { module: path.clone(), found: BTreeSet::new() };
        paths.visit_file(&parsed);
        for name in paths.found {
            let to = modules.get(name.as_str()).copied().or_else(|| exports.get(&name).map(String::as_str));
            if let Some(to) = to.filter(|to| to != from) {
                edges.entry(from.clone()).or_default().entry(to.to_owned()).or_insert_with(|| file.clone());
            }
        }
    }
    edges
}

/// The module that a file is, from the root; none for the root of a binary.
fn module_path(file: &Path) -> Option<Vec<String>> {
    let mut path: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match path.last().map(String::as_str) {
        Some("mod" | "lib") => {
            path.pop();
        }
        Some("main") => return None,
        _ => {}
    }
    Some(path)
}

/// Names that the root exports, each with the module that it is from.
fn exports(root: &str, modules: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let Ok(parsed) = syn::parse_file(root) else { return exports };
    for item in &parsed.items {
        let syn::Item::Use(ItemUse { tree, .. }) = item else { continue };
        let mut paths = Vec::new();
        flatten(tree, &mut Vec::new(), &mut paths);
        for path in paths {
            if let [module, .., name] = path.as_slice()
                && modules.contains(module.as_str())
            {
                exports.insert(name.clone(), module.clone());
            }
        }
    }
    exports
}

/// Every path of a tree, by the names under which they are known afterwards.
fn flatten(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, paths)),
        UseTree::Name(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Rename(rename) => paths.push(before.iter().cloned().chain([rename.rename.to_string()]).collect()),
        UseTree::Glob(_) => paths.push(before.clone()),
    }
}

/// Collects what a file names of its crate: the first name behind the root.
struct Paths {
    module: Vec<String>,
    found: BTreeSet<String>,
}

impl Paths {
    fn add(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let name = match path.first().map(String::as_str) {
            Some("crate") => path.get(1),
            Some("super") if supers == self.module.len() => path.get(supers),
            _ => None,
        };
        self.found.extend(name.cloned());
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            self.module.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(is_for_tests) {
            let mut paths = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut paths);
            paths.iter().for_each(|path| self.add(path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }
}

/// `#[cfg(test)]`, also where tests need more: `#[cfg(all(test, …))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else { return false };
    // Names of features are in quotation marks.
    let condition: String = list.tokens.to_string().split('"').step_by(2).collect();
    let words: Vec<&str> = condition.split(|letter: char| !letter.is_alphanumeric()).collect();
    attribute.path().is_ident("cfg") && words.contains(&"test") && !words.contains(&"not") && !words.contains(&"any")
}

/// One cycle, if there is any: each module with the file by which it needs the next.
fn cycle(edges: &Edges) -> Option<Vec<(String, PathBuf)>> {
    let mut done = BTreeSet::new();
    edges.keys().find_map(|start| walk(edges, start, &mut Vec::new(), &mut done))
}

fn walk(
    edges: &Edges,
    at: &str,
    way: &mut Vec<(String, PathBuf)>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<(String, PathBuf)>> {
    if let Some(begin) = way.iter().position(|(name, _)| name == at) {
        return Some(way[begin..].to_vec());
    }
    if done.contains(at) {
        return None;
    }
    for (next, file) in edges.get(at)? {
        way.push((at.to_owned(), file.clone()));
        if let Some(found) = walk(edges, next, way, done) {
            return Some(found);
        }
        way.pop();
    }
    done.insert(at.to_owned());
    None
}
