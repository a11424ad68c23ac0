//! Which routes a path may lead to that is spelled otherwise than their patterns: in another case, or with a format.
//!
//! Several frameworks take `/Pay` for `/pay`, or `/pay.json` for `/pay` in a format. A spelling adds protection and never takes
//! it away: what applies is as strict as each of these routes (`strictest`). Left to `path`: readings of escapes, dots and slashes.

use std::sync::Arc;

use http::Method;

use crate::http::path;
use crate::http::route::{Route, Routes, Rule};

impl Routes {
    /// Whether a plain path may be another spelling of one that a pattern describes.
    pub(super) fn has_other_spellings(&self, path: &str) -> bool {
        !self.rules.is_empty() && (self.counts_case(path) || path::without_format(path).is_some())
    }

    /// Whether a pattern could match a path in another case only.
    fn counts_case(&self, path: &str) -> bool {
        self.has_capitals || path.bytes().any(|byte| byte.is_ascii_uppercase())
    }

    /// Every route that the path may lead to: as it is, in any case, and without a format at its end. Where a route names the
    /// path with its format, letter by letter, that is no format.
    pub(super) fn all_of<'a>(&'a self, method: &'a Method, path: &'a str) -> impl Iterator<Item = &'a Arc<Route>> {
        let is_named = || self.rule(method, path).is_some_and(|rule| rule.pattern.is_literal());
        let short = path::without_format(path).filter(|_| !is_named());
        [Some(path), short].into_iter().flatten().flat_map(move |path| {
            let in_any_case = self.counts_case(path).then(|| self.in_any_case(method, path));
            self.of(method, path).into_iter().chain(in_any_case.into_iter().flatten())
        })
    }

    /// The most specific routes that match the path in any case.
    fn in_any_case<'a>(&'a self, method: &'a Method, path: &'a str) -> impl Iterator<Item = &'a Arc<Route>> {
        let matches = |rule: &&Rule| rule.methods.contains(method) && rule.pattern.matches_in_any_case(path);
        let most = self.rules.iter().find(matches).map(|rule| rule.pattern.specificity());
        let matching = self.rules.iter().filter(move |rule| matches(rule));
        matching.take_while(move |rule| Some(rule.pattern.specificity()) == most).map(|rule| &rule.route)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;
    use crate::http::pattern::Pattern;

    fn is_required(routes: &Routes, method: &Method, path: &str) -> Option<bool> {
        let route = routes.find(method, path, &HeaderMap::new())?;
        Some(route.protected && route.required)
    }

    #[test]
    fn a_spelling_adds_protection_and_never_takes_it_away() {
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        let routes = Routes::new(Route::unprotected())
            .with(&[Method::POST], pattern("/Pay"), Route::new())
            .with(&[Method::POST], pattern("/hooks"), Route::new())
            .with(&[Method::POST], pattern("/hooks.json"), Route::unprotected());
        for path in ["/pay", "/PAY", "/Pay", "/pay.json", "/hooks", "/Hooks", "/hooks.xml", "/HOOKS.JSON"] {
            assert_eq!(is_required(&routes, &Method::POST, path), Some(true), "{path}");
        }
        for path in ["/hooks.json", "/paid", "/hooks.json.x", "/x.json"] {
            assert_eq!(is_required(&routes, &Method::POST, path), Some(false), "{path}");
        }
        let strict = Routes::new(Route::new()).with(&[Method::POST], pattern("/open"), Route::unprotected());
        assert_eq!(is_required(&strict, &Method::POST, "/open"), Some(false));
        for path in ["/OPEN", "/open.json", "/open.", "/%6Fpen"] {
            assert_eq!(is_required(&strict, &Method::POST, path), Some(true), "{path}");
        }
    }

    #[test]
    fn an_override_or_another_target_adds_protection_and_never_takes_it_away() {
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        let find = |routes: &Routes, method: &Method, path: &str, field: (&str, &str)| {
            let field = (field.0.parse::<HeaderName>().unwrap(), field.1.parse().unwrap());
            routes.find(method, path, &HeaderMap::from_iter([field])).is_some_and(|route| route.protected)
        };
        for asked in ["PUT", "DELETE", "GET", "FOO"] {
            assert!(find(&Routes::default(), &Method::POST, "/x", ("x-http-method-override", asked)), "{asked}");
        }
        let one = Routes::new(Route::unprotected()).with(&[Method::PUT], pattern("/pay"), Route::new());
        assert!(find(&one, &Method::POST, "/pay", ("x-http-method", "PUT")));
        assert!(!find(&one, &Method::POST, "/pay", ("x-http-method", "DELETE")));
        assert!(find(&one, &Method::PUT, "/open", ("x-original-url", "/PAY?x")));
        assert!(find(&one, &Method::PUT, "/pay", ("x-original-url", "/open")));
        assert!(!find(&one, &Method::PUT, "/open", ("x-rewrite-url", "/opened")));
    }
}
