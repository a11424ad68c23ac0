//! The service: who calls, what is charged, and the layer that makes a charge happen once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use hapax::Store;
use hapax::http::{Claim, IdempotencyLayer, NoScope, Route, Scope};

/// Charges that were made. A real service would call a provider with [`Claim::derive`] as its idempotency key.
#[derive(Clone, Debug, Default)]
pub struct Charges(Arc<AtomicU64>);

impl Charges {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The caller, put there by [`authenticate`].
#[derive(Clone, Debug)]
struct Customer(&'static str);

/// The service over a store, and its layer, to drain it at the end.
pub fn app<S: Store + 'static>(store: S) -> (Router, IdempotencyLayer<S>) {
    app_with(store, Charges::default())
}

/// The same with charges that somebody looks at.
pub fn app_with<S: Store + 'static>(store: S, charges: Charges) -> (Router, IdempotencyLayer<S>) {
    let idempotency = IdempotencyLayer::new(store, whose).with_default_route(Route::new());
    let app = Router::new()
        .route("/payments", post(pay))
        .with_state(charges)
        // Layers run from the last to the first: a caller is known before its key is looked up.
        .layer(idempotency.clone())
        .layer(middleware::from_fn(authenticate));
    (app, idempotency)
}

async fn pay(
    State(charges): State<Charges>,
    claim: Claim,
    Json(payment): Json<serde_json::Value>,
) -> Result<(StatusCode, Json<serde_json::Value>), StatusCode> {
    let amount = payment["amount"].as_u64().ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    // The provider is given the same key in every attempt, so that it can tell a repetition as well.
    let provider_key = claim.derive("charge");
    let number = charges.0.fetch_add(1, Ordering::SeqCst) + 1;
    let receipt = serde_json::json!({ "payment": number, "amount": amount, "provider_key": provider_key });
    Ok((StatusCode::CREATED, Json(receipt)))
}

fn whose(parts: &Parts) -> Result<Scope, NoScope> {
    let customer = parts.extensions.get::<Customer>().ok_or_else(|| NoScope::Missing("log in first".into()))?;
    Ok(Scope::new(customer.0)?)
}

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let customer = match token {
        Some("Bearer alice-secret") => Customer("alice"),
        Some("Bearer bob-secret") => Customer("bob"),
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(customer);
    Ok(next.run(request).await)
}
