//! What routes are built of, and which one a request is on.

use super::*;
use crate::http::key::KeyFormat;

fn routes() -> Routes {
    let pattern = |text: &str| text.parse::<Pattern>().unwrap();
    Routes::new(Route::new().with_optional_key())
        .with(&[Method::POST], pattern("/open/{*rest}"), Route::unprotected())
        .with(&[Method::POST, Method::PUT], pattern("/pay"), Route::new())
}

fn is_required(routes: &Routes, method: &Method, path: &str) -> Option<bool> {
    let route = routes.find(method, path, &HeaderMap::new())?;
    Some(route.protected && route.required)
}

#[test]
fn times_that_cannot_be_are_brought_to_the_nearest_that_can() {
    let all = |time: Duration| {
        let route = Route::new().with_retention(time).with_lease(time).with_keep_expired(time).with_wait_max(time);
        let route = route.with_request_age(RequestAge { header: http::header::DATE, age_max: time });
        let policy = route.policy;
        let age = route.request_age.unwrap().age_max;
        (policy.retention_ms, policy.lease_ms, policy.keep_expired_ms, route.wait_max, age)
    };
    let most = DURATION_MS_MAX;
    assert_eq!(all(Duration::MAX), (most, most, Some(most), WAIT_LIMIT, DURATION_MAX));
    assert_eq!(all(Duration::ZERO), (1000, 1000, Some(0), Duration::ZERO, Duration::ZERO));
    let minute = Duration::from_secs(60);
    assert_eq!(all(minute), (60_000, 60_000, Some(60_000), minute, minute));
}

#[test]
fn every_field_can_be_built() {
    let route = Route::new()
        .with_attempts_max(3)
        .with_new_keys_per_second(4)
        .with_lookups_per_second(0)
        .with_replay_check(true)
        .with_mismatch_is_400(true);
    assert_eq!(route.policy.attempts_max, Some(3));
    assert_eq!((route.new_keys_per_second, route.lookups_per_second), (Some(4), Some(1)));
    assert!(route.replay_check && route.mismatch_is_400);
}

#[test]
fn post_and_patch_are_protected_and_the_rest_passes() {
    let routes = Routes::default();
    assert_eq!(is_required(&routes, &Method::POST, "/x"), Some(true));
    assert_eq!(is_required(&routes, &Method::PATCH, "/x"), Some(true));
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE] {
        assert_eq!(is_required(&routes, &method, "/x"), None);
    }
}

#[test]
fn a_route_may_protect_put_and_leave_others_alone() {
    let routes = routes();
    assert_eq!(is_required(&routes, &Method::PUT, "/pay"), Some(true));
    assert_eq!(is_required(&routes, &Method::PUT, "/other"), None);
    assert_eq!(is_required(&routes, &Method::POST, "/open/x"), Some(false));
    assert_eq!(is_required(&routes, &Method::POST, "/other"), Some(false));
}

#[test]
fn a_method_in_lower_case_is_on_the_route_of_the_usual_one() {
    let method = |name: &str| Method::from_bytes(name.as_bytes()).unwrap();
    let routes = routes().with(&[method("purge")], Pattern::root(), Route::new());
    for (name, path) in [("post", "/pay"), ("Put", "/pay"), ("PURGE", "/"), ("pUrge", "/"), ("put", "//pay")] {
        assert_eq!(is_required(&routes, &method(name), path), Some(true), "{name} {path}");
    }
    assert_eq!(is_required(&Routes::default(), &method("patch"), "/x"), Some(true));
    assert_eq!(is_required(&Routes::default(), &method("get"), "/x"), None);
    assert_eq!(is_required(&Routes::default(), &method("postal"), "/x"), None);
}

#[test]
fn overrides_that_disagree_are_on_the_strictest_route() {
    let named = [("x-http-method-override", "HEAD"), ("x-http-method", "POST")];
    let headers = named.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
    let headers = HeaderMap::from_iter(headers);
    assert!(routes().find(&Method::GET, "/pay", &headers).is_some_and(|route| route.required));
    assert!(routes().find(&Method::GET, "/pay", &HeaderMap::new()).is_none());
}

#[test]
fn a_pattern_matches_every_spelling_of_its_path() {
    let patterns = ["/%C3%A9", "/a%2Fb", "/x%2Fy/pay", "/pay/capture", "/v1/{id}/go"];
    let routes = patterns.into_iter().fold(Routes::new(Route::unprotected()), |routes, pattern| {
        routes.with(&[Method::PUT], pattern.parse().unwrap(), Route::new())
    });
    for path in [
        "/%c3%a9",
        "/a%2fb",
        "/x%2Fy/%70ay",
        "/x%2fy/pay",
        "/pay;x=1/capture",
        "/open/..;/pay/capture",
        "/pay;x/capture;y",
        "/v1/a%2fb/%67o",
        "/a%252Fb",
        "/pay%20/capture",
        "/Pay/CAPTURE.json",
        "/V1/x/go.",
    ] {
        assert_eq!(is_required(&routes, &Method::PUT, path), Some(true), "{path}");
    }
    for path in ["/%c3", "/a%2525252Fb", "/pay%21/capture", "/pay.x/capture", "/v1/go.json"] {
        assert_eq!(is_required(&routes, &Method::PUT, path), None, "{path}");
    }
}

#[test]
fn no_reading_leads_to_laxer_rules() {
    let pattern = |text: &str| text.parse::<Pattern>().unwrap();
    let uuid = KeyRules { format: KeyFormat::Uuid, ..KeyRules::default() };
    let limited = Route::new().with_new_keys_per_second(5);
    let routes = Routes::new(Route::new())
        .with(&[Method::POST], pattern("/pay"), Route::new().with_key_rules(uuid))
        .with(&[Method::POST], pattern("/open/{*rest}"), limited);
    for path in ["/open/%2e%2e/pay", "/open/..%2Fpay", "/open/..;/pay"] {
        let route = routes.find(&Method::POST, path, &HeaderMap::new()).unwrap();
        assert_eq!((route.key_rules, route.new_keys_per_second), (uuid, Some(5)), "{path}");
        assert_eq!(&*route.name, "POST /open/{*rest}", "the most specific one");
    }
    for path in ["/pay", "/pay%2F", "/pay/", "//pay"] {
        let route = routes.find(&Method::POST, path, &HeaderMap::new()).unwrap();
        assert_eq!((route.key_rules, &*route.name), (uuid, "POST /pay"), "{path}");
    }
}

#[test]
fn an_ambiguous_path_is_on_the_strictest_route() {
    let routes = routes();
    for path in ["//pay", "/open/../pay", "/%70ay", "/open/%2e%2e/pay", "/open/..%2Fpay"] {
        assert_eq!(is_required(&routes, &Method::POST, path), Some(true), "{path}");
    }
}
