//! What can be chosen when a file is opened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hapax_core::clock::{Clock, SystemClock};

/// SQLite counts milliseconds in an `int`.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// How to open a file. A path alone is [`Options::new`] of it.
///
/// ```
/// use std::time::Duration;
/// use hapax_sqlite::{Options, Sqlite};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pay.db");
/// let options = Options::new(&path).with_busy_timeout(Duration::from_secs(2)).with_bytes_max(1024 * 1024 * 1024);
/// let store = Sqlite::open(options)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) path: PathBuf,
    pub(crate) guest: bool,
    pub(crate) existing: bool,
    pub(crate) busy_timeout: Duration,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("path", &self.path).field("guest", &self.guest).finish_non_exhaustive()
    }
}

impl Options {
    /// A file of hapax's own at that path. It is made if it is not there; its directory must be.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            guest: false,
            existing: false,
            busy_timeout: Duration::from_secs(5),
            bytes_max: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The file belongs to an application; hapax keeps its tables (`hapax_…`) beside the application's. Needed for
    /// [`Sqlite::swap_in`](crate::Sqlite::swap_in). The application's file must be in WAL mode or is put into it.
    #[must_use]
    pub fn with_guest(mut self) -> Self {
        self.guest = true;
        self
    }

    /// The file must hold a store already: nothing is made where a path is mistyped, and nothing is migrated. A store of an
    /// older release is used as it is, or refused.
    #[must_use]
    pub fn with_existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// How long to wait while another process or an open transaction holds the file. Default 5 s. At most 24 days, which is
    /// what SQLite can count: more is taken as that.
    #[must_use]
    pub fn with_busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(BUSY_TIMEOUT_MAX);
        self
    }

    /// The file never grows beyond this: new claims are then refused, as on a full disk.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// Another clock than the host's, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

macro_rules! from_path {
    ($($path:ty),*) => {
        $(
            impl From<$path> for Options {
                fn from(path: $path) -> Self {
                    Self::new(path)
                }
            }
        )*
    };
}

from_path!(&str, String, &Path, PathBuf, &PathBuf);

impl From<&Self> for Options {
    fn from(options: &Self) -> Self {
        options.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_alone_is_enough() {
        let path = Path::new("pay.db");
        let given: [Options; 5] = [
            "pay.db".into(),
            "pay.db".to_owned().into(),
            path.into(),
            path.to_owned().into(),
            (&path.to_owned()).into(),
        ];
        for options in given {
            assert_eq!((options.path.as_path(), options.guest, options.existing), (path, false, false));
        }
        assert!(Options::from(&Options::new(path).with_guest()).guest);
    }
}
