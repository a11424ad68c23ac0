//! `[store]`: which store, and how it is reached.
//!
//! A store is named by a URL whose scheme says what it is; memory is never chosen silently. A password in the URL
//! reaches no message. Left to others: opening it.

use std::path::Path;

use hapax_postgres::Options;

use super::model::{Backend, Store};
use super::problem::did_you_mean;
use super::reader::Section;
use super::secret::Secret;
use super::sections::ca_file;
use super::value::{Size, quoted};

/// What a PostgreSQL URL looks like.
const POSTGRES_FORM: &str = "postgres://user:password@host:5432/database";

/// Reads the section.
pub(super) fn store(section: &mut Section<'_, '_>) -> Store {
    let default = Store::default();
    let shown = |url: &Secret| quoted(&backend(url).map_or_else(|_| "(hidden)".to_owned(), |backend| backend.shown()));
    let url = section.secret("url", "url_file", shown, &quoted(&default.backend.shown()));
    let backend = url.map_or(Ok(default.backend.clone()), |url| backend(&url)).unwrap_or_else(|why| {
        section.reader.refuse(&["store.url"], format!("`store.url` {why}"));
        default.backend
    });
    let ca_file = ca_file(section);
    Store {
        backend,
        strict: section.value("strict", default.strict),
        single_node: section.value("single_node", default.single_node),
        schema: section.value("schema", default.schema),
        ca_file,
        pooler: section.value("pooler", default.pooler),
        connections: section.value("connections", default.connections),
        timeout: section.value("timeout", default.timeout),
        breaker_failures: section.value("breaker_failures", default.breaker_failures),
        breaker_pause: section.value("breaker_pause", default.breaker_pause),
        rows_max: section.value("rows_max", default.rows_max),
        bytes_max: section.value("bytes_max", default.bytes_max.map(Size)).map(|size| size.0),
        free_disk_min: section.value("free_disk_min", default.free_disk_min.map(Size)).map(|size| size.0),
    }
}

/// Why the files of an SQLite store are not private, and the command that makes them so.
pub(crate) fn exposed_store(path: &Path) -> Option<String> {
    let files: Vec<String> = hapax_sqlite::exposed(path).iter().map(|file| file.display().to_string()).collect();
    let files = files.join(" ");
    (!files.is_empty()).then(|| {
        format!(
            "anyone on this machine can read or change recorded answers in {files}; run `chmod o-rwx {files}`, and start again"
        )
    })
}

impl Store {
    /// How a PostgreSQL server at that URL is used. Who names an authority wants to talk to nobody else: TLS is required.
    pub(crate) fn postgres_options(&self, url: &str) -> Options {
        let mut options = Options::new(url)
            .with_schema(&self.schema)
            .with_connections(self.connections.get() as usize)
            .with_statement_timeout(self.timeout)
            .with_connect_timeout(self.timeout);
        if self.ca_file.is_some() {
            options = options.with_tls_required();
        }
        if self.pooler {
            options = options.with_pooler();
        }
        options
    }

    /// Whether one server may take over from another without having what that one acknowledged, as far as this tells.
    pub(super) fn may_lose_in_failover(&self) -> bool {
        match &self.backend {
            Backend::Postgres { url, .. } => !self.strict && self.postgres_options(url.expose()).host_count() > 1,
            Backend::Sqlite { .. } | Backend::Memory => false,
        }
    }

    /// Where what is sent to the store can be read on the way, for people.
    pub(super) fn exposed_at(&self) -> Option<&str> {
        match &self.backend {
            Backend::Postgres { url, shown } => self.postgres_options(url.expose()).is_exposed().then_some(shown),
            Backend::Sqlite { .. } | Backend::Memory => None,
        }
    }
}

/// The store that a URL names.
fn backend(url: &Secret) -> Result<Backend, String> {
    let text = url.expose();
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err("must begin with sqlite:, postgres:// or memory:; for a file write sqlite:PATH".to_owned());
    };
    match scheme {
        "sqlite" => sqlite(rest),
        "postgres" | "postgresql" => postgres(url, rest),
        "memory" if rest.is_empty() => Ok(Backend::Memory),
        "memory" => Err("must be \"memory:\" alone for a store in memory; remove what follows".to_owned()),
        other => {
            // A text without a scheme may begin with a password.
            let known = ["sqlite", "postgres", "memory"];
            let close = did_you_mean(other, known);
            let close = if close.is_empty() { "; for a file write sqlite:PATH".to_owned() } else { close };
            Err(format!("must begin with sqlite:, postgres:// or memory:{close}"))
        }
    }
}

fn sqlite(rest: &str) -> Result<Backend, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err("names no file; write sqlite:hapax.db".to_owned());
    }
    if path.starts_with(":memory:") || path.contains("mode=memory") {
        return Err("names a store that forgets everything at exit; if that is meant, write memory:".to_owned());
    }
    if path.contains('?') {
        return Err("has options after a `?`, which SQLite stores do not take; name the file only".to_owned());
    }
    Ok(Backend::Sqlite { path: path.into() })
}

fn postgres(url: &Secret, rest: &str) -> Result<Backend, String> {
    let refused = || {
        format!(
            "is not a PostgreSQL URL; write {POSTGRES_FORM}, with special characters of the password percent-encoded"
        )
    };
    let shown = rest.strip_prefix("//").and_then(masked).ok_or_else(refused)?;
    Ok(Backend::Postgres { url: url.clone(), shown })
}

/// The URL without password and options; `None` where it is not sure what is what.
fn masked(rest: &str) -> Option<String> {
    let place = rest.split('?').next().unwrap_or(rest);
    let (user, place) = match place.rsplit_once('@') {
        Some((login, place)) => (login.split(':').next().map(|user| format!("{user}:***@")), place),
        None => (None, place),
    };
    let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
    let sound = !hosts.is_empty() && hosts.split(',').all(is_host) && database.chars().all(is_plain);
    let user = user.unwrap_or_default();
    let slash = if database.is_empty() { "" } else { "/" };
    (sound && !user.contains('/')).then(|| format!("postgres://{user}{hosts}{slash}{database}"))
}

/// `db.example`, `db:5432`, `[::1]:5432`, or a socket's directory, percent-encoded.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name_is_sound = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.chars().all(is_plain),
    };
    name_is_sound && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Backend, String> {
        backend(&Secret::new(url))
    }

    #[test]
    fn a_url_names_its_store() {
        assert_eq!(of("sqlite:a.db"), Ok(Backend::Sqlite { path: "a.db".into() }));
        assert_eq!(of("sqlite:///var/a.db"), Ok(Backend::Sqlite { path: "/var/a.db".into() }));
        assert_eq!(of("memory:"), Ok(Backend::Memory));
        for (url, shown) in [
            ("postgres://me:hunter2@db.example/app?sslmode=require", "postgres://me:***@db.example/app"),
            ("postgresql://db", "postgres://db"),
            ("postgres://me:a@b@db:5432/app", "postgres://me:***@db:5432/app"),
            ("postgres://a:5433,b:5434/app", "postgres://a:5433,b:5434/app"),
            ("postgres://me@[::1]:5432/app", "postgres://me:***@[::1]:5432/app"),
        ] {
            assert_eq!(of(url).map(|backend| backend.shown()).as_deref(), Ok(shown), "{url}");
        }
    }

    #[test]
    fn no_password_is_shown_whatever_the_url_looks_like() {
        for url in [
            "postgres://me:hunter2@db/app",
            "postgres://me:hunter2",
            "postgres:me:hunter2@db",
            "postgres://me:x/hunter2@db/app",
            "postgres://me:#hunter2@db/app",
            "postgres://me:hunter2@db:port/app",
            "postgres://db/app?password=hunter2",
            "hunter2:5432/app",
            "hunter2",
            "postgres://me:hunter2@/app",
        ] {
            let found = of(url);
            assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
        }
    }
}
