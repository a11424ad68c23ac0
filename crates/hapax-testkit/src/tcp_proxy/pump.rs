//! Carries the bytes of one connection in both directions, as the faults allow.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Counts;
use super::faults::{Direction, Faults, Verdict};

/// At most this much is read at once. As large as what loopback delivers in one piece.
const CHUNK_BYTES: usize = 64 * 1024;
/// An answer is over when the server has been silent this long.
const REPLY_PAUSE: Duration = Duration::from_millis(20);
/// A throttled connection moves this often per second.
const PIECES_PER_S: u64 = 100;

/// What all connections of a proxy have in common.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Tells connections that wait for bytes to look at the faults again.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    counts: Counts,
}

impl Shared {
    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
        self.changed.send_replace(());
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

/// The connection is to end, both sides of it.
struct Cut;

/// One connection.
pub(super) struct Link {
    shared: Arc<Shared>,
    id: u64,
    /// How often all connections had been cut when this one began.
    born: u64,
    lost_bytes: AtomicBool,
}

impl Link {
    /// A connection that was just accepted.
    pub(super) fn new(shared: Arc<Shared>) -> Link {
        let mut state = shared.state();
        state.counts.connections += 1;
        state.counts.open += 1;
        let (id, born) = (state.counts.connections, state.faults.cuts);
        drop(state);
        Link { shared, id, born, lost_bytes: AtomicBool::new(false) }
    }

    /// Carries bytes until an end closes, an error or a fault ends the connection.
    pub(super) async fn carry(self, client: TcpStream, server: SocketAddr) {
        tokio::select! {
            () = self.doomed() => {}
            () = self.connect_and_pump(client, server) => {}
        }
    }

    async fn connect_and_pump(&self, mut client: TcpStream, server: SocketAddr) {
        let Ok(mut server) = TcpStream::connect(server).await else { return };
        // Chunks are to pass as they come. A socket that cannot be set is about to fail anyway.
        let _ = client.set_nodelay(true).and(server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let _ = tokio::try_join!(
            self.pump(Direction::ToServer, from_client, to_server),
            self.pump(Direction::ToClient, from_server, to_client),
        );
    }

    async fn pump(&self, direction: Direction, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Cut> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = from.read(&mut chunk).await.map_err(|_| Cut)?;
            if length == 0 {
                return self.end(direction, to).await;
            }
            match self.judge(direction, length)? {
                Verdict::Forward => self.forward(direction, &mut to, &chunk[..length]).await?,
                Verdict::ForwardThenCut(bytes) => {
                    self.forward(direction, &mut to, &chunk[..bytes]).await?;
                    return Err(Cut);
                }
                Verdict::Swallow => self.lost_bytes.store(true, Ordering::Relaxed),
                Verdict::LoseReply => {
                    while let Ok(Ok(1..)) = timeout(REPLY_PAUSE, from.read(&mut chunk)).await {}
                    self.shared.state().counts.replies_lost += 1;
                    return Err(Cut);
                }
            }
        }
    }

    fn judge(&self, direction: Direction, length: usize) -> Result<Verdict, Cut> {
        let mut state = self.shared.state();
        if self.is_doomed(&state.faults) {
            return Err(Cut);
        }
        Ok(state.faults.judge(direction, self.id, length))
    }

    /// Passes on that one side has nothing more to say, unless its words are being swallowed.
    async fn end(&self, direction: Direction, mut to: WriteHalf<'_>) -> Result<(), Cut> {
        if self.shared.state().faults.swallows(direction) {
            self.lost_bytes.store(true, Ordering::Relaxed);
            return Ok(());
        }
        to.shutdown().await.map_err(|_| Cut)
    }

    async fn forward(&self, direction: Direction, to: &mut WriteHalf<'_>, mut bytes: &[u8]) -> Result<(), Cut> {
        let Faults { delay, .. } = self.shared.state().faults;
        self.pause(delay, |faults| faults.delay == delay).await;
        while !bytes.is_empty() {
            let Faults { bytes_per_s, .. } = self.shared.state().faults;
            let (length, pause) = pace(bytes_per_s, bytes.len());
            let (piece, rest) = bytes.split_at(length);
            to.write_all(piece).await.map_err(|_| Cut)?;
            self.count(direction, length);
            self.pause(pause, |faults| faults.bytes_per_s == bytes_per_s).await;
            bytes = rest;
        }
        Ok(())
    }

    /// Lets time pass for as long as the fault that asks for it is on: healing takes effect at once.
    async fn pause(&self, length: Duration, still_on: impl Fn(&Faults) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        let mut over = pin!(sleep(length));
        while !length.is_zero() && still_on(&self.shared.state().faults) {
            tokio::select! {
                () = &mut over => return,
                _ = changes.changed() => {}
            }
        }
    }

    fn count(&self, direction: Direction, length: usize) {
        let counts = &mut self.shared.state().counts;
        match direction {
            Direction::ToServer => counts.client_bytes += length as u64,
            Direction::ToClient => counts.server_bytes += length as u64,
        }
    }

    /// Returns when the connection is to end.
    async fn doomed(&self) {
        let mut changes = self.shared.changed.subscribe();
        while !self.is_doomed(&self.shared.state().faults) {
            // The sender lives in what we share, so it cannot be gone.
            let _ = changes.changed().await;
        }
    }

    /// Cut with all others, or with bytes missing while none are swallowed any more.
    fn is_doomed(&self, faults: &Faults) -> bool {
        let swallowing = faults.black_hole || faults.hold_replies;
        faults.cuts != self.born || (self.lost_bytes.load(Ordering::Relaxed) && !swallowing)
    }
}

/// How much may be sent at once, and the pause after it.
fn pace(bytes_per_s: Option<NonZeroU64>, length: usize) -> (usize, Duration) {
    let Some(rate) = bytes_per_s else { return (length, Duration::ZERO) };
    let piece = usize::try_from(rate.get() / PIECES_PER_S).unwrap_or(usize::MAX).clamp(1, length);
    (piece, Duration::from_secs_f64(piece as f64 / rate.get() as f64))
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state().counts.open -= 1;
    }
}
