//! The admin API: all under `/v1`.
//!
//! A request passes: route, token and role, origin, a turn, its query or body, the [`Desk`]. The desk knows the rules; here
//! they get a path, a status and a document. `docs/admin-api.md` describes it to people, `/v1/openapi.json` to programs.
//!
//! | module | what it is |
//! |---|---|
//! | `routes` | which paths and methods there are |
//! | `query`, `body` | what a request says |
//! | `operations` | what is done, one function each |
//! | `refusal` | why nothing is done |
//! | `document` | the OpenAPI document |

mod body;
mod document;
mod operations;
mod query;
mod refusal;
mod routes;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Body;

use self::operations::To;
use self::query::Query;
use self::refusal::Refusal;
use self::routes::Operation;
use super::access::Access;
use super::reply::{self, Answer};
use super::{Here, guard};
use crate::desk::Desk;

pub use document::openapi;

/// Requests of the API at the same time. Probes and scrapes must not wait behind large pages, nor the process run out of
/// memory by them.
pub(super) const AT_ONCE_MAX: usize = 8;

/// Answers one request.
pub(super) async fn answer<B, D>(request: Request<B>, desk: &D, access: &Access, here: &Here) -> Answer
where
    B: Body<Data = Bytes> + Send,
    D: Desk,
{
    match operate(request, desk, access, here).await {
        Ok(json) => reply::respond(StatusCode::OK, reply::JSON, json),
        Err(refusal) => refusal.into_answer(),
    }
}

async fn operate<B, D>(request: Request<B>, desk: &D, access: &Access, here: &Here) -> Result<String, Refusal>
where
    B: Body<Data = Bytes> + Send,
    D: Desk,
{
    let operation = routes::find(request.method(), request.uri().path())?;
    if operation == Operation::Document {
        return Query::of(request.uri())?.only(&[]).map(|_| openapi().to_owned());
    }
    let caller = access.admit(request.headers(), here.loopback)?;
    if operation.changes() {
        caller.may_change()?;
        if !guard::is_own_origin(&request) {
            return Err(super::access::Closed::Origin.into());
        }
    }
    let _turn = here.turns.try_acquire().map_err(|_| Refusal::busy())?;
    let (head, body) = request.into_parts();
    let to = To { desk, caller: &caller, query: Query::of(&head.uri)?, headers: &head.headers };
    match operation {
        Operation::Document => Ok(openapi().to_owned()),
        Operation::Status => operations::status(to).await,
        Operation::List => operations::list(to).await,
        Operation::Show(id) => operations::show(to, &id).await,
        Operation::Audit => operations::audit(to).await,
        Operation::Resolve => operations::resolve(to, body).await,
        Operation::Purge => operations::purge(to, body).await,
    }
}
