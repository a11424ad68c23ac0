//! What an answer of the service behind means for the key.
//!
//! A complete answer below 500 is final, except those that say "not now". An error of the service itself, which is 500 or
//! 503, is what the route says; any other one above may be of something in between, and is unknown by default, because that
//! may have lost a success.

use std::time::Duration;

use hapax_core::limits::ERROR_CODE_CHARS_MAX;
use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};

use crate::http::route::{Route, Then};

/// Put into the extensions of a response by a service that knows better than its status: a proxy that never reached
/// anybody, or lost the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happened {
    /// Provably nothing was done.
    No {
        /// Why: a word.
        why: &'static str,
    },
    /// Nobody knows.
    Unknown {
        /// Why: a word.
        why: &'static str,
    },
}

/// Longer pauses that an answer asks for are cut: a key must not be held back for days by a header field.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What becomes of the key, with a word for why.
pub(crate) fn of(status: StatusCode, happened: Option<Happened>, route: &Route) -> (Then, String) {
    match happened {
        Some(Happened::No { why }) => return (Then::Ready, short(why)),
        Some(Happened::Unknown { why }) => return (Then::Unknown, short(why)),
        None => {}
    }
    let then = match status {
        status if route.not_stored.contains(&status) => Then::Ready,
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::SERVICE_UNAVAILABLE => route.on_server_error,
        status if status.as_u16() >= 500 => route.on_gateway_error,
        _ => Then::Completed,
    };
    (then, format!("status-{}", status.as_u16()))
}

/// How long the key is kept free for a next attempt, where the route says that an answer of that status is soon forgotten.
/// `None`: for the retention.
pub(crate) fn keep_ms(status: StatusCode, happened: Option<Happened>, route: &Route) -> Option<u64> {
    let is_turned_away = turns_away(status, happened, route);
    route.not_stored_retention.filter(|_| is_turned_away).map(crate::http::route::millis)
}

/// Whether the service turned the caller away, and nothing of that is kept.
pub(crate) fn turns_away(status: StatusCode, happened: Option<Happened>, route: &Route) -> bool {
    happened.is_none() && route.not_stored.contains(&status)
}

/// As much of a cause as a record keeps.
fn short(why: &str) -> String {
    why.chars().take(ERROR_CODE_CHARS_MAX).collect()
}

/// When the next attempt may start: what the answer asks for, in seconds, and otherwise at once.
pub(crate) fn retry_in_ms(headers: &HeaderMap) -> u64 {
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let pause = asked.map_or(Duration::ZERO, Duration::from_secs).min(RETRY_AFTER_MAX);
    crate::http::route::millis(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_means_what_the_contract_says() {
        let route = Route::new();
        let then = |status: u16| of(StatusCode::from_u16(status).unwrap(), None, &route).0;
        for status in [200, 201, 204, 301, 400, 402, 403, 404, 409, 422] {
            assert_eq!(then(status), Then::Completed, "{status}");
        }
        for status in [401, 408, 425, 429, 500, 503] {
            assert_eq!(then(status), Then::Ready, "{status}");
        }
        for status in [501, 502, 504, 505, 507, 520, 524, 599, 600, 999] {
            assert_eq!(then(status), Then::Unknown, "{status}");
        }
    }

    #[test]
    fn only_what_a_status_that_is_not_stored_left_behind_is_soon_forgotten() {
        let route = Route::new();
        let keep = |status: u16, happened| keep_ms(StatusCode::from_u16(status).unwrap(), happened, &route);
        for status in [401, 408, 425, 429] {
            assert_eq!(keep(status, None), Some(600_000), "{status}");
        }
        for status in [200, 403, 500, 503] {
            assert_eq!(keep(status, None), None, "{status}");
        }
        assert_eq!(keep(401, Some(Happened::No { why: "refused" })), None);
        let route = Route { not_stored_retention: None, ..Route::new() };
        assert_eq!(keep_ms(StatusCode::UNAUTHORIZED, None, &route), None);
    }

    #[test]
    fn who_knows_better_is_believed() {
        let route = Route::new();
        let (then, why) = of(StatusCode::BAD_GATEWAY, Some(Happened::No { why: "refused" }), &route);
        assert_eq!((then, why.as_str()), (Then::Ready, "refused"));
        assert_eq!(of(StatusCode::OK, Some(Happened::Unknown { why: "reset" }), &route).0, Then::Unknown);
    }

    #[test]
    fn a_pause_is_obeyed_within_reason() {
        let after = |text: &str| retry_in_ms(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(after("2"), 2_000);
        assert_eq!(after("999999999"), 3_600_000);
        assert_eq!(after("soon"), 0);
        assert_eq!(retry_in_ms(&HeaderMap::new()), 0);
    }
}
