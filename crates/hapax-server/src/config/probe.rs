//! `probe` of a policy: how the proxy finds out what became of a request whose outcome is unknown.
//!
//! It is a table in the file, such as
//! `{ get = "/payments?idempotency_record={id}", happened = "200", did_not_happen = "404", answer = "probe" }`.
//!
//! A probe is bound to the caller: what it finds must not be about somebody else who chose the same key, or names the same
//! order. `{id}` covers scope and key, and the service got it with the request (`Idempotency-Record`). What binds otherwise
//! depends on how callers are told apart, and is checked in `check_policy`.
//! Left to others: asking (`run::probe`), and when to ask (the library's `reconcile`).

use std::net::Ipv6Addr;
use std::num::NonZeroU16;
use std::time::Duration;

use hapax_core::canonical_json::Pointer;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, StatusCode, Uri};

use super::problem::did_you_mean;
use super::secret::{self, Secret};
use super::source::{Node, Raw};
use super::value::{Fault, Value, quoted};

/// Every key of the table.
pub const KEYS: [&str; 16] = [
    "get",
    "url",
    "host",
    "happened",
    "happened_if",
    "did_not_happen",
    "did_not_happen_if",
    "declined",
    "declined_if",
    "answer",
    "header",
    "value",
    "value_file",
    "allow_http",
    "timeout",
    "keys_unique",
];

/// How long one probe may take, unless it is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How the outcome of a request is found out.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// What is asked for.
    pub get: Template,
    /// Whom to ask: scheme, host and port; `None` asks the upstream.
    pub url: Option<Uri>,
    /// The `Host` it is asked under: a name, and a port if it needs one; `None`: that of whoever is asked.
    pub host: Option<String>,
    /// The answer that means that it happened.
    pub happened: Sign,
    /// The answer that means that it did not.
    pub did_not_happen: Sign,
    /// The answer that means that it failed for good.
    pub declined: Sign,
    /// What retries get if it happened.
    pub answer: ProbeAnswer,
    /// A field that is sent along, such as a credential.
    pub header: Option<(HeaderName, Secret)>,
    /// Whether the field's value stands in the configuration itself.
    pub is_inline: bool,
    /// The field may be sent over plain http beyond this machine.
    pub allow_http: bool,
    /// How long one probe may take.
    pub timeout: Duration,
    /// Said out loud: no two callers ever use the same key.
    pub keys_unique: bool,
}

/// An answer that means something: one of these statuses, and the condition if there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sign {
    /// Without any, it means nothing.
    pub statuses: Vec<StatusCode>,
    /// What the JSON body must say.
    pub condition: Option<Condition>,
}

/// What a JSON body must say: `/status=succeeded`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Where.
    pub pointer: Pointer,
    /// A text as it is; anything else as JSON.
    pub equals: String,
}

/// What retries get if it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The probe's own answer.
    Probe,
    /// The probe's own answer with another status.
    ProbeAs(StatusCode),
    /// That status without a body.
    Stored(StatusCode),
}

/// A path and query with places for what is known of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Literal(String),
    /// The record's id, which covers scope and key.
    Id,
    /// The key.
    Key,
    /// Whose key it is.
    Scope,
    /// The value of that label.
    Label(String),
}

impl Template {
    /// Its parts, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Whether it asks by that.
    #[must_use]
    pub fn asks_by(&self, piece: &Piece) -> bool {
        self.pieces.contains(piece)
    }

    /// The labels it needs.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Label(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// One that is sound.
    #[cfg(test)]
    pub(crate) fn parsed(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }

    fn new(text: &str) -> Result<Self, Fault> {
        let because = |why: String| Err(Fault::Because(why));
        if !text.starts_with('/') || text.contains('#') || text.parse::<http::uri::PathAndQuery>().is_err() {
            return because(format!(
                "has the `get` {text:?}; write a path such as \"/payments?idempotency_record={{id}}\""
            ));
        }
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return because("has a `get` with a { that is not closed; write {id}".to_owned());
            };
            pieces.push(Piece::Literal(before.to_owned()));
            pieces.push(match (name, name.strip_prefix("label:")) {
                ("id", _) => Piece::Id,
                ("key", _) => Piece::Key,
                ("scope", _) => Piece::Scope,
                (_, Some(label)) if !label.is_empty() => Piece::Label(label.to_owned()),
                _ => {
                    return because(format!(
                        "has a `get` with {{{name}}}; there are {{id}}, {{key}}, {{scope}} and {{label:NAME}}"
                    ));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Literal(rest.to_owned()));
        if !pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_))) {
            return because("has a `get` that names no request; put {id} into it".to_owned());
        }
        Ok(Self { text: text.to_owned(), pieces })
    }
}

impl Value for Probe {
    fn expected() -> String {
        "a table such as { get = \"/payments?idempotency_record={id}\" }".to_owned()
    }

    fn parse(_: &str) -> Result<Self, Fault> {
        Err(Fault::Because("is a table, and cannot be set by a variable; write it into the file".to_owned()))
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        let Raw::Table(entries) = &node.raw else { return Err(Fault::Not(node.raw.shown())) };
        if let Some((name, at)) = entries.iter().find(|(name, _)| !KEYS.contains(&name.as_str())) {
            let why = format!("has the unknown key `{}`{}", name.escape_debug(), did_you_mean(name, KEYS));
            return Err(Fault::Because(why).at(at));
        }
        Table(entries).probe()
    }

    fn show(&self) -> String {
        let mut pairs = vec![format!("get = {}", quoted(&self.get.text))];
        pairs.extend(self.url.as_ref().map(|url| format!("url = {}", url.show())));
        pairs.extend(self.host.as_ref().map(|host| format!("host = {}", quoted(host))));
        let signs =
            [("happened", &self.happened), ("did_not_happen", &self.did_not_happen), ("declined", &self.declined)];
        for (name, sign) in signs.into_iter().filter(|(_, sign)| !sign.statuses.is_empty()) {
            let statuses: Vec<&str> = sign.statuses.iter().map(StatusCode::as_str).collect();
            pairs.push(format!("{name} = {}", quoted(&statuses.join(","))));
            let condition = sign.condition.as_ref().map(|c| format!("{}={}", c.pointer.as_str(), c.equals));
            pairs.extend(condition.map(|condition| format!("{name}_if = {}", quoted(&condition))));
        }
        pairs.push(format!("answer = {}", quoted(&self.answer.text())));
        if let Some((name, _)) = &self.header {
            pairs.push(format!("header = {}, value = \"(hidden)\"", quoted(name.as_str())));
        }
        pairs.extend(self.allow_http.then(|| "allow_http = true".to_owned()));
        pairs.push(format!("timeout = {}", self.timeout.show()));
        pairs.extend(self.keys_unique.then(|| "keys_unique = true".to_owned()));
        format!("{{ {} }}", pairs.join(", "))
    }
}

impl ProbeAnswer {
    fn text(self) -> String {
        match self {
            Self::Probe => "probe".to_owned(),
            Self::ProbeAs(status) => format!("probe:{}", status.as_str()),
            Self::Stored(status) => format!("stored:{}", status.as_str()),
        }
    }

    fn new(text: &str) -> Option<Self> {
        let status = |text: &str| text.parse().ok().filter(StatusCode::is_success);
        match text.split_once(':') {
            None => (text == "probe").then_some(Self::Probe),
            Some(("probe", code)) => status(code).map(Self::ProbeAs),
            Some(("stored", code)) => status(code).map(Self::Stored),
            Some(_) => None,
        }
    }
}

/// The table while it is read.
struct Table<'a>(&'a [(String, Node)]);

impl Table<'_> {
    fn probe(&self) -> Result<Probe, Fault> {
        let get = self.text("get")?.ok_or_else(|| {
            Fault::Because(
                "has no `get`; write the path to ask, such as \"/payments?idempotency_record={id}\"".to_owned(),
            )
        })?;
        let (header, is_inline) = self.header()?;
        let (get, keys_unique) = (Template::new(get)?, self.keys_unique()?);
        let by_key_alone = keys_unique && !get.asks_by(&Piece::Id);
        let probe = Probe {
            get,
            url: self.url()?,
            host: self.host()?,
            happened: self.sign("happened", "happened_if", "200")?,
            did_not_happen: self.sign("did_not_happen", "did_not_happen_if", "404")?,
            declined: self.sign("declined", "declined_if", "")?,
            answer: self.answer(by_key_alone)?,
            header,
            is_inline,
            allow_http: self.allow_http()?,
            timeout: self
                .get("timeout")
                .map_or(Ok(TIMEOUT), Duration::read)
                .map_err(|_| Fault::Because("has a `timeout` that is no duration; write such as \"10s\"".to_owned()))?,
            keys_unique,
        };
        probe.unambiguous()
    }

    fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        match self.get(key).map(|node| &node.raw) {
            None => Ok(None),
            Some(Raw::Text(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(Fault::Because(format!("has `{key}` = {}; write a text", other.shown()))),
        }
    }

    fn url(&self) -> Result<Option<Uri>, Fault> {
        let Some(text) = self.text("url")? else { return Ok(None) };
        let uri = <Uri as Value>::parse(text).ok().filter(|uri| uri.path_and_query().is_none_or(|path| path == "/"));
        let why = "has a `url` that is not scheme, host and port; write such as \"https://bank.example\", and the path \
                   into `get`";
        uri.map(Some).ok_or_else(|| Fault::Because(why.to_owned()))
    }

    fn allow_http(&self) -> Result<bool, Fault> {
        let why = || Fault::Because("has an `allow_http` that is neither true nor false".to_owned());
        self.get("allow_http").map_or(Ok(false), |node| bool::read(node).map_err(|_| why()))
    }

    fn host(&self) -> Result<Option<String>, Fault> {
        let Some(text) = self.text("host")? else { return Ok(None) };
        if !is_host(text) {
            let why = "has a `host` that is not a name, or a name and a port; write such as \"bank.example\" or \
                       \"bank.example:8443\"";
            return Err(Fault::Because(why.to_owned()));
        }
        if self.text("header")?.is_some_and(|name| name.eq_ignore_ascii_case("host")) {
            return Err(Fault::Because("has both a `host` and the `header` Host; remove the header".to_owned()));
        }
        Ok(Some(text.to_owned()))
    }

    fn sign(&self, key: &str, key_if: &str, default: &str) -> Result<Sign, Fault> {
        let shown = match self.get(key).map(|node| &node.raw) {
            None => default.to_owned(),
            Some(Raw::Text(text)) => text.clone(),
            Some(Raw::Integer(number)) => number.to_string(),
            Some(other) => other.shown(),
        };
        // Neither a redirect nor an answer before the answer tells anything.
        let sound = |status: &StatusCode| status.as_u16() >= 200 && !status.is_redirection() && status.as_u16() < 600;
        let status = |text: &str| text.trim().parse().ok().filter(sound);
        let listed = shown.split(',').filter(|text| !text.is_empty());
        let Some(statuses) = listed.map(status).collect::<Option<Vec<StatusCode>>>() else {
            let why = format!("has `{key}` = {shown:?}; write statuses such as \"200\" or \"200,201\", no redirects");
            return Err(Fault::Because(why));
        };
        let condition = self.text(key_if)?.map(|text| condition(key_if, text)).transpose()?;
        if condition.is_some() && statuses.is_empty() {
            return Err(Fault::Because(format!("has `{key_if}` without `{key}`; name its statuses too")));
        }
        Ok(Sign { statuses, condition })
    }

    fn keys_unique(&self) -> Result<bool, Fault> {
        match self.get("keys_unique").map(|node| &node.raw) {
            None => Ok(false),
            Some(Raw::Bool(said)) => Ok(*said),
            Some(other) => Err(Fault::Because(format!("has `keys_unique` = {}; write true or false", other.shown()))),
        }
    }

    fn answer(&self, by_key_alone: bool) -> Result<ProbeAnswer, Fault> {
        let text = self.text("answer")?.unwrap_or(if by_key_alone { "stored:200" } else { "probe" });
        if by_key_alone && (text == "probe" || text.starts_with("probe:")) {
            let why = "; whoever sends another caller's key would get what is that caller's: write \"stored:201\", or ask \
                       by {id}";
            return Err(Fault::Because(format!("has `answer` = {text:?} beside `keys_unique`{why}")));
        }
        let why = "; write \"probe\", \"probe:201\" (its body, with that status) or \"stored:201\" (no body)";
        ProbeAnswer::new(text).ok_or_else(|| Fault::Because(format!("has `answer` = {text:?}{why}")))
    }

    fn header(&self) -> Result<(Option<(HeaderName, Secret)>, bool), Fault> {
        let because = |why: &str| Err(Fault::Because(why.to_owned()));
        let (inline, file) = (self.text("value")?, self.text("value_file")?);
        let secret = match (inline, file) {
            (Some(_), Some(_)) => return because("has both `value` and `value_file`; remove one"),
            (Some(text), None) => Some(Secret::new(text)),
            (None, Some(path)) => Some(
                secret::read_file(path.as_ref())
                    .map_err(|why| Fault::Because(format!("has a `value_file` that cannot be used: {why}")))?,
            ),
            (None, None) => None,
        };
        let header = match (self.text("header")?, secret) {
            (None, None) => None,
            (Some(name), Some(secret)) => match (name.parse(), HeaderValue::from_str(secret.expose())) {
                (Ok(name), Ok(_)) => Some((name, secret)),
                (Err(_), _) => return because("has a `header` that is no name of a header field"),
                (_, Err(_)) => return because("has a value that no header field can hold"),
            },
            (Some(_), None) => return because("has a `header` without a value; name its file in `value_file`"),
            (None, Some(_)) => return because("has a value without a `header`; name the header field"),
        };
        Ok((header, inline.is_some()))
    }
}

impl Probe {
    /// Whether only the client's key says what is asked for. Then nothing that the probe says is recorded but a status.
    #[must_use]
    pub fn is_by_key_alone(&self) -> bool {
        self.keys_unique && !self.get.asks_by(&Piece::Id)
    }

    /// The same status must not mean two things, unless the body tells them apart.
    fn unambiguous(self) -> Result<Self, Fault> {
        let signs = [&self.happened, &self.did_not_happen, &self.declined];
        for (at, sign) in signs.iter().enumerate() {
            let others = signs.iter().skip(at + 1);
            let both = others.filter(|other| sign.condition.is_none() || other.condition.is_none());
            let clash = both.flat_map(|other| &other.statuses).find(|status| sign.statuses.contains(status));
            if let Some(status) = clash {
                let why = "tell them apart by `happened_if`, `did_not_happen_if` or `declined_if`";
                return Err(Fault::Because(format!("gives {status} two meanings; {why}")));
            }
        }
        Ok(self)
    }
}

/// A name or an address, and a port if it has one.
fn is_host(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let host = authority.host();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let named = literal
        .map_or_else(|| !host.is_empty() && host.bytes().all(letters), |literal| literal.parse::<Ipv6Addr>().is_ok());
    let port = |text: &str| text.strip_prefix(':').is_some_and(|port| port.parse::<NonZeroU16>().is_ok());
    named && text.strip_prefix(host).is_some_and(|rest| rest.is_empty() || port(rest))
}

fn condition(key: &str, text: &str) -> Result<Condition, Fault> {
    let found = text.split_once('=').and_then(|(pointer, equals)| {
        Some(Condition { pointer: Pointer::new(pointer).ok()?, equals: equals.to_owned() })
    });
    let why = || format!("has `{key}` = {text:?}; write a JSON pointer and a value, such as \"/status=succeeded\"");
    found.ok_or_else(|| Fault::Because(why()))
}
