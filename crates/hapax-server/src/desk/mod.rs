//! The operator's desk: look at records, resolve what is uncertain, take answers away, read who did what.
//!
//! One set of operations ([`Desk`]) with two ways in: on the store itself (`direct`), and through a running node's admin API
//! (`remote`). The commands of the terminal and the handlers of the API use nothing else.
//!
//! | module | what it is |
//! |---|---|
//! | [`view`] | what operators see and say |
//! | [`direct`] | the operations on the store |
//! | [`remote`] | the operations through a running node |
//! | `search` | which records, page by page; `lookup`: by id |
//! | `bound` | whose record is meant: what names one well enough to change it |
//! | `said` | what an operator says, checked; `refused`: why not, in words |
//! | `purging` | taking answers away, and only what was seen |
//! | `survey` | how things stand |
//! | `shown` | from records to what operators see; [`time_spec`]: times as operators say them |

pub(crate) mod bound;
pub mod direct;
pub(crate) mod lookup;
mod purging;
mod refused;
pub mod remote;
mod said;
mod search;
mod shown;
mod survey;
pub mod time_spec;
pub mod view;

pub(crate) use lookup::is_observed;

use std::fmt;
use std::future::Future;

use http::HeaderName;
use view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StatusView,
};

/// Says which person acts with a token that several people share.
pub(crate) const ACTOR: HeaderName = HeaderName::from_static("x-hapax-actor");

/// The name of a person or a script. It is kept with every note.
pub(crate) const ACTOR_BYTES_MAX: usize = 80;

/// What an operator can do. Every change names who acts; its reason stands in the request.
pub trait Desk: Send + Sync {
    /// How things stand.
    fn status(&self) -> impl Future<Output = Result<StatusView, DeskError>> + Send;

    /// A page of records, after `after` of the page before, at most `limit`.
    fn list(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: u32,
    ) -> impl Future<Output = Result<PageView, DeskError>> + Send;

    /// One record by its id; with its headers and body only if asked for.
    fn show(&self, id: &str, body: bool) -> impl Future<Output = Result<RecordView, DeskError>> + Send;

    /// Says what became of a record.
    fn resolve(
        &self,
        request: &ResolutionRequest,
        who: &str,
    ) -> impl Future<Output = Result<ChangeView, DeskError>> + Send;

    /// Takes answers away.
    fn purge(&self, request: &PurgeRequest, who: &str) -> impl Future<Output = Result<PurgeView, DeskError>> + Send;

    /// Who did what, newest first; about one record if `id` is given.
    fn audit(
        &self,
        id: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> impl Future<Output = Result<AuditView, DeskError>> + Send;
}

/// Why nothing was done. One cause and one next step in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeskError {
    /// What kind of cause.
    pub kind: DeskErrorKind,
    /// The cause and the next step.
    pub message: String,
}

/// What kind of cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeskErrorKind {
    /// The request makes no sense: 400, exit code 2.
    Invalid,
    /// There is no such record: 404, exit code 3.
    NotFound,
    /// Several records fit: 409, exit code 4; the text names them.
    Several,
    /// Not possible in the state the record is in, or it has moved on: 409, exit code 4.
    Conflict,
    /// The caller may not: 401 or 403, exit code 5.
    Forbidden,
    /// The store or the node cannot be reached: 503, exit code 6.
    Unavailable,
}

impl DeskErrorKind {
    /// How a command ends that failed so.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Invalid => 2,
            Self::NotFound => 3,
            Self::Several | Self::Conflict => 4,
            Self::Forbidden => 5,
            Self::Unavailable => 6,
        }
    }
}

impl DeskError {
    /// A cause of that kind.
    pub fn new(kind: DeskErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DeskError {}
