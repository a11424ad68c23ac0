//! A stand-in for an authentication endpoint or a server of key sets: it says what it is told to, and keeps a ledger.
//!
//! It writes raw bytes, so that it can also be wrong. It understands GETs without a body and nothing else.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// What to do with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A whole answer: status, header lines, body. The connection stays.
    Answer(u16, Vec<(&'static str, Vec<u8>)>, Vec<u8>),
    /// These bytes, and then the end of the connection.
    Cut(&'static str),
    /// These bytes, and then nothing, for ever.
    Hang(&'static str),
    /// The answer, when somebody adds a permit.
    When(Arc<Semaphore>, Box<Reply>),
    /// The answer to the first request of a connection; the end of the connection when the next one comes.
    Once(Box<Reply>),
    /// The answer, and then the end of the connection without a word about it.
    AndClose(Box<Reply>),
}

/// An answer without a body.
pub(crate) fn answer(status: u16, headers: &[(&'static str, &str)]) -> Reply {
    Reply::Answer(status, headers.iter().map(|(name, value)| (*name, value.as_bytes().to_vec())).collect(), Vec::new())
}

#[derive(Default)]
struct Ledger {
    heads: Vec<String>,
    connections: usize,
}

/// A running stand-in; it ends with the runtime of its test.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl StandIn {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::start_with(reply, None).await
    }

    pub(crate) async fn start_with(reply: Reply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reply, ledger) = (Arc::new(Mutex::new(reply)), Arc::<Mutex<Ledger>>::default());
        let (replies, entries) = (reply.clone(), ledger.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (replies, entries, tls) = (replies.clone(), entries.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(socket, &replies, &entries).await,
                        Some(tls) => match tls.accept(socket).await {
                            Ok(socket) => serve(socket, &replies, &entries).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, reply, ledger }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn says(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// The heads of all requests so far, in lower case except for their values.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.ledger.lock().unwrap().heads.clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.ledger.lock().unwrap().heads.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.ledger.lock().unwrap().connections
    }
}

async fn serve(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    reply: &Mutex<Reply>,
    ledger: &Mutex<Ledger>,
) -> Option<()> {
    ledger.lock().unwrap().connections += 1;
    for nth in 0.. {
        let head = head(&mut socket).await?;
        ledger.lock().unwrap().heads.push(head);
        let mut reply = reply.lock().unwrap().clone();
        let mut close = false;
        loop {
            match reply {
                Reply::When(permits, then) => {
                    permits.acquire().await.unwrap().forget();
                    reply = *then;
                }
                Reply::Once(_) if nth > 0 => return None,
                Reply::Once(then) => reply = *then,
                Reply::AndClose(then) => {
                    close = true;
                    reply = *then;
                }
                Reply::Hang(bytes) => {
                    socket.write_all(bytes.as_bytes()).await.ok()?;
                    std::future::pending::<()>().await;
                }
                Reply::Cut(bytes) => {
                    socket.write_all(bytes.as_bytes()).await.ok()?;
                    return None;
                }
                Reply::Answer(status, headers, body) => {
                    socket.write_all(&bytes_of(status, &headers, &body)).await.ok()?;
                    break;
                }
            }
        }
        if close {
            return None;
        }
    }
    None
}

async fn head(socket: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(socket.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn bytes_of(status: u16, headers: &[(&str, Vec<u8>)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers {
        bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}
