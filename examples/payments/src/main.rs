//! A small payments service: `cargo run -p payments`, then
//!
//! ```text
//! curl -i localhost:3000/payments -H 'Authorization: Bearer alice-secret' -H 'Idempotency-Key: 8e03978e-40d5' \
//!      -H 'Content-Type: application/json' -d '{"amount": 1200}'
//! ```
//!
//! twice: the second answer is the first one, replayed.

use std::process::ExitCode;

use hapax::background::{self, CancellationToken};
use hapax_sqlite::{Options, Sqlite};
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
    let store = Sqlite::open(Options::new("payments.db"))?;
    let (app, idempotency) = payments::app(store);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Beside the requests: crashes are noticed, and what has expired is deleted.
    let (engine, ending) = (idempotency.engine().clone(), CancellationToken::new());
    let ended = ending.clone();
    let sweeps = tokio::spawn(async move { background::run(&engine, &ended).await });
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
    ending.cancel();
    sweeps.await?;
    Ok(())
}
