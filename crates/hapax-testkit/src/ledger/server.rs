//! The thread that accepts connections, and what is done on each of them.

use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use socket2::SockRef;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::server::TlsStream;

use super::answer::{Step, steps};
use super::request::Received;
use super::shared::Shared;

/// How connections are treated, whatever is asked on them.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) idle_close: Option<Duration>,
    pub(super) tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("idle_close", &self.idle_close).field("tls", &self.tls.is_some()).finish()
    }
}

/// Takes a chain and a key, both in PEM.
pub(super) fn tls(certificates_pem: &str, key_pem: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(certificates_pem.as_bytes()).collect::<std::result::Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("a private key in PEM");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("certificates in PEM"), key)
        .expect("the key belongs to the certificate");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Listens at an address that was used a moment ago.
pub(super) fn bind(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"))
}

/// What only the thread can do. It answers when it is done.
#[derive(Debug)]
enum Command {
    Refuse(bool, std_mpsc::Sender<()>),
    Cut(std_mpsc::Sender<()>),
}

/// The running thread. Dropping it ends every connection.
#[derive(Debug)]
pub(super) struct Server {
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(listener: TcpListener, shared: Arc<Shared>, settings: Settings) -> Server {
        let (commands, received) = mpsc::unbounded_channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let acceptor = Acceptor { shared, settings };
            runtime.expect("a runtime can be had").block_on(acceptor.run(listener, received));
        });
        Server { commands: Some(commands), thread: Some(thread) }
    }

    pub(super) fn refuse(&self, on: bool) {
        self.command(|done| Command::Refuse(on, done));
    }

    pub(super) fn cut(&self) {
        self.command(Command::Cut);
    }

    fn command(&self, command: impl FnOnce(std_mpsc::Sender<()>) -> Command) {
        let (done, wait) = std_mpsc::channel();
        let commands = self.commands.as_ref().expect("they last until the drop");
        commands.send(command(done)).expect("the thread of the ledger is running");
        wait.recv().expect("the thread of the ledger is running");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread ends when it can get no more commands.
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; ours would hide the test's own.
            let _ = thread.join();
        }
    }
}

struct Acceptor {
    shared: Arc<Shared>,
    settings: Settings,
}

impl Acceptor {
    async fn run(self, first: TcpListener, mut commands: mpsc::UnboundedReceiver<Command>) {
        let address = first.local_addr().expect("a listener has an address");
        let mut port = Some(listen(first));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                stream = accept(port.as_ref()) => self.serve(stream, &mut connections),
                command = commands.recv() => match command {
                    Some(Command::Refuse(on, done)) => {
                        port = if on { None } else { port.or_else(|| Some(listen(bind(address)))) };
                        let _ = done.send(());
                    }
                    Some(Command::Cut(done)) => {
                        connections.shutdown().await;
                        let _ = done.send(());
                    }
                    None => return,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn serve(&self, stream: TcpStream, connections: &mut JoinSet<()>) {
        self.shared.change(|state| state.connections += 1);
        // A socket that cannot be set is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let (shared, idle_close) = (Arc::clone(&self.shared), self.settings.idle_close);
        match self.settings.tls.clone() {
            None => connections.spawn(Connection { shared, idle_close, stream: BufStream::new(stream) }.run()),
            Some(tls) => connections.spawn(async move {
                match tls.accept(stream).await {
                    Ok(stream) => Connection { shared, idle_close, stream: BufStream::new(stream) }.run().await,
                    Err(_) => shared.change(|state| state.broken += 1),
                }
            }),
        };
    }
}

fn listen(listener: TcpListener) -> tokio::net::TcpListener {
    listener.set_nonblocking(true).expect("a socket can be switched");
    tokio::net::TcpListener::from_std(listener).expect("inside the runtime")
}

/// The next connection; never ends where the port is closed.
async fn accept(port: Option<&tokio::net::TcpListener>) -> TcpStream {
    loop {
        match port {
            None => std::future::pending().await,
            Some(port) => {
                // An error here belongs to one connection that went away before it was accepted.
                if let Ok((stream, _)) = port.accept().await {
                    return stream;
                }
            }
        }
    }
}

/// A stream under which there is a TCP socket.
trait Socket: AsyncRead + AsyncWrite + Unpin {
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Socket for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

struct Connection<S> {
    shared: Arc<Shared>,
    idle_close: Option<Duration>,
    stream: BufStream<S>,
}

/// Whether the connection is kept after an answer.
#[derive(PartialEq, Eq)]
enum After {
    Keep,
    End,
    /// The socket is set to reset when it is dropped; a FIN before that would be a lie.
    Reset,
}

impl<S: Socket> Connection<S> {
    async fn run(mut self) {
        while self.begins().await {
            match Received::read(&mut self.stream).await {
                Ok(Some(request)) => match self.answer(&request).await {
                    Ok(After::Keep) if !request.wants_close() => {}
                    Ok(After::Reset) => return,
                    _ => break,
                },
                Ok(None) => break,
                Err(_) => {
                    self.shared.change(|state| state.broken += 1);
                    break;
                }
            }
        }
        // A FIN, or over TLS first a word that it is over. The other side may have gone.
        let _ = self.stream.shutdown().await;
    }

    /// True when a request begins; false when the connection was idle for too long.
    async fn begins(&mut self) -> bool {
        match self.idle_close {
            None => true,
            Some(limit) => tokio::time::timeout(limit, self.stream.fill_buf()).await.is_ok(),
        }
    }

    async fn answer(&mut self, request: &Received) -> Result<After> {
        let (entry, behaviour) = self.shared.execute(request).await;
        self.shared.released(&entry).await;
        for step in steps(&behaviour, &entry, request) {
            match step {
                Step::Send(bytes) => {
                    self.stream.write_all(&bytes).await?;
                    self.stream.flush().await?;
                }
                Step::Pause(length) => tokio::time::sleep(length).await,
                Step::Close => return Ok(After::End),
                Step::Reset => {
                    SockRef::from(self.stream.get_ref().tcp()).set_linger(Some(Duration::ZERO))?;
                    return Ok(After::Reset);
                }
                Step::Hang => {
                    self.stream.read_to_end(&mut Vec::new()).await?;
                    return Ok(After::End);
                }
            }
        }
        Ok(After::Keep)
    }
}
