//! Who may do what: tokens, their names and their roles.
//!
//! A viewer looks, but not at bodies; an operator changes. Without any token, whoever is on this machine may look, and
//! nobody may change anything: a default that is safe where nobody thought about it. Left to others: names of the
//! listener and of pages (`guard`).

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::desk::{ACTOR, ACTOR_BYTES_MAX};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To look, but not at bodies.
    Viewer,
    /// To look and to change.
    Operator,
}

/// Whom the listener knows.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<Token>,
    read_only: bool,
}

/// A token. Only the digest of its secret is kept.
#[derive(Clone)]
struct Token {
    name: String,
    role: Role,
    digest: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}, {:?}, …)", self.name, self.role)
    }
}

/// Why something stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Other machines can reach the listener, and no token is configured.
    Everywhere,
    /// The token is absent or wrong.
    Token,
    /// Changes need a token, and none is configured.
    NoToken,
    /// The token is a viewer's.
    Role,
    /// The configuration says that nothing is changed here.
    ReadOnly,
    /// A page of somebody else asks.
    Origin,
}

impl Closed {
    pub(super) fn status(self) -> StatusCode {
        if self == Self::Token { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN }
    }

    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::Everywhere => "Other machines can reach this listener, so this needs a token. Configure one.",
            Self::Token => "The token is missing or wrong. Send Authorization: Bearer and a configured token.",
            Self::NoToken => {
                "This needs an operator's token, and none is configured. Set `admin.token_file` or `[[admin.tokens]]`, \
                 or work on the store with the command `hapax keys`."
            }
            Self::Role => "This needs the role operator, and the token is a viewer's. Use an operator's token.",
            Self::ReadOnly => "This listener only tells: `admin.read_only` is set. Use another node.",
            Self::Origin => "A web page of another origin asks. Changes are accepted from programs and from here only.",
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    /// The token's name; none, if there is none.
    pub(super) name: Option<&'a str>,
    role: Role,
    read_only: bool,
}

impl Access {
    /// Nobody yet; with `read_only`, nothing can ever be changed.
    #[must_use]
    pub fn new(read_only: bool) -> Self {
        Self { tokens: Vec::new(), read_only }
    }

    /// Knows one more token. An empty one is left out: it would open to everybody.
    #[must_use]
    pub fn with(mut self, name: &str, role: Role, secret: &str) -> Self {
        let secret = secret.trim();
        if !secret.is_empty() {
            let digest = Sha256::digest(secret.as_bytes()).into();
            self.tokens.push(Token { name: name.to_owned(), role, digest });
        }
        self
    }

    /// Who asks? `loopback` says that only this machine can reach the listener.
    pub(super) fn admit(&self, headers: &HeaderMap, loopback: bool) -> Result<Caller<'_>, Closed> {
        if self.tokens.is_empty() {
            let caller = Caller { name: None, role: Role::Viewer, read_only: self.read_only };
            return if loopback { Ok(caller) } else { Err(Closed::Everywhere) };
        }
        let token = bearer(headers).and_then(|given| self.token(given)).ok_or(Closed::Token)?;
        Ok(Caller { name: Some(&token.name), role: token.role, read_only: self.read_only })
    }

    /// Looks at all tokens, each in constant time; the digests also hide how long they are.
    fn token(&self, given: &[u8]) -> Option<&Token> {
        let given: [u8; 32] = Sha256::digest(given).into();
        let mut found = None;
        for token in &self.tokens {
            if token.digest.ct_eq(&given).into() {
                found = Some(token);
            }
        }
        found
    }
}

impl Caller<'_> {
    /// May it see bodies?
    pub(super) fn may_see_bodies(&self) -> Result<(), Closed> {
        match (self.role, self.name) {
            (Role::Operator, _) => Ok(()),
            (Role::Viewer, None) => Err(Closed::NoToken),
            (Role::Viewer, Some(_)) => Err(Closed::Role),
        }
    }

    /// May it change anything?
    pub(super) fn may_change(&self) -> Result<(), Closed> {
        self.may_see_bodies()?;
        if self.read_only { Err(Closed::ReadOnly) } else { Ok(()) }
    }

    /// Who acts, for the audit log: the token's name, and the person's where one is named. Nothing, where that name is too
    /// long or not UTF-8.
    pub(super) fn who(&self, headers: &HeaderMap) -> Option<String> {
        let name = self.name.unwrap_or_default();
        let mut lines = headers.get_all(ACTOR).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Some(name.to_owned()),
            (Some(line), None) => {
                let actor = crate::logs::escaped(std::str::from_utf8(line.as_bytes()).ok()?.trim()).into_owned();
                let fits = !actor.is_empty() && actor.len() <= ACTOR_BYTES_MAX;
                fits.then(|| format!("{name} ({actor})"))
            }
            (Some(_), Some(_)) => None,
        }
    }
}

/// The one bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    let (scheme, rest) = line.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Access {
        let access = Access::new(false).with("ops", Role::Operator, " s3cret\n");
        access.with("board", Role::Viewer, "looks-only").with("nobody", Role::Operator, " ")
    }

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, line.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_token_must_be_the_one_and_only() {
        let access = known();
        let name = |lines: &[&str]| access.admit(&headers(lines), true).map(|caller| caller.name.unwrap().to_owned());
        assert_eq!(name(&["Bearer s3cret"]).unwrap(), "ops");
        assert_eq!(name(&["bearer looks-only"]).unwrap(), "board");
        for lines in [
            &[][..],
            &["Bearer s3cre"],
            &["Bearer s3cret2"],
            &["Basic s3cret"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer s3cret"; 2],
        ] {
            assert_eq!(name(lines), Err(Closed::Token), "{lines:?}");
        }
        assert_eq!(format!("{:?}", access.tokens[0]), "Token(ops, Operator, …)");
    }

    #[test]
    fn a_viewer_changes_nothing_and_sees_no_body() {
        let access = known();
        let viewer = headers(&["Bearer looks-only"]);
        let viewer = access.admit(&viewer, false).unwrap();
        assert_eq!((viewer.may_see_bodies(), viewer.may_change()), (Err(Closed::Role), Err(Closed::Role)));
        let operator = headers(&["Bearer s3cret"]);
        let operator = access.admit(&operator, false).unwrap();
        assert_eq!((operator.may_see_bodies(), operator.may_change()), (Ok(()), Ok(())));
    }

    #[test]
    fn without_a_token_only_loopback_may_look_and_nobody_may_change() {
        let access = Access::new(false);
        let caller = access.admit(&HeaderMap::new(), true).unwrap();
        assert_eq!((caller.may_see_bodies(), caller.may_change()), (Err(Closed::NoToken), Err(Closed::NoToken)));
        assert_eq!(access.admit(&HeaderMap::new(), false), Err(Closed::Everywhere));
    }

    #[test]
    fn read_only_holds_for_operators_too() {
        let access = Access::new(true).with("ops", Role::Operator, "s3cret");
        let given = headers(&["Bearer s3cret"]);
        let caller = access.admit(&given, true).unwrap();
        assert_eq!((caller.may_see_bodies(), caller.may_change()), (Ok(()), Err(Closed::ReadOnly)));
    }

    #[test]
    fn the_person_behind_a_token_is_named_in_one_short_line() {
        let access = known();
        let who = |actors: &[&[u8]]| {
            let mut given = headers(&["Bearer s3cret"]);
            for actor in actors {
                given.append(ACTOR, http::HeaderValue::from_bytes(actor).unwrap());
            }
            access.admit(&given, true).unwrap().who(&given)
        };
        assert_eq!(who(&[]).as_deref(), Some("ops"));
        assert_eq!(who(&[b"jane"]).as_deref(), Some("ops (jane)"));
        assert_eq!(who(&["zo\u{eb}\u{202e}".as_bytes()]).as_deref(), Some("ops (zo\u{eb}\\u202e)"));
        for bad in [&[&b""[..]][..], &[&[0xff][..]], &[&[b'x'; 81][..]], &[&b"a"[..], &b"b"[..]]] {
            assert_eq!(who(bad), None, "{bad:?}");
        }
    }
}
