//! Requests whose framing is wrong, over a raw socket: inputs 31 to 56 of the list of bad inputs, and a few more.
//!
//! Each test asserts the status, what the upstream saw, and that the connection is closed or in step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use crate::proxied::{Ledger, Message, Proxy, SOON, Wire, code, impatient, proxy, proxy_with};
use hapax_proxy::{ListenOptions, UpstreamOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Behind every bad request in these tests: must never reach the upstream.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

async fn setup() -> (Ledger, Proxy, Wire<TcpStream>) {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let client = Wire::connect(proxy.addr).await;
    (ledger, proxy, client)
}

/// Sends bytes that must be refused with nothing behind them taken for a request.
async fn refused(request: &str) -> Message {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("{request}{SMUGGLED}")).await;
    let answer = client.answer().await;
    assert_eq!(answer.field("connection"), Some("close"), "{answer:?}");
    assert!(client.is_closed().await, "after {request:?}");
    assert!(ledger.seen().is_empty(), "{:?}", ledger.seen());
    let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let error = serde_json::json!({
        "type": "idempotency_error", "code": code(&answer), "message": document["detail"],
    });
    assert_eq!(document["error"], error, "for SDKs that look for it");
    answer
}

async fn refused_as_bad_framing(request: &str, cause: &str) {
    let answer = refused(request).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-framing"), "{request:?}");
    assert!(answer.text().contains(cause), "{}", answer.text());
}

/// Sends a body that cannot be followed: the head may be passed on, a whole request never.
async fn refused_in_the_body(request: &str) {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("{request}{SMUGGLED}")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-framing"), "{request:?}");
    assert_eq!(answer.field("connection"), Some("close"), "{answer:?}");
    assert!(client.is_closed().await, "after {request:?}");
    assert!(ledger.seen().is_empty(), "{:?}", ledger.seen());
}

fn post(fields: &str) -> String {
    format!("POST /pay HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

const CHUNKED: &str = "POST /pay HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_length_beside_a_transfer_encoding_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "content-length: 0\r\nTRANSFER-ENCODING: Chunked\r\n",
    ] {
        refused_as_bad_framing(&format!("{}0\r\n\r\n", post(fields)), "exclude each other").await;
    }
}

#[tokio::test]
async fn two_lengths_are_refused_even_when_they_agree() {
    for fields in ["Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n"] {
        refused_as_bad_framing(&format!("{}hello", post(fields)), "given twice").await;
    }
    refused_as_bad_framing(&format!("{}hello", post("Content-Length: 5, 5\r\n")), "plain number").await;
}

#[tokio::test]
async fn a_length_with_a_sign_is_refused() {
    for length in ["+5", "-5", "5 5", "5.0", ""] {
        let request = format!("{}hello", post(&format!("Content-Length: {length}\r\n")));
        refused_as_bad_framing(&request, "plain number").await;
    }
}

#[tokio::test]
async fn a_hexadecimal_length_is_refused() {
    refused_as_bad_framing(&post("Content-Length: 0x10\r\n"), "plain number").await;
}

#[tokio::test]
async fn a_length_with_an_underscore_is_refused() {
    refused_as_bad_framing(&post("Content-Length: 1_0\r\n"), "plain number").await;
}

#[tokio::test]
async fn a_length_above_the_signed_numbers_is_refused() {
    for length in ["9223372036854775808", "18446744073709551616", "99999999999999999999999"] {
        refused_as_bad_framing(&post(&format!("Content-Length: {length}\r\n")), "plain number").await;
    }
}

#[tokio::test]
async fn a_space_before_the_colon_is_refused() {
    refused_as_bad_framing(&format!("{}0\r\n\r\n", post("Transfer-Encoding : chunked\r\n")), "NAME: VALUE").await;
}

#[tokio::test]
async fn a_transfer_encoding_other_than_chunked_is_refused() {
    for encoding in ["chunked, identity", "gzip, chunked", "identity", "xchunked", "\"chunked\"", ""] {
        let request = post(&format!("Transfer-Encoding: {encoding}\r\n"));
        refused_as_bad_framing(&format!("{request}0\r\n\r\n"), "not exactly chunked").await;
    }
    let twice = post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n");
    refused_as_bad_framing(&format!("{twice}0\r\n\r\n"), "not exactly chunked").await;
}

#[tokio::test]
async fn a_chunk_size_that_overflows_is_refused() {
    for size in ["10000000000000005", "FFFFFFFFFFFFFFFFF", "0x5", "-5", "", " 5", "5 "] {
        refused_in_the_body(&format!("{CHUNKED}{size}\r\nhello\r\n0\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn a_bare_line_feed_is_refused() {
    for request in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        refused_as_bad_framing(request, "without a carriage return").await;
    }
    refused_in_the_body(&format!("{CHUNKED}5\nhello\r\n0\r\n\r\n")).await;
    refused_in_the_body(&format!("{CHUNKED}5\r\nhello\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn a_bare_carriage_return_is_refused() {
    refused_as_bad_framing("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "control character").await;
    refused_as_bad_framing("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "control character").await;
    refused_as_bad_framing("GET / HTTP/1.1\r\nHost: a\r\nX: \0b\r\n\r\n", "control character").await;
}

#[tokio::test]
async fn a_carriage_return_in_a_chunk_extension_is_refused() {
    refused_in_the_body(&format!("{CHUNKED}5;a\rb\r\nhello\r\n0\r\n\r\n")).await;
    refused_in_the_body(&format!("{CHUNKED}5;a\nb\r\nhello\r\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn a_chunk_extension_is_dropped() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("{CHUNKED}5;a=b\r\nhello\r\n0\r\n\r\n")).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(ledger.only().text(), "hello");
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn a_body_without_its_last_chunk_is_refused() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("{CHUNKED}5\r\nhello\r\n")).await;
    client.stream.shutdown().await.unwrap();
    let answer = client.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-framing"));
    assert!(client.is_closed().await);
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_refused() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("{}hell", post("Content-Length: 5\r\n"))).await;
    client.stream.shutdown().await.unwrap();
    let answer = client.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-framing"));
    assert!(client.is_closed().await);
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn a_trailer_that_may_not_be_one_is_left_out_and_the_request_goes_on() {
    let (ledger, _proxy, mut client) = setup().await;
    let forbidden = [
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Host: b",
        "Connection: close",
        "TE: trailers",
        "Trailer: X-Sum",
        "Upgrade: websocket",
        "Authorization: Bearer b",
        "Idempotency-Key: b",
        "Idempotency-Attempt: 7",
        "Idempotency-Record: b",
    ];
    for trailer in forbidden {
        let (name, _) = trailer.split_once(':').unwrap();
        let head = post(&format!("TE: trailers\r\nTrailer: X-Sum, {name}\r\nTransfer-Encoding: chunked\r\n"));
        client.send(format!("{head}5\r\nhello\r\n0\r\n{trailer}\r\nX-Sum: 1\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 200, "{trailer}: {}", answer.text());
        let seen = ledger.seen().pop().unwrap();
        assert_eq!((seen.text().as_str(), seen.trailers.to_lowercase().as_str()), ("hello", "x-sum: 1\n"), "{trailer}");
    }
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn a_trailer_that_is_no_field_is_refused_as_such() {
    for trailer in ["no colon", "Space : b", " folded", "X: a\0b", "Host", ": x"] {
        refused_in_the_body(&format!("{CHUNKED}5\r\nhello\r\n0\r\n{trailer}\r\n\r\n")).await;
    }
    let (_ledger, _proxy, mut client) = setup().await;
    client.send(format!("{CHUNKED}5\r\nhello\r\n0\r\nno colon\r\n\r\n")).await;
    assert!(client.answer().await.text().contains("chunks or trailers are malformed"));
}

#[tokio::test]
async fn a_body_that_was_announced_but_never_comes_is_given_up() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, impatient(), UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(post("Content-Length: 5\r\nExpect: 100-continue\r\n")).await;
    assert_eq!(client.head().await.unwrap().first_line(), "HTTP/1.1 100 Continue");
    let answer = client.answer().await;
    assert_eq!((answer.status(), code(&answer).as_str()), (408, "request-timeout"));
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(client.is_closed().await);
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn an_announced_body_that_comes_is_passed_on() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(post("Content-Length: 5\r\nExpect: 100-continue\r\n")).await;
    assert_eq!(client.head().await.unwrap().first_line(), "HTTP/1.1 100 Continue");
    client.send("hello").await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    assert_eq!((seen.text().as_str(), seen.field("expect")), ("hello", None));
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn an_upgrade_with_a_body_is_an_ordinary_request() {
    for fields in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        let (ledger, _proxy, mut client) = setup().await;
        client
            .send(format!("GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{fields}"))
            .await;
        assert_eq!(client.answer().await.status(), 200);
        let seen = ledger.only();
        assert_eq!((seen.text().as_str(), seen.field("upgrade"), seen.field("connection")), ("hello", None, None));
        assert!(client.is_in_step().await);
    }
}

#[tokio::test]
async fn a_target_that_names_another_host_is_refused() {
    let answer = refused("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-host"));
}

#[tokio::test]
async fn a_target_that_names_the_same_host_is_passed_on_without_it() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send("GET http://a:81/x?y HTTP/1.1\r\nHost: A:81\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    assert_eq!((seen.first_line(), seen.fields("host")), ("GET /x?y HTTP/1.1", vec!["a:81"]));
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn a_target_that_is_none_is_refused() {
    for target in [
        "/a\"b<>",
        "/a`b",
        "http:///x",
        "http://",
        "http://[::1",
        "http://?a",
        "ftp://a/x",
        "a",
        "a:80",
        "?a",
        "*",
        "//a^b\\c<",
        "/x#y",
        "/#",
        "http://a/x#y",
    ] {
        let request = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        refused_as_bad_framing(&request, "The target").await;
    }
    refused_as_bad_framing("OPTIONS *a HTTP/1.1\r\nHost: a\r\n\r\n", "The target").await;
}

#[tokio::test]
async fn a_target_of_any_proper_form_is_passed_on() {
    for (line, passed) in [
        ("OPTIONS *", "OPTIONS *"),
        ("GET /", "GET /"),
        ("GET //a/../b;c=%2F?d[]=e|{f}&g='h'", "GET //a/../b;c=%2F?d[]=e|{f}&g='h'"),
        ("GET HTTP://a", "GET /"),
        ("GET https://a?b", "GET /?b"),
    ] {
        let (ledger, _proxy, mut client) = setup().await;
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status(), 200, "{line}");
        assert_eq!(ledger.only().first_line(), format!("{passed} HTTP/1.1"), "{line}");
    }
}

#[tokio::test]
async fn two_hosts_are_refused_and_so_is_none() {
    for request in ["GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        let answer = refused(request).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-host"), "{request:?}");
    }
}

#[tokio::test]
async fn a_malformed_host_is_refused() {
    for host in ["a b", "a/b", "a,b", "[::1", "a:b", "user@a", ""] {
        let answer = refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-host"), "{host}");
    }
    let answer = refused("GET http://user@a/ HTTP/1.1\r\nHost: user@a\r\n\r\n").await;
    assert_eq!((answer.status(), code(&answer).as_str()), (400, "bad-host"));
}

#[tokio::test]
async fn a_transfer_encoding_in_http_1_0_is_refused() {
    let request = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused_as_bad_framing(request, "HTTP/1.0 has no Transfer-Encoding").await;
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed_unless_it_asks_to_stay() {
    let (ledger, proxy, mut client) = setup().await;
    client.send("GET /a HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(client.is_closed().await);
    assert_eq!(ledger.only().first_line(), "GET /a HTTP/1.1");
    let mut client = Wire::connect(proxy.addr).await;
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn http_0_9_is_refused_at_once() {
    refused_as_bad_framing("GET /\r\n", "METHOD TARGET HTTP/1.1").await;
    refused_as_bad_framing("GET / HTTP/0.9\r\n\r\n", "METHOD TARGET HTTP/1.1").await;
    refused_as_bad_framing("GET / HTTP/3.0\r\n\r\n", "METHOD TARGET HTTP/1.1").await;
}

#[tokio::test]
async fn a_folded_line_is_refused() {
    refused_as_bad_framing("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "without folding").await;
    refused_as_bad_framing("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "without folding").await;
}

#[tokio::test]
async fn a_get_with_a_body_and_a_key_is_passed_on_whole() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    assert_eq!((seen.text().as_str(), seen.field("idempotency-key")), ("hello", Some("k")));
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn an_unknown_method_is_passed_on() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send("BREW /pot HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!(client.answer().await.text(), "BREW /pot");
    assert_eq!(ledger.only().text(), "hi");
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn connect_is_refused() {
    let answer = refused("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").await;
    assert_eq!((answer.status(), code(&answer).as_str()), (405, "method-not-allowed"));
}

#[tokio::test]
async fn a_repeated_pseudo_header_in_http2_ends_the_stream() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send(frame(4, 0, 0, &[])).await;
    // `:method GET` twice, `:scheme http`, `:path /`, and `:authority a`.
    client.send(frame(1, 0x5, 1, &[0x82, 0x82, 0x86, 0x84, 0x41, 0x01, b'a'])).await;
    let (kind, stream) = first_error(&mut client).await;
    assert!((kind, stream) == (3, 1) || kind == 7, "a reset of stream 1 or a farewell, not {kind} on {stream}");
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn fields_of_http1_in_http2_end_the_stream() {
    for (name, value) in [("transfer-encoding", "chunked"), ("connection", "close"), ("Upper", "b"), ("a", "b\r\nc: d")]
    {
        let (ledger, _proxy, mut client) = setup().await;
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        client.send(frame(4, 0, 0, &[])).await;
        let mut block = vec![0x82, 0x86, 0x84, 0x41, 0x01, b'a', 0x00];
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
        client.send(frame(1, 0x5, 1, &block)).await;
        let (kind, stream) = first_error(&mut client).await;
        assert!((kind, stream) == (3, 1) || kind == 7, "{name}: {kind} on {stream}");
        assert!(ledger.seen().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_name_in_http2_that_is_none_in_http1_is_refused() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send(frame(4, 0, 0, &[])).await;
    let block = [&[0x82, 0x86, 0x84, 0x41, 0x01, b'a', 0x00, 0x03][..], b"a\"b\x01c"].concat();
    client.send(frame(1, 0x5, 1, &block)).await;
    assert_eq!(first_error(&mut client).await, (1, 1), "an answer");
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn a_request_in_http2_without_a_path_is_refused() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send(frame(4, 0, 0, &[])).await;
    // `:method POST`, `:scheme http`, and the field `host`: no `:authority`, no `:path`.
    client.send(frame(1, 0x5, 1, &[0x83, 0x86, 0x0f, 0x17, 0x01, b'a'])).await;
    let (kind, stream) = first_error(&mut client).await;
    assert!(kind != 0 && (stream == 1 || kind == 7), "a refusal, not {kind} on {stream}");
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn a_length_in_http2_that_is_no_number_is_refused() {
    for length in [&b""[..], b"+1", b"01"] {
        let (ledger, _proxy, mut client) = setup().await;
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        client.send(frame(4, 0, 0, &[])).await;
        let named = [&[0x83, 0x86, 0x84, 0x41, 0x01, b'a', 0x0f, 0x0d, u8::try_from(length.len()).unwrap()], length];
        client.send(frame(1, 0x5, 1, &named.concat())).await;
        let (kind, stream) = first_error(&mut client).await;
        assert!(kind != 0 && (stream == 1 || kind == 7), "a refusal, not {kind} on {stream}");
        assert!(ledger.seen().is_empty(), "{length:?}");
    }
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The first frame that is RST_STREAM (3) or GOAWAY (7), or the first of stream 1.
async fn first_error(client: &mut Wire<TcpStream>) -> (u8, u32) {
    let reading = async {
        loop {
            let mut header = [0; 9];
            client.stream.read_exact(&mut header).await.expect("a frame");
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            client.stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            if matches!(header[3], 3 | 7) || stream == 1 {
                return (header[3], stream);
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.expect("an answer to the malformed stream")
}

#[tokio::test]
async fn an_upgrade_to_http2_is_not_passed_on() {
    let (ledger, _proxy, mut client) = setup().await;
    client
        .send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = ledger.only();
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(seen.field(name), None, "{name}");
    }
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn a_target_of_64_kb_is_refused() {
    let answer = refused(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(65_536))).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (414, "target-too-long"));
}

#[tokio::test]
async fn a_field_of_64_kb_is_refused() {
    let answer = refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(65_536))).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (431, "head-too-large"));
}

#[tokio::test]
async fn more_than_a_hundred_fields_are_refused() {
    let answer = refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100))).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (431, "head-too-large"));
}

#[tokio::test]
async fn a_hundred_fields_are_passed_on() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(99))).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(ledger.only().fields("x").len(), 99);
    assert!(client.is_in_step().await);
}

/// A proxy whose operator wants more than hyper's own limits.
async fn generous() -> (Ledger, Proxy, Wire<TcpStream>) {
    let ledger = Ledger::start().await;
    let options = ListenOptions { fields_max: 300, head_bytes_max: 1024 * 1024, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let client = Wire::connect(proxy.addr).await;
    (ledger, proxy, client)
}

#[tokio::test]
async fn as_many_fields_are_passed_on_as_the_operator_allows() {
    let (ledger, _proxy, mut client) = generous().await;
    let fields = |count: usize| (1..count).map(|at| format!("X-{at}: {at}\r\n")).collect::<String>();
    client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(300))).await;
    assert_eq!(client.answer().await.text(), "GET /a");
    assert_eq!(ledger.only().field("x-299"), Some("299"));
    client.send(format!("GET /b HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(301))).await;
    assert_eq!(code(&client.answer().await), "head-too-large");
}

#[tokio::test]
async fn more_fields_than_a_map_holds_are_refused_whatever_the_operator_allows() {
    let ledger = Ledger::start().await;
    let options = ListenOptions { fields_max: 1_000_000, head_bytes_max: 1024 * 1024, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    let fields = |count: usize| (1..count).map(|at| format!("X-{at}: {at}\r\n")).collect::<String>();
    client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(10_000))).await;
    assert_eq!(client.answer().await.text(), "GET /a");
    client.send(format!("GET /b HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(40_000))).await;
    assert_eq!(code(&client.answer().await), "head-too-large");
}

#[tokio::test]
async fn as_large_a_head_is_passed_on_as_the_operator_allows() {
    let (ledger, _proxy, mut client) = generous().await;
    let sent = |bytes: usize| format!("GET /a HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(bytes));
    let most = 1024 * 1024 - sent(0).len();
    client.send(sent(most)).await;
    assert_eq!(client.answer().await.text(), "GET /a");
    assert_eq!(ledger.only().field("x-long").map(str::len), Some(most));
    let _ = client.stream.write_all(sent(most + 1).as_bytes()).await;
    assert_eq!(code(&client.answer().await), "head-too-large");
}

#[tokio::test]
async fn what_comes_before_a_refused_request_is_answered_first() {
    let (ledger, _proxy, mut client) = setup().await;
    let bad = post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    let first = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    client.send(format!("{first}GET /second HTTP/1.1\r\nHost: a\r\n\r\n{bad}{SMUGGLED}")).await;
    assert_eq!(client.answer().await.text(), "POST /first");
    assert_eq!(client.answer().await.text(), "GET /second");
    assert_eq!(client.answer().await.status(), 400);
    assert!(client.is_closed().await);
    assert_eq!(ledger.seen().len(), 2);
}

#[tokio::test]
async fn a_body_that_looks_like_a_bad_request_is_a_body() {
    let (ledger, _proxy, mut client) = setup().await;
    let body = post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    client.send(format!("{}{body}", post(&format!("Content-Length: {}\r\n", body.len())))).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(ledger.only().text(), body);
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn a_request_in_single_bytes_is_the_same_request() {
    let (ledger, _proxy, mut client) = setup().await;
    client.stream.set_nodelay(true).unwrap();
    for byte in format!("\r\n{CHUNKED}5;x\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n").bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(ledger.only().text(), "hello");
    assert!(client.is_in_step().await);
}

/// What refusals of the framing call a request whose head has these lines.
async fn named(head: &str) -> String {
    let answer = refused(head).await;
    let id = answer.field("x-request-id").unwrap().to_owned();
    let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (answer.fields("x-request-id").len(), document["request_id"].as_str()),
        (1, Some(id.as_str())),
        "{head:?}"
    );
    id
}

#[tokio::test]
async fn a_refusal_of_the_framing_returns_the_id_that_the_request_gave_itself() {
    let lengths = "Content-Length: 5\r\nContent-Length: 5\r\n";
    let many = "X: y\r\n".repeat(200);
    for head in [
        post(&format!("X-Request-Id: mine-1\r\n{lengths}")),
        post(&format!("{lengths}x-request-id:mine-1 \r\n")),
        post("X-REQUEST-ID: mine-1\r\nTransfer-Encoding: gzip\r\n"),
        post("Content-Length: 0\r\nX-Request-Id: mine-1\r\nTransfer-Encoding: chunked\r\n"),
        post(&format!("X-Request-Id: mine-1\r\n{many}")),
        post("X-Request-Id: mine-1\r\nbare: line feed\nX: y\r\n"),
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nX-Request-Id: mine-1\r\n\r\n".to_owned(),
        "GET #f HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\n\r\n".to_owned(),
        "TRACE / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\n\r\n".to_owned(),
    ] {
        assert_eq!(named(&head).await, "mine-1", "{head:?}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_framing_has_a_fresh_id_where_the_head_gives_none_that_counts() {
    let id = |lines: &str| post(&format!("{lines}Transfer-Encoding: gzip\r\n"));
    for head in [
        id(""),
        id("X-Request-Id: one\r\nX-Request-Id: one\r\n"),
        id("X-Request-Id: one two\r\n"),
        id("X-Request-Id: \"one\"\r\n"),
        id("X-Request-Id : one\r\n"),
        id(" X-Request-Id: one\r\n"),
        id("X-Request-Id: one\n"),
        "GET / HTTP/1.1\r\nHost: a\r\n\nGET / HTTP/1.1\r\nX-Request-Id: another\r\n\r\n".to_owned(),
        "X-Request-Id: no-request-line\r\n\r\n".to_owned(),
        id(&format!("X-Request-Id: {}\r\n", "a".repeat(129))),
        "\x16\x03\x01\r\n\r\n".to_owned(),
    ] {
        let id = named(&head).await;
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{head:?}: {id}");
    }
}

#[tokio::test]
async fn a_connect_is_refused_with_its_id_however_its_head_is_cut() {
    let (ledger, _proxy, mut client) = setup().await;
    client.send("CONNECT a:443 HTTP/1.1\r\nHo").await;
    tokio::task::yield_now().await;
    client.send(format!("st: a:443\r\nX-Request-Id: mine-1\r\n\r\n{SMUGGLED}")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("x-request-id")), (405, Some("mine-1")), "{answer:?}");
    assert!(client.is_closed().await && ledger.seen().is_empty());
}

#[tokio::test]
async fn a_head_that_stands_still_is_refused_with_its_id_by_the_name_that_is_configured() {
    let ledger = Ledger::start().await;
    let listen = ListenOptions { request_id_header: "x-trace".parse().unwrap(), ..impatient() };
    let proxy = proxy_with(ledger.addr, listen, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send("GET / HTTP/1.1\r\nX-Request-Id: no\r\nX-Trace: mine-1\r\nX-Trace: mi").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("x-trace")), (408, Some("mine-1")), "{answer:?}");
}
