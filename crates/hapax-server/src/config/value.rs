//! How each type of value is read from a file, a flag or a variable, and shown again.
//!
//! A type says what it expects in words, so that every message about a wrong value is built the same way. `"off"`
//! stands for "not set" wherever a setting can be without a value, so that every key has a default that can be written
//! down. Left to others: where values come from (`reader`), and which of them fit together (`check`).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use hapax_core::canonical_json::Pointer;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::source::{Node, Raw};
use super::units;
use hapax::http::Pattern;
use hapax_proxy::network::Network;

/// The text that stands for "not set".
const OFF: &str = "off";

/// Why a value cannot be read.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It is something else than expected; this is how it is shown.
    Not(String),
    /// A cause of its own, with the next step.
    Because(String),
    /// The same about an item that stands at another line than its key.
    At(usize, Box<Fault>),
}

impl Fault {
    pub(super) fn not(text: &str) -> Self {
        Self::not_but(text, "")
    }

    /// It is that text, but something else was meant.
    pub(super) fn not_but(text: &str, suggestion: &str) -> Self {
        Self::Not(format!("{}{suggestion}", Raw::Text(text.to_owned()).shown()))
    }

    /// The place of a fault in an item.
    pub(super) fn at(self, node: &Node) -> Self {
        match self {
            Self::At(..) => self,
            other => Self::At(node.line, Box::new(other)),
        }
    }
}

/// A type of value.
pub(super) trait Value: Sized {
    /// What to write, as in "must be …".
    fn expected() -> String;
    /// Reads the text of a flag or a variable, or a TOML string.
    fn parse(text: &str) -> Result<Self, Fault>;
    /// Reads a TOML value.
    fn read(node: &Node) -> Result<Self, Fault> {
        match &node.raw {
            Raw::Text(text) => Self::parse(text),
            other => Err(Fault::Not(other.shown())),
        }
    }
    /// The value as TOML.
    fn show(&self) -> String;
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Implements [`Value`] for a type with `FromStr` and `Display`.
macro_rules! text_value {
    ($($type:ty: $expected:literal;)+) => {$(
        impl Value for $type {
            fn expected() -> String {
                $expected.to_owned()
            }
            fn parse(text: &str) -> Result<Self, Fault> {
                text.parse().map_err(|_| Fault::not(text))
            }
            fn show(&self) -> String {
                quoted(&self.to_string())
            }
        }
    )+};
}

text_value! {
    HeaderName: "a header name such as \"X-Api-Key\"";
    Network: "a network such as \"10.0.0.0/8\", or one address";
}

/// Implements [`Value`] for whole numbers.
macro_rules! number_value {
    ($($type:ty: $expected:literal;)+) => {$(
        impl Value for $type {
            fn expected() -> String {
                $expected.to_owned()
            }
            fn parse(text: &str) -> Result<Self, Fault> {
                text.parse().map_err(|_| Fault::not(text))
            }
            fn read(node: &Node) -> Result<Self, Fault> {
                let Raw::Integer(number) = node.raw else { return Err(Fault::Not(node.raw.shown())) };
                number.to_string().parse().map_err(|_| Fault::Not(number.to_string()))
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

number_value! {
    NonZeroU32: "a whole number above 0";
    u8: "a whole number from 0 to 255";
}

impl Value for StatusCode {
    fn expected() -> String {
        "a status from 400 to 499".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse().ok().filter(Self::is_client_error).ok_or_else(|| Fault::not(text))
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        let Raw::Integer(number) = node.raw else { return Err(Fault::Not(node.raw.shown())) };
        Self::parse(&number.to_string()).map_err(|_| Fault::Not(number.to_string()))
    }

    fn show(&self) -> String {
        self.as_u16().to_string()
    }
}

impl Value for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse().map_err(|_| Fault::not(text))
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        match node.raw {
            Raw::Bool(value) => Ok(value),
            ref other => Err(Fault::Not(other.shown())),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn expected() -> String {
        "a text that is not empty".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() { Err(Fault::not(text)) } else { Ok(text.to_owned()) }
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Value for PathBuf {
    fn expected() -> String {
        "the path of a file".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() { Err(Fault::not(text)) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        quoted(&self.display().to_string())
    }
}

impl Value for Duration {
    fn expected() -> String {
        "a duration with a unit, such as \"30s\" or \"24h\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        units::duration(text).ok_or_else(|| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(&units::show_duration(*self))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) usize);

impl Value for Size {
    fn expected() -> String {
        "a size with a unit, such as \"64KiB\" or \"1MiB\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        units::size(text).map(Self).ok_or_else(|| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(&units::show_size(self.0))
    }
}

impl Value for SocketAddr {
    fn expected() -> String {
        "an address and a port, such as \"127.0.0.1:8080\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let of_localhost = |port: &str| Some(Self::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)));
        let found = text.parse().ok().or_else(|| text.strip_prefix("localhost:").and_then(of_localhost));
        found.ok_or_else(|| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Value for Uri {
    fn expected() -> String {
        "a URL such as \"http://127.0.0.1:3000\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let found: Option<Self> = text.parse().ok();
        let sound = |uri: &Self| {
            let host = uri.host().is_some_and(|host| !host.is_empty());
            host && matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.port().is_none_or(|port| port.as_u16() > 0)
        };
        let found = found
            .filter(|uri| sound(uri) && uri.authority().is_some_and(|authority| port_is_sound(authority.as_str())));
        // What stands before an @ may be a password, so the text is not repeated.
        let login = text.contains('@')
            && found.as_ref().is_none_or(|uri| uri.authority().is_some_and(|a| a.as_str().contains('@')));
        if login {
            return Err(Fault::Because(
                "must not hold a user or password; leave out what stands before the @".to_owned(),
            ));
        }
        found.ok_or_else(|| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(&without_query(self))
    }
}

/// A URL for people: without the query, which may hold a secret, and without the slash that the parser adds.
pub(crate) fn without_query(url: &Uri) -> String {
    let (scheme, authority) = (url.scheme_str().unwrap_or_default(), url.authority().map_or("", |a| a.as_str()));
    let path = if url.path() == "/" { "" } else { url.path() };
    let query = if url.query().is_some() { "?(hidden)" } else { "" };
    format!("{scheme}://{authority}{path}{query}")
}

/// A port such as 99999 is kept as text by the parser, and is then no port.
fn port_is_sound(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, port)) => port.ends_with(']') || port.parse::<u16>().is_ok(),
        None => true,
    }
}

impl Value for Method {
    fn expected() -> String {
        "a method such as \"POST\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let upper = text.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-');
        let known = || ["POST", "PUT", "PATCH", "DELETE"].into_iter().find(|known| known.eq_ignore_ascii_case(text));
        text.parse().ok().filter(|_| upper).ok_or_else(|| match known() {
            Some(known) => Fault::not_but(text, &format!("; did you mean `{known}`?")),
            None => Fault::not(text),
        })
    }

    fn show(&self) -> String {
        quoted(self.as_str())
    }
}

impl Value for HeaderValue {
    fn expected() -> String {
        "an origin such as \"https://app.example\", or \"*\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let is_origin = text == "*"
            || text.parse().is_ok_and(|uri: Uri| {
                let text_of_parts =
                    format!("{}://{}", uri.scheme_str().unwrap_or(""), uri.authority().map_or("", |a| a.as_str()));
                uri.scheme().is_some() && text_of_parts == text
            });
        Self::from_str(text).ok().filter(|_| is_origin).ok_or_else(|| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(self.to_str().unwrap_or_default())
    }
}

impl Value for Pointer {
    fn expected() -> String {
        "a JSON pointer such as \"/order/id\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        Self::new(text).map_err(|_| Fault::not(text))
    }

    fn show(&self) -> String {
        quoted(self.as_str())
    }
}

impl Value for Pattern {
    fn expected() -> String {
        "a path such as \"/payments/{id}\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        Self::parse(text).map_err(|why| Fault::Because(why.to_string()))
    }

    fn show(&self) -> String {
        quoted(self.as_str())
    }
}

/// `"off"`, or a value.
impl<T: Value> Value for Option<T> {
    fn expected() -> String {
        format!("{}, or \"off\"", T::expected())
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        if text == OFF { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        match &node.raw {
            Raw::Text(text) if text == OFF => Ok(None),
            _ => T::read(node).map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| quoted(OFF), T::show)
    }
}

/// A list. In a flag or a variable its items are separated by commas; one item may stand without brackets in a file.
impl<T: Value> Value for Vec<T> {
    fn expected() -> String {
        format!("a list, each item {}", T::expected())
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        text.split(',').map(|item| T::parse(item.trim())).collect()
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        match &node.raw {
            Raw::List(items) => items.iter().map(|item| T::read(item).map_err(|fault| fault.at(item))).collect(),
            Raw::Table(_) => Err(Fault::Not(node.raw.shown())),
            _ => T::read(node).map(|item| vec![item]),
        }
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(T::show).collect::<Vec<_>>().join(", "))
    }
}

/// Names with a value each: a table in a file, `name=value,name=value` in a variable.
impl<T: Value> Value for BTreeMap<String, T> {
    fn expected() -> String {
        format!("a table, each value {}", T::expected())
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let pair = |item: &str| {
            let (name, value) = item.split_once('=').ok_or_else(|| Fault::not(item))?;
            Ok((name.trim().to_owned(), T::parse(value.trim())?))
        };
        text.split(',').map(pair).collect()
    }

    fn read(node: &Node) -> Result<Self, Fault> {
        let Raw::Table(entries) = &node.raw else { return Err(Fault::Not(node.raw.shown())) };
        let entry = |(name, node): &(String, Node)| Ok((name.clone(), T::read(node).map_err(|fault| fault.at(node))?));
        entries.iter().map(entry).collect()
    }

    fn show(&self) -> String {
        let pairs: Vec<String> =
            self.iter().map(|(name, value)| format!("{} = {}", quoted(name), value.show())).collect();
        if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_value_is_read_back() {
        fn back<T: Value + PartialEq + std::fmt::Debug>(text: &str) {
            let value = T::parse(text).unwrap();
            let shown: toml::Table = format!("x = {}", value.show()).parse().unwrap();
            match &shown["x"] {
                toml::Value::String(text) => assert_eq!(T::parse(text).unwrap(), value),
                other => assert_eq!(T::parse(&other.to_string()).unwrap(), value),
            }
        }
        back::<Duration>("90s");
        back::<Size>("3KiB");
        back::<SocketAddr>("[::1]:80");
        back::<Uri>("https://a.example:8443");
        back::<Option<PathBuf>>("off");
        back::<bool>("true");
        back::<NonZeroU32>("7");
        back::<Pointer>("/a~1b");
        back::<PathBuf>("a \"b\".db");
    }

    #[test]
    fn a_url_needs_a_scheme_and_a_host_and_no_password() {
        for text in ["", "localhost:3000", "ftp://a", "http://", "/a", "http://a:99999", "http://a:b"] {
            assert_eq!(Uri::parse(text), Err(Fault::not(text)), "{text}");
        }
        assert!(
            matches!(<Uri as Value>::parse("http://u:hunter2@a"), Err(Fault::Because(why)) if !why.contains("hunter2"))
        );
    }

    #[test]
    fn a_list_in_a_variable_is_separated_by_commas() {
        assert_eq!(Vec::<String>::parse("a, b"), Ok(vec!["a".to_owned(), "b".to_owned()]));
    }
}
