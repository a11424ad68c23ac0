//! HTTP/2 requests: whatever fields come, what the service gets is one request that HTTP/1.1 can say.
//!
//! The input is a byte for the shape of the frames, then lines: `name|value` for each field, an empty line, the body, and
//! `name|value` for each trailer. The listener is the real one, behind a socket.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_proxy::fuzzing::{self, End};
use hapax_proxy::{Body, ListenOptions, Shutdown, serve};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;

use crate::http2_frames::{Exchange, Field};
use crate::input::Input;

pub(crate) const WORDS: &[&str] = &[
    ":method|POST\n",
    ":method|GET\n",
    ":method|CONNECT\n",
    ":path|/pay\n",
    ":path|*\n",
    ":path|/a?b#c\n",
    ":path|http://a/b\n",
    ":scheme|http\n",
    ":authority|shop.example\n",
    ":protocol|websocket\n",
    "host|shop.example\n",
    "content-length|3\n",
    "content-length|03\n",
    "transfer-encoding|chunked\n",
    "connection|close\n",
    "te|trailers\n",
    "upgrade|websocket\n",
    "idempotency-key|k-1\n",
    "idempotency-attempt|7\n",
    "x-forwarded-for|10.0.0.1\n",
    "x_forwarded_for|10.0.0.1\n",
    "cookie|a=b\n",
    "expect|100-continue\n",
    "\n\nabc\n",
    "\r\n",
    "\0",
    "|",
    ":",
    " ",
    "\u{e9}",
];

/// Runs the target.
pub fn http2(data: &[u8]) {
    let mut input = Input::new(data);
    let shape = input.byte();
    let fields = fields(&mut input);
    let has_body = !input.is_empty();
    let body = input.line();
    let trailers = self::fields(&mut input);
    let pieces = [1, 3, 9, 16_000];
    let exchange = Exchange {
        fields,
        body: has_body.then_some(body),
        trailers,
        head_piece: pieces[usize::from(shape & 3)].max(9),
        body_piece: pieces[usize::from(shape >> 2 & 3)],
    };
    let listener = listener();
    listener.got().take();
    exchange.with(listener.address);
    if let Some(got) = listener.got().take() {
        judge(&got);
    }
}

/// Lines up to an empty one.
fn fields<'a>(input: &mut Input<'a>) -> Vec<Field<'a>> {
    let mut fields = Vec::new();
    while !input.is_empty() {
        let line = input.line();
        if line.is_empty() {
            break;
        }
        let at = line.iter().position(|byte| *byte == b'|').unwrap_or(line.len());
        fields.push((&line[..at], line.get(at + 1..).unwrap_or_default()));
    }
    fields
}

/// What the service got.
struct Got {
    parts: Parts,
    /// None where the body ended in an error.
    body: Option<(Bytes, Option<HeaderMap>)>,
}

struct Listener {
    address: SocketAddr,
    got: Arc<Mutex<Option<Got>>>,
}

impl Listener {
    fn got(&self) -> std::sync::MutexGuard<'_, Option<Got>> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One for the process: it is a stranger's connection that matters, not the start of a server.
fn listener() -> &'static Listener {
    static LISTENER: OnceLock<Listener> = OnceLock::new();
    LISTENER.get_or_init(|| {
        let got = Arc::new(Mutex::new(None));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no socket: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let for_thread = Arc::clone(&got);
        std::thread::spawn(move || run(listener, for_thread));
        Listener { address, got }
    })
}

fn run(listener: std::net::TcpListener, got: Arc<Mutex<Option<Got>>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let _ = listener.set_nonblocking(true);
        let listener = tokio::net::TcpListener::from_std(listener).unwrap_or_else(|error| panic!("no socket: {error}"));
        let service = tower::service_fn(move |request: Request<Body>| {
            let got = Arc::clone(&got);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.ok();
                let body = body.map(|whole| (whole.trailers().cloned(), whole.to_bytes()));
                let body = body.map(|(trailers, bytes)| (bytes, trailers));
                *got.lock().unwrap_or_else(PoisonError::into_inner) = Some(Got { parts, body });
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            }
        });
        serve(listener, None, ListenOptions::default(), service, Shutdown::new()).await;
    });
}

/// Fields of one connection, or only ever set by us.
const NEVER: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "proxy-authorization",
    "idempotency-attempt",
    "idempotency-record",
];

fn judge(got: &Got) {
    let headers = &got.parts.headers;
    for name in NEVER {
        assert!(!headers.contains_key(name), "{name} arrived");
        let trailers = got.body.as_ref().and_then(|(_, trailers)| trailers.as_ref());
        assert!(!trailers.is_some_and(|trailers| trailers.contains_key(name)), "{name} arrived in a trailer");
    }
    assert_eq!(headers.get_all("host").iter().count(), 1, "hosts");
    let path = got.parts.uri.path();
    let is_path = path.starts_with('/') || (path == "*" && got.parts.method == Method::OPTIONS);
    assert!(is_path, "a target of {path:?}");
    assert_eq!(headers.get("x-forwarded-for").map(http::HeaderValue::as_bytes), Some(&b"127.0.0.1"[..]));
    for (name, value) in headers {
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{name} breaks its line");
    }
    let Some((body, _)) = &got.body else { return };
    if let Some(length) = headers.get("content-length") {
        assert_eq!(length.as_bytes(), body.len().to_string().as_bytes(), "the length is not that of the body");
    }
    judge_as_http1(got, body);
}

/// The request as an upstream that speaks HTTP/1.1 gets it: one request, and nothing behind it.
fn judge_as_http1(got: &Got, body: &Bytes) {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = got.parts.method.clone();
    *request.uri_mut() = got.parts.uri.clone();
    *request.headers_mut() = got.parts.headers.clone();
    let bytes = RUNTIME.with_borrow(|runtime| runtime.block_on(written(request)));
    let options = ListenOptions { fields_max: 10_000, head_bytes_max: 1 << 20, ..ListenOptions::default() };
    let framed = fuzzing::http1([bytes.as_slice()], &options);
    assert_eq!((framed.end, framed.heads), (End::Passed, 1), "{:?}", String::from_utf8_lossy(&bytes));
    assert!(framed.passed.ends_with(body), "the body is another one");
}

thread_local! {
    /// Its clock stands still, and runs on when there is nothing left to do: that is how we know that all was written.
    static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap_or_else(|error| panic!("no runtime: {error}")),
    );
}

async fn written(request: Request<Full<Bytes>>) -> Vec<u8> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let (mut sender, connection) = match hyper::client::conn::http1::handshake(TokioIo::new(ours)).await {
        Ok(made) => made,
        Err(error) => panic!("no connection in memory: {error}"),
    };
    let sending = async {
        tokio::select! {
            _ = connection => {}
            _ = sender.send_request(request) => {}
        }
    };
    let reading = async {
        let mut bytes = Vec::new();
        while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_secs(1), theirs.read_buf(&mut bytes)).await {
            if count == 0 {
                break;
            }
        }
        bytes
    };
    let mut sending = std::pin::pin!(sending);
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        bytes = &mut reading => bytes,
        () = &mut sending => reading.await,
    }
}
