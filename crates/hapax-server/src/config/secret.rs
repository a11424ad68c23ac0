//! Secrets: a text that does not show itself, and the files secrets are kept in.
//!
//! A secret never reaches a log, an error or `hapax config show`. A file that anyone on the machine can read keeps no
//! secret, so it is refused. Left to others: what the secrets are for.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// A secret of more bytes is a file mistaken for another.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text. Whoever calls this must not pass it on to a log, a metric or an error.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Reads a secret from a file, without the line end that editors leave.
pub(crate) fn read_file(path: &Path) -> Result<Secret, String> {
    let mut text = String::new();
    check_private(path)?;
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!("`{}` has more than 64 KiB, so it is no secret; name another file", path.display()));
    }
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(format!("`{}` is empty; write the secret into it", path.display()));
    }
    Ok(Secret::new(secret))
}

/// Refuses a file that is not there, or that anyone on the machine can read or change.
pub(super) fn check_private(path: &Path) -> Result<(), String> {
    check_readable(path)?;
    if is_public(path) {
        let path = path.display();
        return Err(format!(
            "anyone on this machine can read `{path}`, which holds a secret; run `chmod o-rwx {path}`"
        ));
    }
    Ok(())
}

/// Refuses a file that cannot be read.
pub(super) fn check_readable(path: &Path) -> Result<(), String> {
    // Before it is opened: opening a pipe waits for somebody to write.
    let about = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if about.is_dir() {
        return Err(format!("`{}` is a directory; name a file", path.display()));
    }
    if !about.is_file() {
        return Err(format!("`{}` is a pipe or a device, not a regular file; name one", path.display()));
    }
    fs::File::open(path).map(|_| ()).map_err(|error| unreadable(path, &error))
}

/// True where users other than owner and group can read or change a file.
#[cfg(unix)]
pub(super) fn is_public(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o007 != 0)
}

/// Where there are no permission bits there is nothing to check.
#[cfg(not(unix))]
pub(super) fn is_public(_path: &Path) -> bool {
    false
}

/// What the operating system says, in words that do not differ between systems where that is possible.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => format!("`{path}` does not exist; create it or name another file"),
        ErrorKind::PermissionDenied => format!("`{path}` may not be read by this user; change its owner or mode"),
        ErrorKind::InvalidData => format!("`{path}` is not UTF-8 text; name another file"),
        _ => format!("`{path}` cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "(hidden)");
    }
}
