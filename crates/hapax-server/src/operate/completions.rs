//! `hapax completions` and `hapax man`: made from the commands themselves, so that they cannot differ.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use super::failure::Failure;
use super::terminal::print;

/// A script for that shell.
pub(super) fn completions(shell: Shell, mut commands: Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands, "hapax", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// The page of `hapax` itself, or a page for each command in that directory, which is made if it is not there.
pub(super) fn man(directory: Option<&Path>, commands: Command) -> Result<u8, Failure> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(commands).render(&mut page)?;
        print(&String::from_utf8_lossy(&page))?;
        return Ok(0);
    };
    let failed = |error| Failure::usage(format!("the pages cannot be written to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(commands, directory).map_err(failed)?;
    print(&format!("the pages are in {}\n", directory.display()))?;
    Ok(0)
}
