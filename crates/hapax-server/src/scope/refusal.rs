//! Why a request has no scope, and why a configuration of scopes cannot work.
//!
//! Every text has one cause and one next step. None holds anything a caller sent: a value without a known scheme in
//! front may be a secret. A refusal speaks to the client, who cannot change the configuration: what its operator should
//! configure is logged (`advice`). What status a refusal becomes is left to the layer.

use std::path::PathBuf;

use super::challenge::Challenge;

/// Why it cannot be said whose key it is. Nothing is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request does not say who calls.
    #[error("{detail}")]
    Missing {
        /// One cause and one next step.
        detail: String,
    },
    /// The request says it in a way that cannot be used or is not believed.
    #[error("{detail}")]
    Invalid {
        /// One cause and one next step.
        detail: String,
    },
    /// Credentials are missing, have expired or are not valid: other ones would do.
    #[error("{detail}")]
    Unauthorized {
        /// One cause and one next step.
        detail: String,
        /// The value of `WWW-Authenticate`.
        challenge: Challenge,
    },
    /// Who calls cannot be found out at the moment.
    #[error("{detail}")]
    Unavailable {
        /// One cause and one next step.
        detail: String,
    },
}

impl Refusal {
    /// The cause and the next step.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Missing { detail } | Self::Invalid { detail } | Self::Unavailable { detail } => detail,
            Self::Unauthorized { detail, .. } => detail,
        }
    }

    pub(super) fn missing(detail: impl Into<String>) -> Self {
        Self::Missing { detail: detail.into() }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::Invalid { detail: detail.into() }
    }

    pub(super) fn unauthorized(challenge: Challenge, detail: impl Into<String>) -> Self {
        Self::Unauthorized { detail: detail.into(), challenge }
    }

    /// A token that was sent and is not accepted.
    pub(super) fn invalid_token(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::unauthorized(Challenge::invalid_token(&detail), detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::Unavailable { detail: detail.into() }
    }
}

/// Why scopes cannot be made as configured. Found at start, before a request is taken.
#[derive(Debug, thiserror::Error)]
pub enum ScopeConfigError {
    /// Nothing says whose keys they are.
    #[error("no scope kind is given; name at least one, for example scope = [\"credential\"]")]
    Empty,
    /// Too many kinds.
    #[error("{kinds} scope kinds are given; at most {kinds_max} are accepted, so remove some")]
    TooMany {
        /// How many there are.
        kinds: usize,
        /// How many there may be.
        kinds_max: usize,
    },
    /// The same kind twice.
    #[error("the scope kind `{kind}` is given twice; remove one")]
    Repeated {
        /// Which.
        kind: String,
    },
    /// `single` says that there is one tenant; another kind says that there are several.
    #[error("`single` cannot be combined with other scope kinds; remove it, or remove the others")]
    SingleAmongOthers,
    /// `anonymous` without a kind that it could apply to.
    #[error("`anonymous` applies to the scope kind `credential` only; remove it, or add `credential`")]
    AnonymousWithoutCredential,
    /// A header or cookie that cannot say who calls.
    #[error("`{kind}` cannot be a scope kind: {cause}; {next}")]
    Unfit {
        /// Which kind.
        kind: String,
        /// Why not.
        cause: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// The options of `jwt` do not fit together.
    #[error("the scope kind `jwt` cannot work: {cause}; {next}")]
    Jwt {
        /// Why not.
        cause: String,
        /// What to do.
        next: &'static str,
    },
    /// A file cannot be used.
    #[error("{}: {cause}; {next}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why not.
        cause: String,
        /// What to do.
        next: &'static str,
    },
    /// A URL cannot be used.
    #[error("the URL of `{of}` {cause}; {next}")]
    Url {
        /// Whose URL it is.
        of: &'static str,
        /// Why not.
        cause: String,
        /// What to do.
        next: &'static str,
    },
    /// A header cannot be passed on with `ask`.
    #[error("the header `{header}` cannot be passed on by `ask`: it belongs to the request itself; remove it")]
    NotPassedOn {
        /// Which.
        header: String,
    },
    /// `ask` has nothing to ask about.
    #[error("`ask` passes on no header, so every caller would look the same; name at least one, such as Authorization")]
    NothingPassedOn,
    /// A limit that would let nothing through.
    #[error("`{option}` of `ask` is 0; give at least 1")]
    Zero {
        /// Which option.
        option: &'static str,
    },
}
