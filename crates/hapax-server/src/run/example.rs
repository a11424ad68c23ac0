//! A request to try, as a command that works in a shell with this configuration as it is.
//!
//! It goes to something that is protected, if there is anything, and carries what the configuration asks of a request. Left to
//! others: what else is said at start (`banner`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hapax::tokens;
use hapax_core::clock::Clock as _;
use hapax_sqlite::SystemClock;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, Method};

use crate::config::policy::{KeyFormat, ReplayCheck};
use crate::config::{Ask, Config, KeySyntax, Mode, Place, Policy, ScopeKind};

/// What a person has to fill in, as a shell names it.
const TOKEN: &str = "$TOKEN";

/// A request to try.
pub(super) struct Example {
    /// What becomes of it; `None` where nothing at all is protected.
    pub(super) mode: Option<Mode>,
    /// Whether the variable `TOKEN` must be set first.
    pub(super) needs_token: bool,
    /// For a shell, on one line.
    pub(super) command: String,
}

impl Example {
    /// For a proxy that listens there.
    pub(super) fn new(config: &Config, from: SocketAddr) -> Self {
        let target = Target::choose(config);
        let fields = Fields::of(config, &target.policy);
        let needs_token = fields.0.iter().any(|field| field.shell == TOKEN);
        let (scheme, insecure) = if config.server.tls.is_some() { ("https", " -k") } else { ("http", "") };
        let method = if target.method == Method::POST { String::new() } else { format!(" -X {}", target.method) };
        let url = quoted_if_needed(&format!("{scheme}://{}{}", reached_at(from), target.path));
        let shown: String = fields.0.iter().map(|field| format!(" -H {}", field.quoted())).collect();
        let command = format!("curl -i{insecure}{method} {url} -d '{{}}' -H 'Content-Type: application/json'{shown}");
        Self { mode: target.policy.protect.then_some(target.policy.mode), needs_token, command }
    }
}

/// Where the request goes, and what holds there.
struct Target {
    method: Method,
    path: String,
    policy: Policy,
}

impl Target {
    /// Something that is enforced, else something that is observed, else anything; `POST /` where it is as good as others.
    fn choose(config: &Config) -> Self {
        let root = (Method::POST, "/".to_owned());
        let named = config.routes.iter().filter_map(|route| {
            let path: Vec<&str> = route.path.as_str().split('/').map(filled).collect();
            Some((route.methods.first()?.clone(), path.join("/")))
        });
        let mut all: Vec<Self> = [root].into_iter().chain(named).map(|place| Self::at(config, place)).collect();
        let rank =
            |target: &Self| (target.policy.protect, target.policy.protect && target.policy.mode == Mode::Enforce);
        let best = (0..all.len()).max_by_key(|nth| (rank(&all[*nth]), std::cmp::Reverse(*nth))).unwrap_or(0);
        all.swap_remove(best)
    }

    fn at(config: &Config, (method, path): (Method, String)) -> Self {
        let policy = config.routes_for(&method, &path).next().map_or(&config.defaults, |route| &route.policy).clone();
        Self { method, path, policy }
    }
}

/// A segment of a pattern as a path may have it.
fn filled(segment: &str) -> &str {
    if segment.starts_with('{') { "1" } else { segment }
}

/// Who listens everywhere is reached by loopback.
fn reached_at(from: SocketAddr) -> SocketAddr {
    let ip = match from.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(ip, from.port())
}

/// A header field; `shell` is left to the shell to fill in, after the value.
struct Field {
    name: String,
    value: String,
    shell: &'static str,
}

impl Field {
    fn new(name: impl Into<String>, value: impl Into<String>, shell: &'static str) -> Self {
        Self { name: name.into(), value: value.into(), shell }
    }

    fn quoted(&self) -> String {
        let text = format!("{}: {}", self.name, self.value);
        if self.shell.is_empty() {
            return quoted(&text);
        }
        let mut escaped = String::with_capacity(text.len());
        for letter in text.chars() {
            if matches!(letter, '"' | '\\' | '`' | '$') {
                escaped.push('\\');
            }
            escaped.push(letter);
        }
        format!("\"{escaped}{}\"", self.shell)
    }
}

/// The fields of the request, each name once.
struct Fields(Vec<Field>);

impl Fields {
    fn of(config: &Config, policy: &Policy) -> Self {
        let mut fields = Self(Vec::new());
        for kind in &config.scope.kinds {
            fields.identify(kind);
        }
        if policy.replay_check == ReplayCheck::Ask {
            config.ask.iter().for_each(|ask| fields.ask(ask));
        }
        if let (Some(name), Some(_)) = (&policy.request_time_header, policy.request_age_max) {
            fields.set(Field::new(name.as_str(), "", "$(date +%s)"));
        }
        let name = config.keys.headers.first().map_or_else(|| "Idempotency-Key".to_owned(), titled);
        fields.set(Field::new(name, key(config.keys.syntax, policy), ""));
        fields
    }

    fn identify(&mut self, kind: &ScopeKind) {
        match kind {
            ScopeKind::Credential => self.set(Field::new("Authorization", "Bearer my-token", "")),
            ScopeKind::CredentialHeader(name) => self.set(Field::new(name.as_str(), "my-secret", "")),
            ScopeKind::CredentialCookie(name) => self.set(Field::new("Cookie", format!("{name}=my-secret"), "")),
            ScopeKind::Header(name) => self.set(Field::new(name.as_str(), "me", "")),
            ScopeKind::Jwt(jwt) => self.set(match &jwt.token_in {
                None => Field::new("Authorization", "Bearer ", TOKEN),
                Some(Place::Header(name)) => Field::new(name.as_str(), "", TOKEN),
                Some(Place::Cookie(name)) => Field::new("Cookie", format!("{name}="), TOKEN),
            }),
            ScopeKind::Ask(ask) => self.ask(ask),
            ScopeKind::Single => {}
        }
    }

    /// What the endpoint gets to see, and knows a caller by.
    fn ask(&mut self, ask: &Ask) {
        let passed = &ask.pass_headers;
        match passed.iter().find(|name| **name != COOKIE) {
            _ if passed.contains(&AUTHORIZATION) => self.set(Field::new("Authorization", "Bearer ", TOKEN)),
            Some(name) => self.set(Field::new(name.as_str(), "", TOKEN)),
            None => self.set(Field::new("Cookie", "", TOKEN)),
        }
    }

    /// In place of an earlier one of this name; cookies are sent together.
    fn set(&mut self, mut field: Field) {
        let earlier = self.0.iter().position(|other| other.name.eq_ignore_ascii_case(&field.name));
        let earlier = earlier.map(|at| self.0.remove(at));
        // What the shell fills in stands at the end, so of two such fields the later one counts.
        if let Some(earlier) = earlier.filter(|earlier| earlier.name == "Cookie" && earlier.shell.is_empty()) {
            field.value = format!("{}; {}", earlier.value, field.value);
        }
        self.0.push(field);
    }
}

/// A key that is accepted.
fn key(syntax: KeySyntax, policy: &Policy) -> String {
    let key = match policy.key_format {
        KeyFormat::Any => format!("{:1<1$}", "try-1", usize::from(policy.key_length_min)),
        KeyFormat::Uuid => uuid(4),
        KeyFormat::Uuidv7 => uuid(7),
    };
    if syntax == KeySyntax::Strict { format!("\"{key}\"") } else { key }
}

/// A new UUID of that version. One of version 7 begins with its time.
fn uuid(version: u8) -> String {
    let mut bytes = tokens::random();
    if version == 7 {
        bytes[..6].copy_from_slice(&SystemClock.read().wall_ms.to_be_bytes()[2..]);
    }
    bytes[6] = (bytes[6] & 0x0f) | (version << 4);
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let digits = crate::logs::hex(&bytes);
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

/// `idempotency-key` as people write it.
pub(super) fn titled(name: &HeaderName) -> String {
    let word = |word: &str| match word.get(..1) {
        Some(first) => format!("{}{}", first.to_ascii_uppercase(), &word[1..]),
        None => String::new(),
    };
    name.as_str().split('-').map(word).collect::<Vec<_>>().join("-")
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn quoted_if_needed(url: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-".contains(&byte);
    if url.bytes().all(is_plain) { url.to_owned() } else { quoted(url) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_for_its_own_is_quoted() {
        let plain = Field::new("x'y", "a$b`c`", "");
        assert_eq!(plain.quoted(), r"'x'\''y: a$b`c`'");
        let filled = Field::new("x`y", "a\"$b=", TOKEN);
        assert_eq!(filled.quoted(), r#""x\`y: a\"\$b=$TOKEN""#);
        assert_eq!(quoted_if_needed("http://127.0.0.1:8080/"), "http://127.0.0.1:8080/");
        assert_eq!(quoted_if_needed("http://[::1]:8080/"), "'http://[::1]:8080/'");
    }

    #[test]
    fn a_uuid_says_its_version_and_when_it_was_made() {
        let (four, seven) = (uuid(4), uuid(7));
        assert_eq!((four.len(), &four[14..15], &seven[14..15]), (36, "4", "7"));
        let made_ms = u64::from_str_radix(&seven.replace('-', "")[..12], 16).unwrap();
        assert!(SystemClock.read().wall_ms.abs_diff(made_ms) < 60_000, "{seven}");
    }
}
