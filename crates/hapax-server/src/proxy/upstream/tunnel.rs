//! A WebSocket: after both sides have left HTTP, bytes are copied in both directions until one side ends.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use super::exchange::Connection;
use crate::proxy::listen::Lodging;

/// Begins when the client has been told; nothing is copied before. Ends with the listener, whose place it keeps until then.
pub(super) async fn run(client: OnUpgrade, connection: Box<Connection>, lodging: Lodging) {
    tokio::select! {
        () = lodging.ends() => {}
        () = copy(client, connection) => {}
    }
}

async fn copy(client: OnUpgrade, connection: Box<Connection>) {
    let Ok(client) = client.await else { return };
    let Some((mut upstream, early)) = connection.leave_http().await else { return };
    let mut client = TokioIo::new(client);
    if client.write_all(&early).await.is_ok() {
        // However it ends, it has ended.
        let _ = copy_bidirectional(&mut client, &mut upstream).await;
    }
}
