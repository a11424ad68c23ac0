//! The desk at a distance: what `Remote` sees and does through a node's admin API, and what it says when it cannot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::api::setup::{Desk, OPERATOR, VIEWER, pay, start, start_with};
use crate::node::{self, Kept, on_both_stores};
use hapax_server::desk::remote::Remote;
use hapax_server::desk::view::{AnswerRequest, Filter, PurgeRequest, ResolutionRequest};
use hapax_server::desk::{Desk as _, DeskErrorKind};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::raw_http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

on_both_stores! {
    everything_can_be_done_from_afar
    refusals_keep_their_kind
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn at(desk: &Desk, token: Option<&str>) -> Remote {
    Remote::new(&format!("http://{}", desk.node.hapax.admin()), token, None).unwrap()
}

fn resolution(id: &str, verdict: &str) -> ResolutionRequest {
    ResolutionRequest {
        id: Some(id.to_owned()),
        scope: None,
        key: None,
        label: None,
        keys_unique: false,
        verdict: verdict.to_owned(),
        attempt: None,
        answer: None,
        reason: "a test".to_owned(),
    }
}

fn purge(id: &str) -> PurgeRequest {
    PurgeRequest {
        id: Some(id.to_owned()),
        filter: None,
        allow_rerun: true,
        dry_run: false,
        expect: None,
        reason: "a test".to_owned(),
    }
}

fn everything_can_be_done_from_afar(kept: Kept) {
    let desk = start(kept);
    let (unknown, completed) = (desk.unknown("k-0"), desk.completed("k-1"));
    let remote = at(&desk, Some(OPERATOR));
    runtime().block_on(async {
        assert_eq!(remote.status().await.unwrap().counts.unknown, 1);
        let filter = Filter { states: vec!["unknown".to_owned(), "dead".to_owned()], ..Filter::default() };
        let page = remote.list(&filter, None, 10).await.unwrap();
        assert_eq!(page.records.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), [&unknown]);
        let first = remote.list(&Filter::default(), None, 1).await.unwrap();
        let second = remote.list(&Filter::default(), first.next.as_deref(), 10).await.unwrap();
        assert!(second.records.iter().all(|record| record.id != first.records[0].id));
        let odd = Filter { find: Some("a&b=c d/€%'".to_owned()), ..Filter::default() };
        assert!(remote.list(&odd, None, 10).await.unwrap().records.is_empty());
        let body = |whole: bool| remote.show(&completed, whole);
        assert_eq!(body(false).await.unwrap().answer.unwrap().body, None);
        assert!(body(true).await.unwrap().answer.unwrap().body.unwrap().contains("k-1"));
        let mut happened = resolution(&unknown, "happened");
        happened.answer = Some(AnswerRequest { status: Some(201), body: Some("{}".to_owned()), ..Default::default() });
        assert!(remote.resolve(&happened, "jane@host").await.unwrap().changed);
        assert!(!remote.resolve(&happened, "jane@host").await.unwrap().changed);
        assert_eq!(remote.purge(&purge(&completed), "jane@host").await.unwrap().freed, 1);
        let notes = remote.audit(Some(&unknown), None, 10).await.unwrap().notes;
        assert_eq!((notes.len(), notes[0].who.as_str()), (1, "admin (jane@host)"));
    });
    let retry: Response = desk.node.send(&pay("k-0"));
    assert_eq!((retry.status, retry.is_replay()), (201, true));
}

fn refusals_keep_their_kind(kept: Kept) {
    let desk = start(kept);
    let (unknown, completed) = (desk.unknown("k-0"), desk.completed("k-1"));
    let (operator, viewer) = (at(&desk, Some(OPERATOR)), at(&desk, Some(VIEWER)));
    let (stranger, nobody) = (at(&desk, Some("not-a-token-of-theirs")), at(&desk, None));
    runtime().block_on(async {
        let kind = |error: hapax_server::desk::DeskError| error.kind;
        let missing = "ab".repeat(32);
        assert_eq!(kind(operator.show(&missing, false).await.unwrap_err()), DeskErrorKind::NotFound);
        assert_eq!(kind(operator.show("x/../y", false).await.unwrap_err()), DeskErrorKind::Invalid);
        let stale = operator.list(&Filter::default(), Some("AAAA"), 10).await.unwrap_err();
        assert_eq!(stale.kind, DeskErrorKind::Invalid);
        let conflict = operator.resolve(&resolution(&completed, "did-not-happen"), "jane").await.unwrap_err();
        assert_eq!(conflict.kind, DeskErrorKind::Conflict, "{conflict}");
        assert!(conflict.message.contains("completed"), "the node's own words: {conflict}");
        let refused = viewer.resolve(&resolution(&unknown, "happened"), "jane").await.unwrap_err();
        assert_eq!(refused.kind, DeskErrorKind::Forbidden, "{refused}");
        assert_eq!(kind(viewer.purge(&purge(&completed), "jane").await.unwrap_err()), DeskErrorKind::Forbidden);
        assert_eq!(kind(stranger.status().await.unwrap_err()), DeskErrorKind::Forbidden);
        assert_eq!(kind(nobody.status().await.unwrap_err()), DeskErrorKind::Forbidden);
    });
}

#[test]
fn a_kept_connection_that_the_node_closed_is_replaced() {
    let mut desk = start(Kept::Sqlite);
    let id = desk.unknown("k-0");
    let remote = at(&desk, Some(OPERATOR));
    let runtime = runtime();
    assert!(runtime.block_on(remote.status()).is_ok());
    desk.node.hapax.restart();
    assert!(runtime.block_on(remote.resolve(&resolution(&id, "happened"), "jane")).unwrap().changed);
    desk.node.hapax.restart();
    assert!(!runtime.block_on(remote.resolve(&resolution(&id, "happened"), "jane")).unwrap().changed);
}

#[test]
fn a_node_that_is_away_is_named_and_what_to_check() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = runtime().block_on(Remote::new(&url, None, None).unwrap().status()).unwrap_err();
    assert_eq!(error.kind, DeskErrorKind::Unavailable);
    assert!(error.message.contains(&url) && error.message.contains("--admin"), "{error}");
}

#[test]
fn who_is_not_a_node_is_not_believed() {
    let said = [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n<html/>\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "",
    ];
    runtime().block_on(async {
        for text in said {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let remote = Remote::new(&format!("http://{}", listener.local_addr().unwrap()), None, None).unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                assert!(stream.read(&mut head).await.unwrap() > 0);
                stream.write_all(text.as_bytes()).await.unwrap();
            };
            let (answer, ()) = tokio::join!(remote.status(), server);
            assert_eq!(answer.unwrap_err().kind, DeskErrorKind::Unavailable, "{text}");
        }
    });
}

/// The listener speaks no TLS itself; here a proxy in front of it does, as the page advises.
#[test]
fn over_tls_the_certificate_must_be_trusted() {
    let desk = start(Kept::Sqlite);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let front = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&format!("http://{}", desk.node.hapax.admin()))
        .with_flag("--tls-cert", cert.to_str().unwrap())
        .with_flag("--tls-key", key.to_str().unwrap())
        .start();
    let url = format!("https://{}", front.address());
    let trusting = Remote::new(&url, Some(OPERATOR), Some(&cert)).unwrap();
    let wary = Remote::new(&url, Some(OPERATOR), None).unwrap();
    let runtime = runtime();
    assert!(runtime.block_on(trusting.status()).unwrap().healthy);
    let error = runtime.block_on(wary.status()).unwrap_err();
    assert_eq!(error.kind, DeskErrorKind::Unavailable);
    assert!(error.message.contains("certificate"), "{error}");
}

#[test]
fn a_token_is_only_asked_for_where_one_would_help() {
    let desk = start(Kept::Sqlite);
    let asked = runtime().block_on(at(&desk, None).status()).unwrap_err();
    assert!(asked.message.contains("none was given; set HAPAX_ADMIN_TOKEN"), "{asked}");
    let open = node::start(Kept::Sqlite);
    let remote = Remote::new(&format!("http://{}", open.hapax.admin()), None, None).unwrap();
    let refused = runtime().block_on(remote.purge(&purge(&"ab".repeat(32)), "jane")).unwrap_err();
    assert_eq!(refused.kind, DeskErrorKind::Forbidden);
    assert!(refused.message.contains("none is configured") && !refused.message.contains("was given"), "{refused}");
}

#[test]
fn a_node_that_only_tells_says_so() {
    let desk = start_with(Kept::Sqlite, |builder| builder.with_env("HAPAX_ADMIN_READ_ONLY", "true"));
    let id = desk.unknown("k-0");
    let remote = at(&desk, Some(OPERATOR));
    let error = runtime().block_on(remote.resolve(&resolution(&id, "happened"), "jane")).unwrap_err();
    assert_eq!(error.kind, DeskErrorKind::Forbidden);
    assert!(error.message.contains("read_only"), "{error}");
}
