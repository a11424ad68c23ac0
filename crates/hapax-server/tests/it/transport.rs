//! The listener and the upstream glued together: what passes, what a failure means, who holds up whom.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod early_answers;
mod patience;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::proxied::{
    Ledger, Message, Proxy, SOON, Wire, code, endless, impatient, proxy, proxy_with, reset, scripted,
};
use arc_swap::ArcSwap;
use hapax_proxy::{Body, BodyError, ListenOptions, Upstream, UpstreamOptions};
use http::{HeaderName, Request};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn setup() -> (Ledger, Proxy, Wire<TcpStream>) {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let client = Wire::connect(proxy.addr).await;
    (ledger, proxy, client)
}

/// Sends one request; the upstream reads it, then does what the script says.
async fn asked<F, R>(script: F) -> (Arc<AtomicUsize>, Wire<TcpStream>)
where
    F: Fn(Wire<TcpStream>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    let upstream = scripted(move |mut wire| {
        let (script, counter) = (script.clone(), Arc::clone(&counter));
        async move {
            if wire.message().await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                script(wire).await;
            }
        }
    })
    .await;
    let options = UpstreamOptions { answer_timeout: Duration::from_millis(500), ..UpstreamOptions::default() };
    let proxy = proxy_with(upstream, ListenOptions::default(), options).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(POST).await;
    (executed, client)
}

/// An answer that was malformed or never came: 504, doubt, one execution.
async fn leaves_a_doubt<F, R>(script: F)
where
    F: Fn(Wire<TcpStream>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (executed, mut client) = asked(script).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("x-failure")), (504, Some("doubt")), "{answer:?}");
    assert_eq!(executed.load(Ordering::SeqCst), 1);
}

/// Answers with these bytes and then keeps the connection open.
async fn answers_malformed(bytes: impl Into<Vec<u8>>) {
    let bytes: Vec<u8> = bytes.into();
    leaves_a_doubt(move |mut wire| {
        let bytes = bytes.clone();
        async move {
            let _ = wire.stream.write_all(&bytes).await;
            wire.message().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_and_its_answer_pass_unchanged() {
    let ledger = Ledger::answering(|_| {
        b"HTTP/1.1 201 Made\r\nX-A: 1\r\nX-A: 2\r\nSet-Cookie: c=1\r\nContent-Length: 4\r\n\r\ndone".to_vec()
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send("POST /a//b%2Fc?d=e&d HTTP/1.1\r\nHost: shop\r\nX-B: 1\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nhi").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.fields("x-a"), answer.text().as_str()), (201, vec!["1", "2"], "done"));
    assert_eq!(answer.fields("via"), ["1.1 hapax"]);
    let seen = ledger.only();
    assert_eq!(seen.first_line(), "POST /a//b%2Fc?d=e&d HTTP/1.1");
    assert_eq!((seen.fields("x-b"), seen.fields("host"), seen.text().as_str()), (vec!["1", "2"], vec!["shop"], "hi"));
    assert_eq!(seen.fields("via"), ["1.1 hapax"]);
}

#[tokio::test]
async fn requests_of_one_connection_share_an_upstream_connection() {
    let (ledger, _proxy, mut client) = setup().await;
    for _ in 0..20 {
        client.send(POST).await;
        assert_eq!(client.answer().await.text(), "POST /pay");
    }
    assert_eq!((ledger.seen().len(), ledger.connections()), (20, 1));
}

#[tokio::test]
async fn a_large_body_passes_in_both_directions() {
    let ledger = Ledger::answering(|request| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()).into_bytes();
        answer.extend_from_slice(&request.body);
        answer
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let (mut reading, mut writing) = TcpStream::connect(proxy.addr).await.unwrap().into_split();
    let sent = body.clone();
    tokio::spawn(async move {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", sent.len());
        writing.write_all(head.as_bytes()).await.unwrap();
        writing.write_all(&sent).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut answer = Vec::new();
    timeout(SOON, reading.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.ends_with(&body), "{} bytes", answer.len());
    assert_eq!(ledger.only().body, body);
}

#[tokio::test]
async fn an_answer_to_head_has_a_length_and_no_body() {
    let ledger = Ledger::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec()).await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().field("content-length"), Some("5000"));
    }
    assert_eq!(ledger.connections(), 1);
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let ledger = Ledger::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n"
            .to_vec()
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers, deflate\r\nConnection: TE\r\nTrailer: X-Sum\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.text().as_str(), answer.trailers.to_lowercase().as_str()), ("ok", "x-sum: 2\n"));
    let seen = ledger.only();
    assert_eq!((seen.text().as_str(), seen.trailers.to_lowercase().as_str()), ("hi", "x-sum: 1\n"));
    assert_eq!((seen.fields("te"), seen.fields("connection")), (vec!["trailers"], vec!["te"]));
}

#[tokio::test]
async fn a_trailer_cannot_say_what_the_head_may_not() {
    let ledger = Ledger::start().await;
    let relied_on = Arc::new(ArcSwap::from_pointee(vec![HeaderName::from_static("x-tenant")]));
    let listen = ListenOptions { relied_on, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, listen, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    let forbidden = [
        "X-Forwarded-For",
        "X-Forwarded-Port",
        "Forwarded",
        "Cookie",
        "X-HTTP-Method-Override",
        "X_Http_Method_Override",
        "Idempotency_Attempt",
        "Idempotency_Record",
        "Content-Type",
        "If-Match",
        "X-Tenant",
        "X_Tenant",
    ];
    for also in ["X-Sum: 1\r\n", ""] {
        let lines: String = forbidden.iter().map(|name| format!("{name}: 1\r\n")).collect();
        let head = format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sum, {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            forbidden.join(", ")
        );
        client.send(format!("{head}2\r\nhi\r\n0\r\n{lines}{also}\r\n")).await;
        assert_eq!(client.answer().await.status(), 200);
        let seen = ledger.seen().pop().unwrap();
        assert_eq!((seen.text().as_str(), seen.trailers.to_lowercase()), ("hi", also.to_lowercase().replace('\r', "")));
    }
    assert!(client.is_in_step().await);
}

/// The names of the fields that begin with `x-o`, in their order.
fn own(message: &Message) -> Vec<String> {
    let names = message.head.lines().skip(1).filter_map(|line| line.split_once(':'));
    names
        .map(|(name, value)| format!("{}={}", name.to_lowercase(), value.trim()))
        .filter(|line| line.starts_with("x-o"))
        .collect()
}

#[tokio::test]
async fn fields_keep_their_order_whatever_is_removed_between_them() {
    let fields = "X-O1: 1\r\nConnection: X-Own\r\nX-O2: 2\r\nX-Own: 1\r\nX-O3: 3\r\nKeep-Alive: timeout=5\r\n\
                  X-O4: 4\r\nX-O2: 2b\r\nX-O5: 5\r\nX-O6: 6\r\nX-O7: 7\r\n";
    let order = ["x-o1=1", "x-o2=2", "x-o2=2b", "x-o3=3", "x-o4=4", "x-o5=5", "x-o6=6", "x-o7=7"];
    let ledger =
        Ledger::answering(move |_| format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()).await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client
        .send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: b\r\nIdempotency-Attempt: 1\r\nExpect: nothing\r\n\
             X_Forwarded_Host: c\r\nProxy-Authorization: d\r\n{fields}\r\n"
        ))
        .await;
    assert_eq!(own(&client.answer().await), order);
    assert_eq!(own(&ledger.only()), order);
}

#[tokio::test]
async fn fields_of_one_connection_are_removed_both_ways() {
    let ledger = Ledger::answering(|_| {
        b"HTTP/1.1 200 OK\r\nConnection: X-Own\r\nX-Own: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client
        .send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n\
             Proxy-Connection: a\r\nTE: deflate\r\nIdempotency-Attempt: 7\r\nIdempotency-Record: 7\r\n\r\n",
        )
        .await;
    let answer = client.answer().await;
    for name in ["connection", "x-own", "keep-alive"] {
        assert_eq!(answer.field(name), None, "{name}");
    }
    let seen = ledger.only();
    for name in
        ["connection", "x-mine", "keep-alive", "proxy-connection", "te", "idempotency-attempt", "idempotency-record"]
    {
        assert_eq!(seen.field(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_client_cannot_remove_what_safety_rests_on_by_naming_it() {
    let (ledger, _proxy, mut client) = setup().await;
    let names = ["Idempotency-Key", "Authorization", "Cookie", "Content-Type", "Host", "X-Forwarded-For", "Forwarded"];
    client
        .send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\nIdempotency-Key: k\r\nAuthorization: b\r\nCookie: c\r\n\
             Content-Type: d\r\n\r\n",
            names.join(", ")
        ))
        .await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    for name in names {
        assert!(seen.field(name).is_some(), "{name}");
    }
}

const FORGED: &str = "GET / HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: evil\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-Port: 99\r\n\r\n";

#[tokio::test]
async fn forged_forwarding_fields_are_replaced() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(FORGED).await;
    client.answer().await;
    let seen = ledger.only();
    assert_eq!(seen.fields("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.fields("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.fields("x-forwarded-host"), ["shop"]);
    assert_eq!(seen.fields("forwarded"), ["for=127.0.0.1;host=\"shop\";proto=http"]);
    assert_eq!(seen.field("x-forwarded-port"), None);
}

#[tokio::test]
async fn a_field_that_differs_from_one_of_ours_by_underscores_only_is_removed() {
    let ledger = Ledger::start().await;
    let relied_on = ["x-request-key", "x_odd"].map(|name| name.parse().unwrap()).to_vec();
    let relied_on = Arc::new(ArcSwap::from_pointee(relied_on));
    let options = ListenOptions { relied_on, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    let twins = [
        "X_Forwarded_For",
        "x_forwarded-proto",
        "X_Forwarded_Port",
        "Idempotency_Key",
        "IDEMPOTENCY_ATTEMPT",
        "Idempotency_record",
        "Content_Type",
        "Content_Length",
        "Transfer_Encoding",
        "X_HTTP_Method_Override",
        "X_Request_Key",
        "X-Odd",
    ];
    let others = ["X_Trace_Id", "X_Odd", "My_Forwarded_For"];
    let fields: String = twins.iter().chain(&others).map(|name| format!("{name}: 1\r\n")).collect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n{fields}\r\n")).await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    for name in twins {
        assert_eq!(seen.field(name), None, "{name}");
    }
    for name in others {
        assert_eq!(seen.field(name), Some("1"), "{name}");
    }
    assert_eq!(seen.fields("idempotency-key"), ["k"]);
}

#[tokio::test]
async fn what_a_trusted_peer_says_is_kept_and_added_to() {
    let ledger = Ledger::start().await;
    let trusted_peers = ["127.0.0.0/8"].iter().map(|text| text.parse().unwrap()).collect();
    let options = ListenOptions { trusted_peers, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(FORGED).await;
    client.answer().await;
    let seen = ledger.only();
    assert_eq!(seen.fields("x-forwarded-for"), ["6.6.6.6, 127.0.0.1"]);
    assert_eq!((seen.fields("x-forwarded-proto"), seen.fields("x-forwarded-host")), (vec!["https"], vec!["evil"]));
    assert_eq!(seen.field("x-forwarded-port"), Some("99"));
    assert_eq!(seen.fields("forwarded"), ["for=6.6.6.6, for=127.0.0.1;host=\"shop\";proto=http"]);
}

#[tokio::test]
async fn the_upstream_can_be_given_its_own_name() {
    let ledger = Ledger::start().await;
    let options = UpstreamOptions { host_of_upstream: true, ..UpstreamOptions::default() };
    let proxy = proxy_with(ledger.addr, ListenOptions::default(), options).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(GET).await;
    client.answer().await;
    let seen = ledger.only();
    assert_eq!(seen.fields("host"), [ledger.addr.to_string()]);
    assert_eq!(seen.fields("x-forwarded-host"), ["a"]);
}

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[tokio::test]
async fn a_websocket_is_copied_in_both_directions_after_the_upstream_agrees() {
    let agree = Arc::new(Notify::new());
    let agreed = Arc::clone(&agree);
    let upstream = scripted(move |mut wire| {
        let agreed = Arc::clone(&agreed);
        async move {
            let request = wire.message().await.unwrap();
            assert_eq!((request.field("upgrade"), request.field("connection")), (Some("websocket"), Some("upgrade")));
            // What the client sent too early must not have come.
            let early = timeout(Duration::from_millis(100), wire.stream.read_u8()).await;
            assert!(early.is_err(), "{early:?}");
            agreed.notified().await;
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly ";
            wire.send(head).await;
            let mut bytes = [0; 5];
            while wire.stream.read_exact(&mut bytes).await.is_ok() {
                wire.send(&bytes).await;
            }
        }
    })
    .await;
    let proxy = proxy(upstream).await;
    let mut client = Wire::connect(proxy.addr).await;
    // The bytes behind the head look like a bad request, and are none.
    client.send(format!("{ASK}\n\n\n\n\n")).await;
    agree.notify_one();
    let answer = client.head().await.unwrap();
    assert_eq!((answer.status(), answer.field("upgrade")), (101, Some("websocket")));
    client.send("hello").await;
    let mut echo = client.rest_of(16).await;
    echo.drain(..6);
    assert_eq!(echo, b"\n\n\n\n\nhello");
}

#[tokio::test]
async fn a_websocket_keeps_its_place_and_ends_when_the_listener_drains() {
    let upstream = scripted(|mut wire| async move {
        wire.message().await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        wire.until_closed().await;
    })
    .await;
    let options = ListenOptions { connections_max: 1, ..ListenOptions::default() };
    let proxy = proxy_with(upstream, options, UpstreamOptions::default()).await;
    let mut socket = Wire::connect(proxy.addr).await;
    socket.send(ASK).await;
    assert_eq!(socket.head().await.unwrap().status(), 101);
    let mut other = Wire::connect(proxy.addr).await;
    other.send(ASK).await;
    let early = timeout(Duration::from_millis(100), other.stream.readable()).await;
    assert!(early.is_err(), "a second connection was served");
    proxy.shutdown.drain();
    assert!(socket.is_closed().await);
    timeout(SOON, proxy.task).await.expect("the listener returns").unwrap();
}

#[tokio::test]
async fn a_websocket_that_the_upstream_declines_stays_http() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(format!("{ASK}{GET}")).await;
    assert_eq!(client.answer().await.text(), "GET /chat");
    assert_eq!(client.answer().await.text(), "GET /a");
    assert!(client.is_in_step().await);
    assert_eq!(ledger.seen().len(), 3);
}

#[tokio::test]
async fn a_refused_connection_means_that_nothing_was_sent() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = proxy(unused).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(POST).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (502, "upstream-unreachable"));
    assert_eq!(answer.field("x-failure"), Some("nothing-sent"));
}

#[tokio::test]
async fn an_upstream_that_hangs_leaves_a_doubt() {
    leaves_a_doubt(|mut wire| async move { while wire.message().await.is_some() {} }).await;
}

#[tokio::test]
async fn an_upstream_that_resets_after_the_request_leaves_a_doubt() {
    leaves_a_doubt(|wire| async move { reset(wire.stream) }).await;
}

#[tokio::test]
async fn an_upstream_that_closes_after_the_request_leaves_a_doubt() {
    leaves_a_doubt(|wire| async move { drop(wire) }).await;
}

#[tokio::test]
async fn an_upstream_that_resets_within_the_head_leaves_a_doubt() {
    leaves_a_doubt(|mut wire| async move {
        wire.send("HTTP/1.1 200 OK\r\nContent-Le").await;
        reset(wire.stream);
    })
    .await;
}

#[tokio::test]
async fn an_answer_with_two_lengths_leaves_a_doubt() {
    answers_malformed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!").await;
    answers_malformed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok").await;
    answers_malformed("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok").await;
}

#[tokio::test]
async fn an_answer_with_a_length_and_a_transfer_encoding_leaves_a_doubt() {
    answers_malformed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        .await;
}

#[tokio::test]
async fn an_answer_with_a_field_of_128_kb_leaves_a_doubt() {
    answers_malformed(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(128 * 1024))).await;
}

#[tokio::test]
async fn an_answer_with_a_thousand_fields_leaves_a_doubt() {
    answers_malformed(format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X: y\r\n".repeat(1000))).await;
}

/// An upstream whose answers have so many fields, in two pieces, and a body framed as asked.
async fn many_fields(count: usize, framing: &'static str, body: &'static str) -> Ledger {
    Ledger::answering(move |request| {
        let fields: String = (0..count).map(|at| format!("X-{at}: {at}\r\n")).collect();
        let body = if request.first_line().starts_with("HEAD") { "" } else { body };
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        format!("{hint}HTTP/1.1 200 OK\r\n{fields}{framing}\r\n\r\n{body}").into_bytes()
    })
    .await
}

#[tokio::test]
async fn an_answer_with_more_fields_than_hyper_reads_at_first_is_passed_on() {
    for (count, framing, body) in [
        (100, "Content-Length: 5", "hello"),
        (512 - 1, "Content-Length: 5", "hello"),
        (200, "Transfer-Encoding: chunked", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
    ] {
        let ledger = many_fields(count, framing, body).await;
        let proxy = proxy(ledger.addr).await;
        let mut client = Wire::connect(proxy.addr).await;
        for method in ["POST", "GET", "HEAD", "GET"] {
            client.send(format!("{method} /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")).await;
            let head = client.head().await.unwrap();
            assert_eq!(
                (head.status(), head.fields("x-0"), head.field("x-99")),
                (200, vec!["0"], Some("99")),
                "{method}"
            );
            let last = (count - 1).to_string();
            assert_eq!(head.field(&format!("x-{last}")), Some(last.as_str()), "{method} {framing}");
            if method != "HEAD" {
                assert_eq!(client.body_of(&head).await, "hello", "{method} {framing}");
            }
        }
        assert_eq!(ledger.seen().len(), 4, "each was sent once");
        assert!(ledger.seen().iter().all(|seen| seen.text() == "hi" && seen.fields("x-forwarded-host") == ["a"]));
    }
}

#[tokio::test]
async fn an_answer_with_a_head_of_64_kb_is_passed_on() {
    let ledger = Ledger::answering(|_| {
        format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "x".repeat(64 * 1024)).into_bytes()
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..2 {
        client.send(POST).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.field("x").map(str::len)), (200, Some(64 * 1024)));
    }
    assert_eq!(ledger.connections(), 1, "the connection is used again");
}

#[tokio::test]
async fn an_answer_that_is_not_http_leaves_a_doubt() {
    answers_malformed("SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
}

#[tokio::test]
async fn an_upstream_that_leaves_http_unasked_leaves_a_doubt() {
    answers_malformed("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n").await;
}

#[tokio::test]
async fn a_flood_of_provisional_answers_leaves_a_doubt_and_ends() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    leaves_a_doubt(move |mut wire| {
        let counter = Arc::clone(&counter);
        async move {
            let flood = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100);
            while wire.stream.write_all(flood.as_bytes()).await.is_ok() {
                counter.fetch_add(flood.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn provisional_answers_are_dropped() {
    let ledger = Ledger::answering(|_| {
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{OK}").into_bytes()
    })
    .await;
    let proxy = proxy(ledger.addr).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(POST).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.text().as_str(), answer.field("link")), (200, "ok", None));
    client.send(POST).await;
    assert_eq!(client.answer().await.text(), "ok");
    assert_eq!(ledger.connections(), 1);
}

/// The answer begins, then breaks: whoever reads it gets an error, and a client sees that it is not whole.
async fn breaks_off(bytes: &'static str, by_reset: bool) {
    let script = move |mut wire: Wire<TcpStream>| async move {
        wire.send(bytes).await;
        if by_reset {
            // Give the head time to be taken out of the socket, which a reset would empty.
            tokio::time::sleep(Duration::from_millis(50)).await;
            reset(wire.stream);
        }
    };
    let (executed, mut client) = asked(script).await;
    let seen = String::from_utf8_lossy(&client.until_closed().await).into_owned();
    assert!(!seen.ends_with("0\r\n\r\n") && !seen.contains("hello\r\n0"), "{bytes:?} became {seen:?}");
    assert_eq!(executed.load(Ordering::SeqCst), 1);

    let addr = scripted(move |mut wire| async move {
        wire.message().await;
        script(wire).await;
    })
    .await;
    let upstream = Upstream::new(&format!("http://{addr}").parse().unwrap(), UpstreamOptions::default()).unwrap();
    let response = upstream.send(Request::new(Body::empty())).await;
    assert_eq!(response.status(), 200);
    let error = response.into_body().collect().await.expect_err("the body has no end");
    assert!(matches!(error, BodyError::CutOff), "{bytes:?}: {error:?}");
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_breaks_off() {
    breaks_off("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", false).await;
}

#[tokio::test]
async fn an_answer_without_its_last_chunk_breaks_off() {
    breaks_off("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false).await;
    breaks_off("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", false).await;
}

#[tokio::test]
async fn an_answer_that_is_reset_breaks_off() {
    breaks_off("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true).await;
    breaks_off("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true).await;
    breaks_off("HTTP/1.1 200 OK\r\n\r\nhello", true).await;
}

#[tokio::test]
async fn an_answer_that_trickles_ends_with_its_time() {
    let (_, mut client) = asked(|mut wire| async move {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello").await;
        while wire.stream.write_all(b".").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert!(client.until_closed().await.len() < 1000);
}

#[tokio::test]
async fn bytes_behind_an_answer_are_never_taken_for_the_next_one() {
    for extra in [
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ] {
        let ledger = Ledger::answering(
            move |request| {
                if request.first_line().contains("/pay") { extra.into() } else { OK.into() }
            },
        )
        .await;
        let proxy = proxy(ledger.addr).await;
        let mut client = Wire::connect(proxy.addr).await;
        client.send(POST).await;
        assert!(client.answer().await.status() < 300);
        client.send(GET).await;
        assert_eq!(client.answer().await.text(), "ok", "{extra:?}");
        assert_eq!(ledger.connections(), 2, "{extra:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_not_used() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    // Answers one request per connection and closes without saying so, at once.
    let upstream = scripted(move |mut wire| {
        let counter = Arc::clone(&counter);
        async move {
            if wire.message().await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                wire.send(OK).await;
            }
        }
    })
    .await;
    let proxy = proxy(upstream).await;
    let mut client = Wire::connect(proxy.addr).await;
    for round in 0..200 {
        client.send(POST).await;
        assert_eq!(client.answer().await.status(), 200, "in round {round}");
        // The next request comes before, with, or after the end of the idle connection.
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        if round % 10 == 9 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert_eq!(executed.load(Ordering::SeqCst), 200);
}

#[tokio::test]
async fn a_connection_is_not_kept_longer_than_it_may_be() {
    let ledger = Ledger::start().await;
    let options = UpstreamOptions { idle_timeout: Duration::from_millis(100), ..UpstreamOptions::default() };
    let proxy = proxy_with(ledger.addr, ListenOptions::default(), options).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(GET).await;
    client.answer().await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(client.is_in_step().await);
    assert_eq!(ledger.connections(), 2);
}

#[tokio::test]
async fn a_request_is_never_sent_twice() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    // The first request of a connection is answered; after the second the connection is cut.
    let upstream = scripted(move |mut wire| {
        let counter = Arc::clone(&counter);
        async move {
            while wire.message().await.is_some() {
                if counter.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                    return reset(wire.stream);
                }
                wire.send(OK).await;
            }
        }
    })
    .await;
    let proxy = proxy(upstream).await;
    let mut client = Wire::connect(proxy.addr).await;
    for round in 1..=50 {
        for expected in [200, 504] {
            client.send(POST).await;
            assert_eq!(client.answer().await.status(), expected, "in round {round}");
        }
        assert_eq!(executed.load(Ordering::SeqCst), round * 2);
    }
}

/// An upstream that counts every request by its id, and then answers, cuts, resets or breaks off, by the id.
async fn moody(counts: Arc<Vec<AtomicUsize>>) -> SocketAddr {
    scripted(move |mut wire| {
        let counts = Arc::clone(&counts);
        async move {
            while let Some(request) = wire.message().await {
                let id: usize = request.field("x-id").unwrap().parse().unwrap();
                counts[id].fetch_add(1, Ordering::SeqCst);
                match id % 7 {
                    0 => return reset(wire.stream),
                    1 => return,
                    2 => return wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await,
                    // Answers, and then closes the connection that is idle now.
                    3 => return wire.send(OK).await,
                    _ => wire.send(OK).await,
                }
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_sent_twice_whatever_the_upstream_does_under_load() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 150;
    let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..CLIENTS * REQUESTS).map(|_| AtomicUsize::new(0)).collect());
    let proxy = proxy(moody(Arc::clone(&counts)).await).await;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (addr, counts) = (proxy.addr, Arc::clone(&counts));
        clients.push(tokio::spawn(async move {
            let mut wire = Wire::connect(addr).await;
            for id in client * REQUESTS..(client + 1) * REQUESTS {
                wire.send(format!("POST /pay HTTP/1.1\r\nHost: a\r\nX-Id: {id}\r\nContent-Length: 2\r\n\r\nhi")).await;
                let answer = wire.message().await;
                let seen = counts[id].load(Ordering::SeqCst);
                match answer {
                    Some(answer) if answer.status() == 200 => assert_eq!(seen, 1, "{id} was answered"),
                    Some(answer) if answer.field("x-failure") == Some("nothing-sent") => assert_eq!(seen, 0, "{id}"),
                    Some(answer) => assert_eq!((answer.status(), answer.field("x-failure")), (504, Some("doubt"))),
                    None => wire = Wire::connect(addr).await,
                }
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) <= 1));
    let answered = counts.iter().filter(|count| count.load(Ordering::SeqCst) == 1).count();
    assert!(answered > CLIENTS * REQUESTS * 9 / 10, "only {answered} arrived");
}

#[tokio::test]
async fn a_client_that_goes_away_in_its_body_leaves_no_whole_request() {
    let (ledger, proxy, mut client) = setup().await;
    client.send("POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell").await;
    reset(client.stream);
    let mut other = Wire::connect(proxy.addr).await;
    assert!(other.is_in_step().await);
    assert_eq!(ledger.only().first_line(), "GET /in-step HTTP/1.1");
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let upstream = scripted(|mut wire| async move {
        wire.message().await;
        wire.send("HTTP/1.0 200 OK\r\n\r\nhello").await;
    })
    .await;
    let proxy = proxy(upstream).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..3 {
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    }
}

#[tokio::test]
async fn a_slow_head_is_told_so_and_holds_up_nobody() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, impatient(), UpstreamOptions::default()).await;
    let mut slow = Wire::connect(proxy.addr).await;
    slow.send("GET / HTTP/1.1\r\nHost:").await;
    let mut other = Wire::connect(proxy.addr).await;
    assert!(other.is_in_step().await);
    let answer = slow.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (408, "request-timeout"));
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn a_head_in_drops_has_no_more_time_than_a_silent_one() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, impatient(), UpstreamOptions::default()).await;
    let (mut reading, mut writing) = TcpStream::connect(proxy.addr).await.unwrap().into_split();
    let dripping = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut answer = Vec::new();
    let _ = timeout(SOON, reading.read_to_end(&mut answer)).await.expect("the connection is closed");
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    dripping.abort();
}

#[tokio::test]
async fn a_slow_body_is_told_so_and_holds_up_nobody() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, impatient(), UpstreamOptions::default()).await;
    let mut slow = Wire::connect(proxy.addr).await;
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe").await;
    let mut other = Wire::connect(proxy.addr).await;
    assert!(other.is_in_step().await);
    let answer = slow.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (408, "request-timeout"));
    assert!(slow.is_closed().await);
    assert_eq!(ledger.seen().len(), 1);
}

#[tokio::test]
async fn a_body_that_makes_progress_has_its_time_where_no_rate_is_asked_of_it() {
    let ledger = Ledger::start().await;
    let options =
        ListenOptions { body_time: Duration::from_millis(800), body_rate_min: None, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").await;
    for byte in b"hello" {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.send([*byte]).await;
    }
    assert_eq!(client.answer().await.text(), "POST /a");
}

#[tokio::test]
async fn a_reader_that_reads_nothing_is_closed_and_its_upstream_connection_too() {
    let (upstream, ended) = endless().await;
    let proxy = proxy_with(upstream, impatient(), UpstreamOptions::default()).await;
    let mut slow = Wire::connect(proxy.addr).await;
    slow.send(GET).await;
    timeout(SOON, ended.acquire()).await.expect("the upstream's connection is closed").unwrap().forget();
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_not_one_that_waits_for_its_answer() {
    let upstream = scripted(|mut wire| async move {
        while wire.message().await.is_some() {
            tokio::time::sleep(Duration::from_millis(400)).await;
            wire.send(OK).await;
        }
    })
    .await;
    let proxy = proxy_with(upstream, impatient(), UpstreamOptions::default()).await;
    let mut idle = Wire::connect(proxy.addr).await;
    let mut waiting = Wire::connect(proxy.addr).await;
    waiting.send(GET).await;
    assert!(idle.is_closed().await);
    assert_eq!(waiting.answer().await.text(), "ok");
    assert!(waiting.is_closed().await);
}

#[tokio::test]
async fn connections_above_the_limit_wait_for_a_place() {
    let ledger = Ledger::start().await;
    let options = ListenOptions { connections_max: 2, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let (mut first, mut second) = (Wire::connect(proxy.addr).await, Wire::connect(proxy.addr).await);
    assert!(first.is_in_step().await && second.is_in_step().await);
    let mut third = Wire::connect(proxy.addr).await;
    third.send(GET).await;
    let early = timeout(Duration::from_millis(100), third.stream.readable()).await;
    assert!(early.is_err(), "the third connection was served");
    drop(first);
    assert_eq!(third.answer().await.text(), "GET /a");
}

/// An upstream that answers when it is told to.
async fn held_upstream() -> (Arc<Notify>, Arc<Notify>, SocketAddr) {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrived_inside, go_inside) = (Arc::clone(&arrived), Arc::clone(&go));
    let addr = scripted(move |mut wire| {
        let (arrived, go) = (Arc::clone(&arrived_inside), Arc::clone(&go_inside));
        async move {
            while wire.message().await.is_some() {
                arrived.notify_one();
                go.notified().await;
                wire.send(OK).await;
            }
        }
    })
    .await;
    (arrived, go, addr)
}

#[tokio::test]
async fn a_drain_finishes_what_runs_and_closes_what_is_idle() {
    let (arrived, go, upstream) = held_upstream().await;
    let proxy = proxy(upstream).await;
    let mut silent = Wire::connect(proxy.addr).await;
    let mut idle = Wire::connect(proxy.addr).await;
    idle.send(GET).await;
    go.notify_one();
    assert_eq!(idle.answer().await.text(), "ok");
    arrived.notified().await;
    let mut running = Wire::connect(proxy.addr).await;
    running.send(POST).await;
    arrived.notified().await;
    proxy.shutdown.drain();
    assert!(silent.is_closed().await && idle.is_closed().await);
    assert!(TcpStream::connect(proxy.addr).await.is_err());
    assert!(!proxy.task.is_finished());
    go.notify_one();
    let answer = running.answer().await;
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("ok", Some("close")));
    assert!(running.is_closed().await);
    timeout(SOON, proxy.task).await.expect("the listener returns").unwrap();
}

#[tokio::test]
async fn abandoning_ends_at_once() {
    let (arrived, _go, upstream) = held_upstream().await;
    let proxy = proxy(upstream).await;
    let mut running = Wire::connect(proxy.addr).await;
    running.send(POST).await;
    arrived.notified().await;
    proxy.shutdown.abandon();
    timeout(SOON, proxy.task).await.expect("the listener returns").unwrap();
    assert!(running.is_closed().await);
}
