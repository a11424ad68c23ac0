//! What is done, one function each, with its description for `/v1/openapi.json`.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use serde::Serialize;

use super::body;
use super::query::Query;
use super::refusal::Refusal;
use crate::admin::access::Caller;
use crate::desk::ACTOR_BYTES_MAX;
use crate::desk::Desk;
use crate::desk::view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StateName,
    StatusView,
};

/// Entries on a page, unless asked otherwise.
const PAGE_ENTRIES: u64 = 50;

/// Entries on the largest page.
const PAGE_ENTRIES_MAX: u64 = 500;

/// How many states there are.
const STATES_MAX: usize = 6;

/// Whom to ask, who asks, and how.
pub(super) struct To<'a, D> {
    pub(super) desk: &'a D,
    pub(super) caller: &'a Caller<'a>,
    pub(super) query: Query,
    pub(super) headers: &'a HeaderMap,
}

impl<D> To<'_, D> {
    /// Who acts, for the audit log.
    fn who(&self) -> Result<String, Refusal> {
        let bad = || {
            let what = format!("one name in UTF-8 of at most {ACTOR_BYTES_MAX} bytes");
            Refusal::invalid(format!("X-Hapax-Actor must be {what}. Shorten it or leave it out."))
        };
        self.caller.who(self.headers).ok_or_else(bad)
    }
}

/// How things stand.
#[utoipa::path(
    get,
    path = "/v1/status",
    operation_id = "status",
    responses((status = 200, body = StatusView, description = "How things stand; look at `healthy`."))
)]
pub(super) async fn status<D: Desk>(to: To<'_, D>) -> Result<String, Refusal> {
    to.query.only(&[])?;
    json(&to.desk.status().await?)
}

/// A page of records. The first page may be empty and still have a next one.
#[utoipa::path(
    get,
    path = "/v1/keys",
    operation_id = "listKeys",
    params(
        ("state" = Option<Vec<StateName>>, Query, style = Form, explode, max_items = 6,
            description = "In one of these states; repeatable."),
        ("scope" = Option<String>, Query, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$",
            description = "Of exactly this scope."),
        ("key" = Option<String>, Query, min_length = 1, max_length = 255, pattern = "^[\x20-\x7e]+$",
            description = "Of exactly this key. With the scope, it is found at once."),
        ("label" = Option<String>, Query, max_length = 512, pattern = r"^[^=\x00]+=[^\x00]+$",
            description = "With this label: `name=value`."),
        ("find" = Option<String>, Query, max_length = 512, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$",
            description = "By anything a person pastes: an id or at least 8 of its first digits, a key, a scope, a request \
            id, the value of a label."),
        ("since" = Option<String>, Query, format = DateTime, pattern = "^(19[7-9]|[2-9])",
            description = "First seen at or after this time."),
        ("until" = Option<String>, Query, format = DateTime, pattern = "^(19[7-9]|[2-9])",
            description = "First seen before this time."),
        ("after" = Option<String>, Query, pattern = "^[A-Za-z0-9._-]+$", max_length = 512,
            description = "`next` of the page before. Anything else is refused."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "How many at most; default 50."),
    ),
    responses((status = 200, body = PageView, description = "A page of records."))
)]
pub(super) async fn list<D: Desk>(to: To<'_, D>) -> Result<String, Refusal> {
    let known = ["state", "scope", "key", "label", "find", "since", "until", "after", "limit"];
    let query = to.query.only(&known)?;
    let filter = Filter {
        states: query.texts("state")?,
        scope: query.text("scope")?,
        key: query.text("key")?,
        label: query.text("label")?,
        find: query.text("find")?,
        since: query.text("since")?,
        until: query.text("until")?,
    };
    check(&filter)?;
    let page = to.desk.list(&filter, query.text("after")?.as_deref(), limit(&query)?).await?;
    json(&page)
}

/// One record.
#[utoipa::path(
    get,
    path = "/v1/keys/{id}",
    operation_id = "showKey",
    params(
        ("id" = String, Path, pattern = "^[0-9a-fA-F]{8,64}$",
            description = "The record's id, or at least 8 of its first digits."),
        ("body" = Option<bool>, Query, description = "With the headers and the body of its answer. Operators only."),
    ),
    responses((status = 200, body = RecordView, description = "The record."))
)]
pub(super) async fn show<D: Desk>(to: To<'_, D>, id: &str) -> Result<String, Refusal> {
    let body = to.query.only(&["body"])?.flag("body")?;
    if body {
        to.caller.may_see_bodies()?;
    }
    json(&to.desk.show(id, body).await?)
}

/// Who did what, newest first.
#[utoipa::path(
    get,
    path = "/v1/audit",
    operation_id = "audit",
    params(
        ("id" = Option<String>, Query, pattern = "^[0-9a-fA-F]{8,64}$", description = "About this record only, there or gone; at least 8 of its first digits."),
        ("before" = Option<i64>, Query, minimum = 0, maximum = 9223372036854775807_i64,
            description = "`next` of the page before."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "How many at most; default 50."),
    ),
    responses((status = 200, body = AuditView, description = "A page of the audit log."))
)]
pub(super) async fn audit<D: Desk>(to: To<'_, D>) -> Result<String, Refusal> {
    let query = to.query.only(&["id", "before", "limit"])?;
    let before = query.number("before", 0, i64::MAX.unsigned_abs())?;
    json(&to.desk.audit(query.text("id")?.as_deref(), before, limit(&query)?).await?)
}

/// Says what became of a record whose outcome is unknown. Said again, it changes nothing and answers 200.
#[utoipa::path(
    post,
    path = "/v1/resolutions",
    operation_id = "resolve",
    request_body(
        content = ResolutionRequest,
        examples(
            ("by the record's id" = (value = json!({ "id": "93ed900b5c5f44afe0c9366190bb73debdde1a79f9dc772a8a7edc404818d049", "verdict": "happened", "reason": "payment.succeeded, event evt_1" }))),
            ("by a key that no two callers use" = (value = json!({ "key": "k-lost", "keys_unique": true, "verdict": "happened", "reason": "payment.succeeded, event evt_1" })))
        )
    ),
    responses((status = 200, body = ChangeView, description = "It is recorded, now or before: `changed` says which."))
)]
pub(super) async fn resolve<D: Desk, B: Body<Data = Bytes>>(to: To<'_, D>, body: B) -> Result<String, Refusal> {
    let who = to.who()?;
    to.query.only(&[])?;
    let request: ResolutionRequest = body::read(to.headers, body).await?;
    json(&to.desk.resolve(&request, &who).await?)
}

/// Takes answers away, by id or by filter; with `dry_run` it only counts.
#[utoipa::path(
    post,
    path = "/v1/keys/purge",
    operation_id = "purgeKeys",
    request_body(
        content = PurgeRequest,
        example = json!({ "filter": { "states": ["completed"], "scope": "alice", "label": "order=4712" }, "dry_run": true, "reason": "wrong" })
    ),
    responses((status = 200, body = PurgeView, description = "What was taken away."))
)]
pub(super) async fn purge<D: Desk, B: Body<Data = Bytes>>(to: To<'_, D>, body: B) -> Result<String, Refusal> {
    let who = to.who()?;
    to.query.only(&[])?;
    let request: PurgeRequest = body::read(to.headers, body).await?;
    request.filter.as_ref().map_or(Ok(()), check)?;
    json(&to.desk.purge(&request, &who).await?)
}

/// Each state can be named once, so that a filter stays small.
fn check(filter: &Filter) -> Result<(), Refusal> {
    if filter.states.len() > STATES_MAX {
        return Err(Refusal::invalid(format!("There are {STATES_MAX} states, and more are named. Name each once.")));
    }
    Ok(())
}

fn limit(query: &Query) -> Result<u32, Refusal> {
    let limit = query.number("limit", 1, PAGE_ENTRIES_MAX)?.unwrap_or(PAGE_ENTRIES);
    // The bound is far below what fits.
    Ok(u32::try_from(limit).unwrap_or(1))
}

fn json(view: &impl Serialize) -> Result<String, Refusal> {
    // Views hold texts and numbers, so that this cannot fail.
    serde_json::to_string(view).map_err(|error| Refusal::invalid(error.to_string()))
}
