//! A WebSocket: after both sides have left HTTP, bytes are copied in both directions until one side ends, or until there
//! has been none for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep};

use super::exchange::Connection;
use crate::listen::Lodging;

/// A tunnel that has been silent for so long may lose its place to somebody who wants one.
const SPARED_FOR: Duration = Duration::from_secs(2);

/// Begins when the client has been told; nothing is copied before. Ends with the listener, whose place it keeps until then.
pub(super) async fn run(client: OnUpgrade, connection: Box<Connection>, lodging: Lodging) {
    let heard = Arc::new(AtomicU64::new(0));
    tokio::select! {
        () = lodging.ends() => {}
        () = falls_silent(&heard, &lodging) => {}
        () = copy(client, connection, &heard) => {}
    }
}

async fn copy(client: OnUpgrade, connection: Box<Connection>, heard: &Arc<AtomicU64>) {
    let Ok(client) = client.await else { return };
    let Some((upstream, early)) = connection.leave_http().await else { return };
    let heard_in = |inner| Heard { inner, heard: Arc::clone(heard) };
    let mut client = heard_in(TokioIo::new(client));
    let mut upstream = Heard { inner: upstream, heard: Arc::clone(heard) };
    if client.write_all(&early).await.is_ok() {
        // However it ends, it has ended.
        let _ = copy_bidirectional(&mut client, &mut upstream).await;
    }
}

/// Waits until no byte has come from either side for too long, and says meanwhile whether the tunnel waits for one.
async fn falls_silent(heard: &AtomicU64, lodging: &Lodging) {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        sleep((lodging.idle_time.saturating_sub(since.elapsed())).min(SPARED_FOR)).await;
        let now = heard.load(Ordering::Relaxed);
        if now != before {
            (before, since) = (now, Instant::now());
            lodging.place().resume();
        } else if since.elapsed() >= lodging.idle_time {
            return;
        } else {
            lodging.place().wait_since(since);
        }
    }
}

/// One side of a tunnel; what is read from it is counted.
struct Heard<T> {
    inner: T,
    heard: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if read.is_ready() {
            this.heard.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
