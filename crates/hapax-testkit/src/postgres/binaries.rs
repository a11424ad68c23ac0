//! Where PostgreSQL's programs are.
//!
//! Debian keeps the server's programs out of `PATH`, one directory per major version.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{command, skip};

/// Names the directory of the programs; wins over every other place.
const DIRECTORY: &str = "HAPAX_PG_BIN";
/// Where Debian and its descendants put each major version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Without these there is no server.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// The directory with `initdb`, `pg_ctl` and the rest.
///
/// # Panics
///
/// When there is none.
#[track_caller]
pub(super) fn directory() -> &'static Path {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOUND.get_or_init(find) {
        Ok(directory) => directory,
        Err(reason) => panic!("{reason}; {}", skip::advice()),
    }
}

fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(DIRECTORY).map(PathBuf::from) {
        let reason = format!("{DIRECTORY} names {}, which is not a directory of PostgreSQL programs", named.display());
        return if is_complete(&named) { Ok(named) } else { Err(reason) };
    }
    let on_path = command::on_path("initdb").and_then(|file| file.parent().map(Path::to_owned));
    on_path
        .into_iter()
        .chain(configured())
        .chain(debian())
        .find(|directory| is_complete(directory))
        .ok_or_else(|| format!("PostgreSQL's server programs are neither on PATH nor under {DEBIAN}"))
}

/// What `pg_config` says.
fn configured() -> Option<PathBuf> {
    let printed = command::try_output(Command::new("pg_config").arg("--bindir")).ok()?;
    Some(PathBuf::from(printed.trim_end()))
}

/// Debian's directories, the highest version first.
fn debian() -> Vec<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin"))))
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, directory)| directory).collect()
}

fn is_complete(directory: &Path) -> bool {
    NEEDED.iter().all(|program| directory.join(program).is_file())
}
