//! The OpenAPI document, made from the code: `/v1/openapi.json`.
//!
//! Paths and schemas come from `operations` and from the views. What holds for every operation is added here: the token, and
//! the refusals that each can answer.

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, Response, SecurityRequirement};
use utoipa::{Modify, OpenApi, ToSchema};

use super::operations;

/// The document.
#[must_use]
pub fn openapi() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
        for (schema, rules) in rules() {
            document["components"]["schemas"][schema]["allOf"] = rules;
        }
        document.to_string()
    });
    &TEXT
}

/// Which fields of a request go together; a derive cannot say it.
fn rules() -> [(&'static str, Value); 3] {
    let without = |names: &[&str]| -> Value {
        let none = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "null" })));
        json!({ "properties": none.collect::<serde_json::Map<_, _>>() })
    };
    let only = |name: &str, kind: &str, others: &[&str]| -> Value {
        json!({ "required": [name], "properties": { name: { "type": kind } }, "allOf": [without(others)] })
    };
    let bodiless = json!({ "properties": { "status": { "not": { "enum": [204, 205, 304] } } } });
    let has_answer = json!({ "properties": { "verdict": { "enum": ["happened", "give-up"] } } });
    let one_record = json!([
        only("id", "string", &["scope", "key", "label"]),
        only("key", "string", &["id", "label"]),
        only("label", "string", &["id", "scope", "key"]),
    ]);
    let purged = json!([only("id", "string", &["filter"]), only("filter", "object", &["id"])]);
    let named = |name: &str, kind: Value| json!({ "required": [name], "properties": { name: kind } });
    let text = || json!({ "type": "string" });
    let narrow = json!([
        { "type": "null" },
        named("states", json!({ "minItems": 1 })),
        named("scope", text()),
        named("key", text()),
        named("label", text()),
        named("find", text()),
        named("since", text()),
        named("until", text()),
    ]);
    let one_body = json!([without(&["body"]), without(&["body_base64"])]);
    [
        ("ResolutionRequest", json!([{ "oneOf": one_record }, { "anyOf": [has_answer, without(&["answer"])] }])),
        ("PurgeRequest", json!([{ "oneOf": purged }, { "properties": { "filter": { "anyOf": narrow } } }])),
        ("AnswerRequest", json!([{ "anyOf": one_body }, { "anyOf": [bodiless, without(&["body", "body_base64"])] }])),
    ]
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "hapax admin API",
        description = "Look at records, resolve what is uncertain, take answers away, read who did what. Times are RFC \
        3339 in UTC. Refusals are problem documents (RFC 9457).",
        version = "1",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        document,
        operations::status,
        operations::list,
        operations::purge,
        operations::show,
        operations::resolve,
        operations::audit
    ),
    components(schemas(ProblemView)),
    modifiers(&Common)
)]
struct Document;

/// This document.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    operation_id = "openapi",
    security(()),
    responses((status = 200, description = "This document.", content_type = "application/json", body = Object))
)]
#[expect(dead_code, reason = "only its description is used")]
fn document() {}

/// A refusal: one cause and one next step.
#[derive(Serialize, ToSchema)]
struct ProblemView {
    /// Always `about:blank`: the status says what kind of problem it is.
    r#type: String,
    /// The status in words.
    title: String,
    /// The status.
    status: u16,
    /// The cause and the next step.
    detail: String,
    /// What programs can tell apart: `invalid`, `not-found`, `several` (records fit), `conflict`, `forbidden`, `unavailable`.
    kind: Option<String>,
}

/// What holds for every operation.
struct Common;

/// The refusals that every operation can answer.
const ALWAYS: &[(u16, &str)] = &[
    (400, "A parameter or a field is unknown, malformed or out of bounds."),
    (405, "The path has another method."),
    (421, "The Host field names somebody else."),
    (503, "The store cannot be reached, or too many requests run at the same time."),
];

/// Those of operations that need a token.
const GUARDED: &[(u16, &str)] =
    &[(401, "The token is missing or wrong."), (403, "The token does not allow this, or none is configured.")];

/// Those of operations about one record.
const ABOUT_ONE: &[(u16, &str)] =
    &[(404, "There is no such record."), (409, "Several records fit, or the record cannot be read.")];

/// Those of operations that change something.
const CHANGING: &[(u16, &str)] = &[
    (404, "There is no such record."),
    (408, "The body did not come in time."),
    (409, "The record's state does not allow it, it has moved on, or several records fit."),
    (413, "The body is too large."),
    (415, "The body is not JSON."),
];

impl Modify for Common {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
        for (path, item) in &mut openapi.paths.paths {
            let PathItem { get, post, .. } = item;
            for operation in [get, post].into_iter().flatten() {
                refusals(operation, path);
            }
        }
    }
}

fn refusals(operation: &mut Operation, path: &str) {
    add(operation, ALWAYS);
    if operation.security.is_none() {
        operation.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
        add(operation, GUARDED);
    }
    if operation.request_body.is_some() {
        add(operation, CHANGING);
    } else if path.contains('{') {
        add(operation, ABOUT_ONE);
    }
}

fn add(operation: &mut Operation, statuses: &[(u16, &str)]) {
    for (status, description) in statuses {
        let content = Content::new(Some(Ref::from_schema_name("ProblemView")));
        let mut response = Response::new(*description);
        response.content.insert("application/problem+json".to_owned(), content);
        operation.responses.responses.insert(status.to_string(), response.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::admin::api::routes;

    fn parsed() -> Value {
        serde_json::from_str(openapi()).unwrap()
    }

    #[test]
    fn every_route_stands_in_the_document_and_nothing_else() {
        let document = parsed();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let routed: BTreeSet<_> =
            routes::ALL.iter().map(|(method, path)| (method.to_string(), (*path).to_owned())).collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn every_operation_but_this_document_needs_the_token_and_says_how_it_refuses() {
        let document = parsed();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let is_open = path == "/v1/openapi.json";
                let token = operation["security"][0].get("token").is_some();
                let statuses = operation["responses"].as_object().unwrap();
                assert_eq!((token, statuses.contains_key("401")), (!is_open, !is_open), "{method} {path}");
                assert!(["400", "405", "421", "503"].iter().all(|status| statuses.contains_key(*status)), "{path}");
                assert_eq!(statuses.contains_key("413"), method == "post", "{path}");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let (text, document) = (openapi(), parsed());
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (_, rest) in text.match_indices("#/components/schemas/").map(|(at, found)| (at, &text[at + found.len()..]))
        {
            let name = rest.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}
