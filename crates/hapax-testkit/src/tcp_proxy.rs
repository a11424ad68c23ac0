//! A TCP proxy that breaks things when told to.
//!
//! It stands between a client and a server on the loopback interface, in a thread of its own, so that tests with any
//! runtime or none can use it, and switches faults on and off while connections are open. A call that returned is in
//! force: no byte that the client sends afterwards escapes it.
//!
//! One rule keeps it honest: a connection that lost bytes is never continued. TCP delivers in order or not at all, so
//! such a connection is cut as soon as the fault that swallowed them ends.
//!
//! It knows nothing of the protocol it carries.

mod faults;
mod pump;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU64;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::port;
use faults::{Faults, LoseReply};
use pump::{Link, Shared};

/// A running proxy. Dropping it cuts its connections and closes its port.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What the proxy has seen since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Bytes from clients that were forwarded to the server.
    pub client_bytes: u64,
    /// Bytes from the server that were forwarded to clients.
    pub server_bytes: u64,
    /// Replies that [`TcpProxy::lose_next_reply`] has lost.
    pub replies_lost: u64,
}

/// What only the thread of the proxy can do. It answers when it is done.
#[derive(Debug)]
enum Command {
    Refuse(bool, std_mpsc::Sender<()>),
    Cut(std_mpsc::Sender<()>),
}

impl TcpProxy {
    /// Starts a proxy in front of the server at this address. The server need not be there yet.
    pub fn in_front_of(server: SocketAddr) -> TcpProxy {
        let listener = port::listener();
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let (commands, received) = mpsc::unbounded_channel();
        let acceptor = Acceptor { address, server, shared: Arc::clone(&shared) };
        let thread = std::thread::spawn(move || acceptor.run(listener, received));
        TcpProxy { address, shared, commands: Some(commands), thread: Some(thread) }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Forwards exactly `bytes` further bytes from clients to the server, counted over all connections, then cuts the
    /// connection that carried the last of them. Zero cuts before the next byte. Happens once.
    pub fn cut_after_client_bytes(&self, bytes: u64) {
        self.shared.change(|faults| faults.to_server_left = Some(bytes));
    }

    /// The same for bytes from the server to clients.
    pub fn cut_after_server_bytes(&self, bytes: u64) {
        self.shared.change(|faults| faults.to_client_left = Some(bytes));
    }

    /// Cuts every open connection. New ones are accepted.
    pub fn cut_now(&self) {
        self.command(Command::Cut);
    }

    /// Refuses new connections: the port is closed. Open ones live on.
    pub fn refuse(&self, on: bool) {
        self.command(|done| Command::Refuse(on, done));
    }

    /// Holds back every chunk this long, in each direction.
    pub fn delay(&self, per_chunk: Duration) {
        self.shared.change(|faults| faults.delay = per_chunk);
    }

    /// Keeps connections and accepts new ones, but swallows all bytes in both directions.
    pub fn black_hole(&self, on: bool) {
        self.shared.change(|faults| faults.black_hole = on);
    }

    /// Lets this many bytes pass per second, connection and direction.
    ///
    /// # Panics
    ///
    /// When that is zero: use [`black_hole`](Self::black_hole).
    pub fn throttle(&self, bytes_per_s: u64) {
        let rate = NonZeroU64::new(bytes_per_s).expect("a rate above zero");
        self.shared.change(|faults| faults.bytes_per_s = Some(rate));
    }

    /// Forwards what clients send, but swallows what the server answers. A test can then see for itself that the server
    /// did its work, and call [`cut_now`](Self::cut_now).
    pub fn hold_replies(&self, on: bool) {
        self.shared.change(|faults| faults.hold_replies = on);
    }

    /// Models "done, but the reply was lost": lets the next request of some client through, waits for the server's answer,
    /// discards it and cuts that connection. Happens once; [`Counts::replies_lost`] tells when.
    ///
    /// The answer counts as complete when the server pauses. For one that comes in parts, before the work is
    /// committed, use [`hold_replies`](Self::hold_replies).
    pub fn lose_next_reply(&self) {
        self.shared.change(|faults| faults.lose_reply = LoseReply::Armed);
    }

    /// Ends all faults. Connections that lost bytes are cut.
    pub fn heal(&self) {
        self.refuse(false);
        self.shared.change(|faults| *faults = Faults { cuts: faults.cuts, ..Faults::default() });
    }

    fn command(&self, command: impl FnOnce(std_mpsc::Sender<()>) -> Command) {
        let (done, wait) = std_mpsc::channel();
        let commands = self.commands.as_ref().expect("they last until the drop");
        commands.send(command(done)).expect("the thread of the proxy is running");
        wait.recv().expect("the thread of the proxy is running");
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        // The thread ends when it can get no more commands.
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; ours would hide the test's own.
            let _ = thread.join();
        }
    }
}

/// The thread that accepts connections.
struct Acceptor {
    address: SocketAddr,
    server: SocketAddr,
    shared: Arc<Shared>,
}

impl Acceptor {
    fn run(self, listener: TcpListener, commands: mpsc::UnboundedReceiver<Command>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
        // When this returns, the runtime is dropped, and with it every connection.
        runtime.block_on(self.accept_until_dropped(listener, commands));
    }

    async fn accept_until_dropped(&self, first: TcpListener, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut port = Some(Port::new(first));
        loop {
            tokio::select! {
                // Connections that are waiting were made before the command was given.
                biased;
                accepted = accept(port.as_ref()) => self.carry(accepted),
                command = commands.recv() => match command {
                    Some(Command::Refuse(on, done)) => {
                        self.drain(port.as_ref());
                        port = if on { None } else { port.or_else(|| Some(Port::new(bind(self.address)))) };
                        let _ = done.send(());
                    }
                    Some(Command::Cut(done)) => {
                        self.drain(port.as_ref());
                        self.shared.change(|faults| faults.cuts += 1);
                        let _ = done.send(());
                    }
                    None => return,
                },
            }
        }
    }

    /// Takes over what the kernel has accepted already: for the client these connections are open.
    fn drain(&self, port: Option<&Port>) {
        while let Some(Ok((client, _))) = port.map(|port| port.plain.accept()) {
            client.set_nonblocking(true).expect("a socket can be switched");
            self.carry(tokio::net::TcpStream::from_std(client).expect("inside the runtime"));
        }
    }

    fn carry(&self, client: tokio::net::TcpStream) {
        let link = Link::new(Arc::clone(&self.shared));
        tokio::spawn(link.carry(client, self.server));
    }
}

/// The open port, twice: to wait for connections, and to ask whether one is there.
struct Port {
    waiting: tokio::net::TcpListener,
    plain: TcpListener,
}

impl Port {
    fn new(listener: TcpListener) -> Port {
        listener.set_nonblocking(true).expect("a socket can be switched");
        let plain = listener.try_clone().expect("a socket can be shared");
        Port { waiting: tokio::net::TcpListener::from_std(listener).expect("inside the runtime"), plain }
    }
}

/// The next connection; never ends where the port is closed.
async fn accept(port: Option<&Port>) -> tokio::net::TcpStream {
    loop {
        match port {
            None => std::future::pending().await,
            Some(port) => {
                // An error here belongs to one connection that went away before it was accepted.
                if let Ok((client, _)) = port.waiting.accept().await {
                    return client;
                }
            }
        }
    }
}

fn bind(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"))
}
