//! Whether connections are to be encrypted, by the connection string's `sslmode`.
//!
//! The driver knows `disable`, `prefer` and `require`, and refuses the other words that PostgreSQL's own clients take. Whether a
//! certificate is verified is not its business but the TLS connector's, so `verify-ca` and `verify-full` are `require` to it.
//! Left to others: the handshake.

use std::borrow::Cow;

use hapax_core::store::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::failure;

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Never: `sslmode=disable`.
    Never,
    /// Where the server offers it; else everything goes in the clear: `sslmode=prefer`.
    IfOffered,
    /// Always, or there is no connection: `sslmode=require`, `verify-ca`, `verify-full`.
    Always,
}

const PARAMETER: &str = "sslmode=";

/// What the connection string asks for; `None` where it does not say.
pub(crate) fn asked_for(dsn: &str) -> Result<Option<Encryption>, StoreError> {
    let (_, separator, parameters) = parts(dsn);
    let said = parameters.split(separator).filter_map(|part| part.strip_prefix(PARAMETER)).next_back();
    match said.map(|word| word.trim_matches('\'')) {
        Some("disable") => Ok(Some(Encryption::Never)),
        Some("prefer") => Ok(Some(Encryption::IfOffered)),
        Some("require" | "verify-ca" | "verify-full") => Ok(Some(Encryption::Always)),
        Some(_) => {
            let message = "the connection string's sslmode must be disable, prefer, require, verify-ca or verify-full";
            Err(failure::unsuitable("open", message))
        }
        // It may be spelt in a way that only the driver reads.
        None => Ok(match dsn.parse::<Config>().map(|config| config.get_ssl_mode()) {
            Ok(SslMode::Disable) => Some(Encryption::Never),
            Ok(SslMode::Require) => Some(Encryption::Always),
            _ => None,
        }),
    }
}

/// The connection string in words that the driver knows.
pub(crate) fn for_driver(dsn: &str) -> Cow<'_, str> {
    let (head, separator, parameters) = parts(dsn);
    let is_other = |part: &str| {
        let word = part.strip_prefix(PARAMETER).map(|word| word.trim_matches('\''));
        matches!(word, Some("verify-ca" | "verify-full"))
    };
    if !parameters.split(separator).any(is_other) {
        return Cow::Borrowed(dsn);
    }
    let parts: Vec<&str> =
        parameters.split(separator).map(|part| if is_other(part) { "sslmode=require" } else { part }).collect();
    Cow::Owned(format!("{head}{}", parts.join(separator.encode_utf8(&mut [0; 4]))))
}

/// What comes before the parameters, what is between them, and the parameters. The driver takes everything up to the first
/// `@` of a URL for the login, so a question mark in there begins nothing.
fn parts(dsn: &str) -> (&str, char, &str) {
    if !dsn.starts_with("postgres://") && !dsn.starts_with("postgresql://") {
        return ("", ' ', dsn);
    }
    let login = dsn.find('@').unwrap_or(0);
    let (_, place) = dsn.split_at(login);
    let (head, parameters) = place.find('?').map_or((dsn, ""), |at| dsn.split_at(login + at + 1));
    (head, '&', parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_read_from_either_form() {
        for (dsn, mode) in [
            ("postgres://me@db/app", None),
            ("postgres://me@db/app?sslmode=disable", Some(Encryption::Never)),
            ("postgres://me@db/app?connect_timeout=3&sslmode=prefer", Some(Encryption::IfOffered)),
            ("postgresql://db?sslmode=require&connect_timeout=3", Some(Encryption::Always)),
            ("postgres://me@db/app?sslmode=verify-full", Some(Encryption::Always)),
            ("host=db sslmode=verify-ca user=me", Some(Encryption::Always)),
            ("host=db sslmode = require user=me", Some(Encryption::Always)),
            ("host=db sslmode='require'", Some(Encryption::Always)),
            ("postgres://me:?sslmode=require@db/app", None),
            ("postgres://db/app?sslmode=disable&sslmode=require", Some(Encryption::Always)),
        ] {
            assert_eq!(asked_for(dsn).unwrap(), mode, "{dsn}");
        }
    }

    #[test]
    fn a_mode_that_nobody_knows_is_refused_with_those_that_are_known() {
        for mode in ["allow", "verify_full", "hunter2", ""] {
            let error = asked_for(&format!("postgres://me@db/app?sslmode={mode}")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "open: the connection string's sslmode must be disable, prefer, require, verify-ca or verify-full"
            );
        }
    }

    #[test]
    fn the_driver_is_told_to_require_what_is_to_be_verified_and_nothing_else_is_touched() {
        for (dsn, told) in [
            ("postgres://me@db/app?sslmode=verify-full", "postgres://me@db/app?sslmode=require"),
            ("postgres://me@db/app?a=b&sslmode=verify-ca&c=d", "postgres://me@db/app?a=b&sslmode=require&c=d"),
            ("host=db sslmode='verify-full' user=me", "host=db sslmode=require user=me"),
            ("postgres://me:?sslmode=verify-full@db/app", "postgres://me:?sslmode=verify-full@db/app"),
            ("postgres://me@db/app?sslmode=prefer", "postgres://me@db/app?sslmode=prefer"),
        ] {
            assert_eq!(for_driver(dsn), told);
        }
    }
}
