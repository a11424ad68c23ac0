//! A listener glued to an upstream, an upstream that writes down what it gets, and a client that sends any bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hapax_proxy::{Body, Failure, ListenOptions, Shutdown, Upstream, UpstreamOptions, serve};
use http::{HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything takes that does not hang.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A proxy in front of an upstream.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<()>,
}

pub(crate) async fn proxy(upstream: SocketAddr) -> Proxy {
    proxy_with(upstream, ListenOptions::default(), UpstreamOptions::default()).await
}

pub(crate) async fn proxy_with(upstream: SocketAddr, listen: ListenOptions, options: UpstreamOptions) -> Proxy {
    let url = format!("http://{upstream}").parse().unwrap();
    proxy_to(Upstream::new(&url, options).unwrap(), listen).await
}

pub(crate) async fn proxy_to(upstream: Upstream, listen: ListenOptions) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let task = tokio::spawn(serve(listener, None, listen, Glue(upstream), shutdown.clone()));
    Proxy { addr, shutdown, task }
}

/// The upstream, with what a failure means in a field that the client can see.
#[derive(Clone)]
pub(crate) struct Glue(pub(crate) Upstream);

impl tower_service::Service<Request<Body>> for Glue {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.0.clone();
        Box::pin(async move {
            let mut response = upstream.send(request).await;
            let meaning = response.extensions().get::<Failure>().map(|failure| match failure {
                Failure::NothingSent { .. } => "nothing-sent",
                Failure::Doubt { .. } => "doubt",
            });
            if let Some(meaning) = meaning {
                response.headers_mut().insert("x-failure", HeaderValue::from_static(meaning));
            }
            Ok(response)
        })
    }
}

/// Short times, for those who wait for them to pass.
pub(crate) fn impatient() -> ListenOptions {
    let short = Duration::from_millis(150);
    ListenOptions {
        head_time: short,
        body_time: short,
        write_time: short,
        idle_time: short,
        ..ListenOptions::default()
    }
}

/// A message as it came over the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// The first line and the fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The trailer lines.
    pub(crate) trailers: String,
}

impl Message {
    pub(crate) fn first_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.first_line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
    }

    /// All values of a field, in order.
    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields(name).first().copied()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads messages from a stream, keeping what comes after them.
pub(crate) struct Wire<T> {
    pub(crate) stream: T,
    buffer: Vec<u8>,
}

impl Wire<TcpStream> {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Wire::new(TcpStream::connect(addr).await.unwrap())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    pub(crate) fn new(stream: T) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// False at the end.
    async fn more(&mut self) -> bool {
        let read = timeout(SOON, self.stream.read_buf(&mut self.buffer)).await.expect("bytes come, or the end does");
        matches!(read, Ok(count) if count > 0)
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.more().await {
                return None;
            }
        }
        Some(self.buffer.drain(..count).collect())
    }

    /// The next message up to the end of its head.
    pub(crate) async fn head(&mut self) -> Option<Message> {
        let mut head = String::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(Message { head, ..Message::default() });
            }
            head.push_str(&line);
            head.push('\n');
        }
    }

    /// The next whole message; none if the stream ends before.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        let message = self.head().await?;
        self.rest_of_message(message).await
    }

    /// The text of the body behind a head.
    pub(crate) async fn body_of(&mut self, head: &Message) -> String {
        self.rest_of_message(head.clone()).await.expect("a whole body").text()
    }

    async fn rest_of_message(&mut self, mut message: Message) -> Option<Message> {
        if message.fields("transfer-encoding").contains(&"chunked") {
            loop {
                let size = self.line().await?;
                let size = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
                if size == 0 {
                    break;
                }
                message.body.extend(self.exactly(size).await?);
                assert_eq!(self.line().await?, "");
            }
            loop {
                let line = self.line().await?;
                if line.is_empty() {
                    break;
                }
                message.trailers.push_str(&line);
                message.trailers.push('\n');
            }
        } else if let Some(length) = message.field("content-length") {
            message.body = self.exactly(length.parse().unwrap()).await?;
        }
        Some(message)
    }

    /// The next answer, which must come.
    pub(crate) async fn answer(&mut self) -> Message {
        self.message().await.expect("an answer")
    }

    /// The next bytes, so many.
    pub(crate) async fn rest_of(&mut self, count: usize) -> Vec<u8> {
        self.exactly(count).await.expect("as many bytes")
    }

    /// All that comes before the end.
    pub(crate) async fn until_closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// True if the other side closes without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    /// True if another request gets its own answer.
    pub(crate) async fn is_in_step(&mut self) -> bool {
        self.send("GET /in-step HTTP/1.1\r\nHost: a\r\n\r\n").await;
        self.answer().await.text() == "GET /in-step"
    }
}

/// An upstream that writes down every complete request and answers with its method and target.
pub(crate) struct Ledger {
    pub(crate) addr: SocketAddr,
    seen: Arc<Mutex<Vec<Message>>>,
    connections: Arc<Mutex<usize>>,
}

impl Ledger {
    pub(crate) async fn start() -> Self {
        Self::answering(|request| {
            let line = request.first_line();
            let text = line.rsplit_once(' ').map_or(line, |(text, _)| text).to_owned();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
        })
        .await
    }

    /// With an answer of your own to each request.
    pub(crate) async fn answering(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (seen_inside, connections_inside) = (Arc::clone(&seen), Arc::clone(&connections));
        let answer = Arc::new(answer);
        let addr = scripted(move |mut wire| {
            let (seen, answer) = (Arc::clone(&seen_inside), Arc::clone(&answer));
            *connections_inside.lock().unwrap() += 1;
            async move {
                while let Some(request) = wire.message().await {
                    let bytes = answer(&request);
                    seen.lock().unwrap().push(request);
                    if wire.stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        Self { addr, seen, connections }
    }

    pub(crate) fn seen(&self) -> Vec<Message> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// The one request that was seen.
    pub(crate) fn only(&self) -> Message {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "one request was expected: {seen:?}");
        seen.into_iter().next().unwrap()
    }
}

/// An upstream that does with each connection what the script says.
pub(crate) async fn scripted<F, R>(script: F) -> SocketAddr
where
    F: Fn(Wire<TcpStream>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(script(Wire::new(stream)));
        }
    });
    addr
}

/// Resets the connection instead of closing it.
pub(crate) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

/// The last part of a problem's type.
pub(crate) fn code(answer: &Message) -> String {
    assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{answer:?}");
    let text = answer.text();
    let (_, rest) = text.split_once("urn:hapax:problem:").expect("a problem");
    rest.split('"').next().unwrap().to_owned()
}

/// An upstream whose answers do not end before their connection does, and a permit for each that has.
pub(crate) async fn endless() -> (SocketAddr, Arc<Semaphore>) {
    let ended = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&ended);
    let upstream = scripted(move |mut wire| {
        let end = Arc::clone(&end);
        async move {
            wire.message().await;
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
            let block = vec![0; 65_536];
            while wire.stream.write_all(&block).await.is_ok() {}
            end.add_permits(1);
        }
    })
    .await;
    (upstream, ended)
}
