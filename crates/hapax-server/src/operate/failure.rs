//! How a command ends that failed: one line on the standard error for each cause, and a stable exit code.

use std::process::ExitCode;

use crate::config::ConfigErrors;
use crate::desk::{DeskError, DeskErrorKind};
use crate::logs::escaped;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    Desk(DeskError),
    Configuration(ConfigErrors),
}

impl Failure {
    /// The command makes no sense.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        DeskError::new(DeskErrorKind::Invalid, message).into()
    }

    /// Says why, and with which code.
    pub(super) fn report(&self) -> ExitCode {
        match self {
            Self::Configuration(errors) => {
                for problem in &errors.0 {
                    eprintln!("error: {problem}");
                }
                ExitCode::from(DeskErrorKind::Invalid.exit_code())
            }
            Self::Desk(error) => {
                eprintln!("error: {}", escaped(&error.message));
                ExitCode::from(error.kind.exit_code())
            }
        }
    }
}

impl From<DeskError> for Failure {
    fn from(error: DeskError) -> Self {
        Self::Desk(error)
    }
}

/// Of the system itself: a runtime, a thread, the standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        DeskError::new(DeskErrorKind::Unavailable, error.to_string()).into()
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::usage(error.to_string())
    }
}
