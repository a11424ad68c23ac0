//! A small payments service: `cargo run -p payments`, then
//!
//! ```text
//! curl -i localhost:3000/payments -H 'Authorization: Bearer alice-secret' -H 'Idempotency-Key: 8e03978e-40d5' \
//!      -H 'Content-Type: application/json' -d '{"amount": 1200}'
//! ```
//!
//! twice: the second answer is the first one, replayed.

use std::process::ExitCode;

use hapax_sqlite::Sqlite;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let store = Sqlite::open("payments.db")?;
    let (app, idempotency) = payments::app(store);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Beside the requests: crashes are noticed, and what has expired is deleted.
    let background = idempotency.spawn_background();
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // What runs is finished and recorded before the process ends.
    idempotency.drain().await;
    background.stop().await;
    Ok(())
}
