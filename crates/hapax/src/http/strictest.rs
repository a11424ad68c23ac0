//! What applies to a request that may be on several routes: a route that is as strict as each of them.
//!
//! Whoever chooses one of the readings of a path must not thereby choose the laxer rules. Left to others: the readings
//! (`path`), and which routes they lead to (`route`). Only requests with an ambiguous path or several overrides come here.

use std::sync::Arc;

use crate::http::key::KeyRules;
use crate::http::route::{Mode, RequestAge, Route};

/// What applies where several routes may be meant, the most specific first. `resolved` is the one that all spellings of the
/// path meet at: keys are where the plain spelling has them, whatever else applies, so that they stay there when a route
/// begins to be enforced.
pub(crate) fn of(routes: &[&Arc<Route>], resolved: Option<&Arc<Route>>) -> Option<Arc<Route>> {
    // What is not protected, or only observed, refuses nothing: what refuses is as strict in every respect.
    let most = routes.iter().map(|route| strictness(route)).max()?;
    let mut strictest = routes.iter().filter(|route| strictness(route) == most);
    let first = strictest.next()?;
    let merged = strictest.fold(None, |merged: Option<Route>, other| {
        Some(merged.map_or_else(|| stricter(first, other), |merged| stricter(&merged, other)))
    });
    let key_per = resolved.or(routes.first().copied())?.key_per;
    match merged {
        None if first.key_per == key_per => Some(Arc::clone(first)),
        None => Some(Arc::new(Route { key_per, ..Route::clone(first) })),
        Some(merged) => Some(Arc::new(Route { key_per, ..merged })),
    }
}

fn strictness(route: &Route) -> (bool, Mode) {
    (route.protected, route.mode)
}

/// The first one, with the stricter value of every field that has an order.
fn stricter(route: &Route, other: &Route) -> Route {
    Route {
        required: route.required || other.required,
        policy: route.policy.stricter(other.policy),
        on_server_error: route.on_server_error.max(other.on_server_error),
        on_gateway_error: route.on_gateway_error.max(other.on_gateway_error),
        on_panic: route.on_panic.max(other.on_panic),
        key_rules: stricter_keys(route.key_rules, other.key_rules),
        recipe: route.recipe.stricter(&other.recipe),
        request_bytes_max: route.request_bytes_max.min(other.request_bytes_max),
        keep_cookies: route.keep_cookies && other.keep_cookies,
        not_stored: route.not_stored.iter().filter(|status| other.not_stored.contains(status)).copied().collect(),
        not_stored_retention: longest(route.not_stored_retention, other.not_stored_retention),
        request_age: stricter_age(route.request_age.as_ref(), other.request_age.as_ref()),
        replay_check: route.replay_check || other.replay_check,
        new_keys_per_second: least(route.new_keys_per_second, other.new_keys_per_second),
        lookups_per_second: least(route.lookups_per_second, other.lookups_per_second),
        ..route.clone()
    }
}

fn stricter_keys(rules: KeyRules, other: KeyRules) -> KeyRules {
    KeyRules {
        syntax: rules.syntax.max(other.syntax),
        format: rules.format.max(other.format),
        length_min: rules.length_min.max(other.length_min),
        age_ms_max: least(rules.age_ms_max, other.age_ms_max),
    }
}

/// Where they name different fields, the first one's with the shorter age: only one can be looked at.
fn stricter_age(age: Option<&RequestAge>, other: Option<&RequestAge>) -> Option<RequestAge> {
    let age_max = least(age.map(|age| age.age_max), other.map(|age| age.age_max))?;
    let header = age.or(other)?.header.clone();
    Some(RequestAge { header, age_max })
}

/// The longer of two times, of which an absent one is the longest.
fn longest<T: Ord>(time: Option<T>, other: Option<T>) -> Option<T> {
    Some(time?.max(other?))
}

/// The smaller of two limits, either of which may be absent.
fn least<T: Ord>(limit: Option<T>, other: Option<T>) -> Option<T> {
    match (limit, other) {
        (Some(limit), Some(other)) => Some(limit.min(other)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    use hapax_core::fingerprint::Recipe;
    use hapax_core::record::{OnLapse, Policy};
    use http::StatusCode;

    use crate::http::key::{KeyFormat, KeySyntax};
    use crate::http::route::{KeyPer, Then};

    fn age(header: &'static str, seconds: u64) -> RequestAge {
        RequestAge { header: header.parse().unwrap(), age_max: Duration::from_secs(seconds) }
    }

    /// Each is stricter than the other in some respects.
    fn two() -> (Route, Route) {
        let strict = Route {
            required: true,
            policy: Policy { on_lapse: OnLapse::Unknown, attempts_max: Some(3), ..Policy::default() },
            on_server_error: Then::Unknown,
            key_rules: KeyRules { format: KeyFormat::UuidV7, age_ms_max: Some(10), ..KeyRules::default() },
            recipe: Recipe::new().with_headers(["x-a"]).unwrap(),
            request_bytes_max: 10,
            request_age: Some(age("x-at", 10)),
            replay_check: true,
            new_keys_per_second: Some(1),
            keep_cookies: false,
            ..Route::new()
        };
        let lax = Route {
            required: false,
            policy: Policy { on_lapse: OnLapse::Rerun, retention_ms: u64::MAX, ..Policy::default() },
            on_gateway_error: Then::Completed,
            on_panic: Then::Ready,
            key_rules: KeyRules { syntax: KeySyntax::Strict, length_min: 20, ..KeyRules::default() },
            recipe: Recipe::new().without_body().unwrap().with_headers(["x-b"]).unwrap(),
            request_bytes_max: 20,
            request_age: Some(age("x-at", 5)),
            new_keys_per_second: Some(2),
            lookups_per_second: Some(7),
            keep_cookies: true,
            not_stored: vec![StatusCode::UNAUTHORIZED, StatusCode::CONFLICT],
            ..Route::new()
        };
        (strict, lax)
    }

    #[test]
    fn where_keys_are_does_not_hang_on_what_is_enforced() {
        let default = Arc::new(Route::new());
        for (mode, protected) in [(Mode::Observe, true), (Mode::Enforce, true), (Mode::Enforce, false)] {
            let named = Arc::new(Route { mode, protected, key_per: KeyPer::Route, ..Route::new() });
            let found = of(&[&named, &default], Some(&named)).unwrap();
            assert_eq!(found.key_per, KeyPer::Route, "{mode:?} {protected}");
            let found = of(&[&named, &default], Some(&default)).unwrap();
            assert_eq!(found.key_per, KeyPer::Caller, "{mode:?} {protected}");
        }
    }

    fn assert_strictest_of_two(merged: &Route) {
        assert!(merged.required && merged.replay_check && !merged.keep_cookies);
        assert_eq!((merged.policy.on_lapse, merged.policy.attempts_max), (OnLapse::Unknown, Some(3)));
        assert_eq!(merged.policy.retention_ms, u64::MAX);
        let then = (merged.on_server_error, merged.on_gateway_error, merged.on_panic);
        assert_eq!(then, (Then::Unknown, Then::Unknown, Then::Unknown));
        let (syntax, format) = (KeySyntax::Strict, KeyFormat::UuidV7);
        assert_eq!(merged.key_rules, KeyRules { syntax, format, length_min: 20, age_ms_max: Some(10) });
        assert_eq!(merged.recipe, Recipe::new().with_headers(["x-a", "x-b"]).unwrap());
        assert_eq!((merged.request_bytes_max, merged.request_age.clone()), (10, Some(age("x-at", 5))));
        assert_eq!((merged.new_keys_per_second, merged.lookups_per_second), (Some(1), Some(7)));
        assert_eq!(merged.not_stored, [StatusCode::UNAUTHORIZED]);
    }

    #[test]
    fn what_applies_is_as_strict_as_each_route_in_either_order() {
        let (strict, lax) = two();
        assert_strictest_of_two(&stricter(&strict, &lax));
        assert_strictest_of_two(&stricter(&lax, &strict));
        let merged = stricter(&strict, &lax);
        assert_eq!(stricter(&merged, &lax), merged, "nothing is left to add");
        assert_eq!(stricter(&merged, &strict), merged, "nothing is left to add");
    }

    #[test]
    fn what_refuses_nothing_has_no_say() {
        let (strict, lax) = two();
        let lax = Arc::new(lax);
        let open = Arc::new(Route { protected: false, ..strict.clone() });
        let observed = Arc::new(Route { mode: Mode::Observe, ..strict });
        let applies = of(&[&open, &observed, &lax], Some(&open)).unwrap();
        assert!(Arc::ptr_eq(&applies, &lax));
        assert!(Arc::ptr_eq(&of(&[&open, &observed], None).unwrap(), &observed));
        assert!(of(&[], None).is_none());
    }

    #[test]
    fn keys_are_where_the_plain_spelling_has_them() {
        let per_route = Arc::new(Route::new().with_key_per(KeyPer::Route));
        let per_caller = Arc::new(Route::new());
        for (resolved, key_per) in [(&per_route, KeyPer::Route), (&per_caller, KeyPer::Caller)] {
            let applies = of(&[&per_caller, &per_route], Some(resolved)).unwrap();
            assert_eq!(applies.key_per, key_per);
        }
    }
}
