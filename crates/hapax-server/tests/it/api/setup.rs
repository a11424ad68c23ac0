//! A node with an operator's and a viewer's token, and records in every state that can be made from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hapax_testkit::hapax::Builder;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Request, Response, request};
use serde_json::Value;
use tempfile::TempDir;

use crate::node::{self, Kept, Node, unkeyed};

pub(crate) const OPERATOR: &str = "operator-token-0123456789";
pub(crate) const VIEWER: &str = "viewer-token-0123456789";

/// A node and the files of its tokens.
pub(crate) struct Desk {
    pub(crate) node: Node,
    secrets: TempDir,
}

pub(crate) fn start(kept: Kept) -> Desk {
    start_with(kept, |builder| builder)
}

pub(crate) fn start_with(kept: Kept, change: impl FnOnce(Builder) -> Builder) -> Desk {
    let secrets = tempfile::tempdir().unwrap();
    let viewer = secrets.path().join("viewer");
    write_secret(&viewer, VIEWER);
    let labels = "[defaults]\nlabels = { order = \"request:/order\" }\n";
    let config = format!(
        "{labels}[[admin.tokens]]\nname = \"board\"\nrole = \"viewer\"\nvalue_file = \"{}\"\n",
        viewer.display()
    );
    let node =
        node::start_with(kept, |builder| change(builder.with_config(&config).with_env("HAPAX_ADMIN_TOKEN", OPERATOR)));
    Desk { node, secrets }
}

/// A payment of alice's with that key, for the order `o-KEY`.
pub(crate) fn pay(key: &str) -> Request {
    order(key, &format!("o-{key}"))
}

/// The same for that order.
pub(crate) fn order(key: &str, order: &str) -> Request {
    unkeyed(&format!("{{\"order\":\"{order}\"}}")).header("Idempotency-Key", key)
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Desk {
    /// Another token for the viewer; it is known after a reload.
    pub(crate) fn write_viewer(&self, token: &str) {
        write_secret(&self.secrets.path().join("viewer"), token);
    }

    /// Sends it as an operator.
    pub(crate) fn send(&self, request: &Request) -> Response {
        request.clone().header("Authorization", &format!("Bearer {OPERATOR}")).send(self.node.hapax.admin())
    }

    pub(crate) fn as_viewer(&self, request: &Request) -> Response {
        request.clone().header("Authorization", &format!("Bearer {VIEWER}")).send(self.node.hapax.admin())
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.send(&request("GET", target))
    }

    /// A POST of JSON, without a token.
    pub(crate) fn bare(&self, path: &str, body: &Value) -> Request {
        request("POST", path).header("Content-Type", "application/json").body(body.to_string())
    }

    /// The same with an operator's.
    pub(crate) fn request(&self, path: &str, body: &Value) -> Request {
        self.bare(path, body).header("Authorization", &format!("Bearer {OPERATOR}"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.request(path, body).send(self.node.hapax.admin())
    }

    /// The same with a body that may be anything.
    pub(crate) fn raw(&self, path: &str, body: &str) -> Response {
        self.send(&request("POST", path).header("Content-Type", "application/json").body(body))
    }

    /// Asks for what must be refused, with a problem document that says why.
    #[track_caller]
    pub(crate) fn refused(&self, target: &str, status: u16) {
        let refusal = self.get(target);
        assert_eq!(refusal.status, status, "{target}: {}", refusal.text());
        assert_eq!(refusal.header("content-type"), Some("application/problem+json"), "{target}");
        assert!(refusal.json()["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{target}");
    }

    /// A record whose outcome nobody knows: the upstream ran it and lost the answer. Returns its id.
    pub(crate) fn unknown(&self, key: &str) -> String {
        self.node.ledger.next(key, Behaviour::Drop);
        assert_eq!(self.node.send(&pay(key)).status, 504);
        self.id_of(key)
    }

    pub(crate) fn completed(&self, key: &str) -> String {
        assert_eq!(self.node.send(&pay(key)).status, 201);
        self.id_of(key)
    }

    /// A record whose last attempt failed.
    pub(crate) fn ready(&self, key: &str) -> String {
        self.node.ledger.next(key, Behaviour::answer(500, "{}"));
        assert_eq!(self.node.send(&pay(key)).status, 500);
        self.id_of(key)
    }

    pub(crate) fn id_of(&self, key: &str) -> String {
        let records = page(&self.get(&format!("/v1/keys?find={key}")));
        let record = records.iter().find(|record| key_of(record) == key).expect("it is found by its key");
        record["id"].as_str().unwrap().to_owned()
    }
}

/// The records of a page.
#[track_caller]
pub(crate) fn page(answer: &Response) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["records"].as_array().unwrap().clone()
}

pub(crate) fn key_of(record: &Value) -> String {
    record["key"].as_str().unwrap().to_owned()
}

/// Every note, newest first.
pub(crate) fn audited(desk: &Desk) -> Vec<Value> {
    desk.get("/v1/audit").json()["notes"].as_array().unwrap().clone()
}
