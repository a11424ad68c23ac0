//! How a command ends that failed: one line on the standard error for each cause, and a stable exit code.

use std::io;
use std::process::ExitCode;

use crate::config::ConfigErrors;
use crate::desk::{DeskError, DeskErrorKind};
use crate::logs::escaped;

/// The system itself failed, and not the store: the output could not be written, for one.
const EXIT_SYSTEM: u8 = 1;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    Desk(DeskError),
    Configuration(ConfigErrors),
    /// The system itself: a runtime, a thread, the standard output.
    System(String),
}

impl Failure {
    /// The command makes no sense.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        DeskError::new(DeskErrorKind::Invalid, message).into()
    }

    /// The output cannot be written.
    pub(super) fn output(error: &io::Error) -> Self {
        Self::System(format!("the output cannot be written: {error}"))
    }

    /// The same, after a record was changed: whoever reads that it failed would do it again.
    pub(super) fn after_a_change(self) -> Self {
        match self {
            Self::System(why) => Self::System(format!("{why}; the change was made, and is in the audit log")),
            other => other,
        }
    }

    /// Says why, and with which code.
    pub(super) fn report(&self) -> ExitCode {
        match self {
            Self::Configuration(errors) => {
                for problem in &errors.0 {
                    eprintln!("error: {problem}");
                }
                eprintln!("note: correct this, or ask a running node with --admin URL, which needs no configuration");
                ExitCode::from(DeskErrorKind::Invalid.exit_code())
            }
            Self::Desk(error) => {
                eprintln!("error: {}", escaped(&error.message));
                ExitCode::from(error.kind.exit_code())
            }
            Self::System(why) => {
                eprintln!("error: {}", escaped(why));
                ExitCode::from(EXIT_SYSTEM)
            }
        }
    }
}

impl From<DeskError> for Failure {
    fn from(error: DeskError) -> Self {
        Self::Desk(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::usage(error.to_string())
    }
}
