//! `hapax store restore`: a backup in the place of a store, fenced before anybody can open it.

use std::path::{Path, PathBuf};

use hapax_core::clock::Timestamp;
use hapax_sqlite::{Options, Restore};

use super::StoreFileError;
use super::args::RestoreArgs;
use super::{backup, fence, open};
use crate::config;
use crate::flags::{who, without_token};
use crate::timestamp;

/// Files that are kept within one second. More restores than that are a loop.
const KEPT_PER_SECOND_MAX: u32 = 1_000;

/// Puts the backup into its place and says what that means.
pub(super) async fn run(args: &RestoreArgs, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    if args.reason.trim().is_empty() {
        return Err(StoreFileError::Usage("`--reason` is empty; say why in a sentence".to_owned()));
    }
    let config = config::load(&args.store.sources(without_token(environment.clone())))?;
    let who = who(&args.actor, &environment);
    let to = open::file(&args.store, environment)?;
    let restore = Restore::begin(&args.from, &Options::new(&to))?;
    let contents = restore.contents().clone();
    let note = fence::note(&who, "restore", &args.reason, "");
    let raised = fence::raise(restore.store(), contents.newest, fence::longest_retention(&config), &note).await?;
    let kept = restore.finish(&unused(&to, &ending(raised.fence.restored_at)))?;
    let kept = kept.map_or_else(String::new, |kept| {
        let kept = kept.display();
        format!(
            "The old file is kept as {kept}.\n\
             If it can be read, see what it has and the backup lacks, and take it over: hapax store recover {kept}\n"
        )
    });
    Ok(format!(
        "Restored {} from {}.\n{}{kept}{}{}",
        to.display(),
        args.from.display(),
        backup::shown(&contents),
        fence::shown(&raised.fence, Some(&config)),
        fence::suspected(&raised),
    ))
}

/// `.before-restore-20261116T120000Z`: sorts by time and needs no quotes in a shell.
fn ending(now: Timestamp) -> String {
    let time: String = timestamp::text(now).chars().filter(|letter| !matches!(letter, '-' | ':')).collect();
    let time = time.split('.').next().unwrap_or_default();
    format!(".before-restore-{time}Z")
}

/// The same with a number, where a file was kept under that name within this second.
fn unused(to: &Path, ending: &str) -> String {
    let is_free = |ending: &String| ["", "-wal"].iter().all(|log| !beside(to, &format!("{ending}{log}")).exists());
    let numbered = (2..=KEPT_PER_SECOND_MAX).map(|number| format!("{ending}-{number}"));
    std::iter::once(ending.to_owned()).chain(numbered).find(is_free).unwrap_or_else(|| ending.to_owned())
}

fn beside(to: &Path, ending: &str) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("hapax.db");
        assert_eq!(unused(&to, ".before"), ".before");
        std::fs::write(directory.path().join("hapax.db.before"), "").unwrap();
        std::fs::write(directory.path().join("hapax.db.before-2-wal"), "").unwrap();
        assert_eq!(unused(&to, ".before"), ".before-3");
    }

    #[test]
    fn the_old_file_is_named_after_the_time() {
        assert_eq!(ending(Timestamp::from_ms(1_794_830_400_250)), ".before-restore-20261116T120000Z");
    }
}
