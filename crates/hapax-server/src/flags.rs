//! Flags that several commands have, and what they mean for the configuration.
//!
//! A flag that sets a key says which; its value is read and refused by the configuration, like one from a file, so that
//! both are explained in the same words.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hapax_core::limits::NOTE_WORD_BYTES_MAX;

use crate::config::{FlagValue, Sources};
use crate::desk::remote::{TOKEN, TOKEN_FILE};

/// Whether requests need a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeysFlag {
    /// A POST or PATCH without a key is refused
    Required,
    /// A request without a key is passed through
    Optional,
}

/// The flags of `hapax proxy`. Each beats the environment and the file.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// The API to protect, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// sqlite:FILE, postgres:... [default: sqlite:hapax.db]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// What holds for a request.
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// For operators, or "off" [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Certificate for TLS, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<String>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<String>,
    /// Certificates to trust besides the system's, PEM
    #[arg(long, value_name = "FILE")]
    pub upstream_ca: Option<String>,
    /// Accept a new address scheme: old keys are forgotten
    #[arg(long)]
    pub new_addresses: bool,
    /// The configuration [default: hapax.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The flags that say what holds for a request. `hapax routes` takes them too, so that it judges by what the proxy does.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyFlags {
    /// Whose key it is
    #[arg(long, value_name = "KIND", help = "credential[:NAME], header:NAME, jwt, ask, single")]
    pub scope: Vec<String>,
    /// Requests without a credential share one scope
    #[arg(long)]
    pub anonymous: bool,
    /// required or optional [default: required]
    #[arg(long, value_enum, value_name = "NEED", hide_possible_values = true)]
    pub keys: Option<KeysFlag>,
    /// Refuse and replay nothing; only count and log
    #[arg(long)]
    pub observe: bool,
    /// Answer as ietf or as stripe does [default: ietf]
    #[arg(long, value_name = "NAME")]
    pub dialect: Option<String>,
}

impl Flags {
    /// What a configuration is made from, with that environment.
    #[must_use]
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        Sources {
            file: self.config.clone(),
            environment,
            flags: self.values(),
            new_addresses: self.new_addresses,
            without_upstream: false,
            directory: Some(".".into()),
        }
    }

    /// The flags that set a key.
    fn values(&self) -> Vec<FlagValue> {
        let policy = &self.policy;
        let required = policy.keys.map(|keys| (keys == KeysFlag::Required).to_string());
        let scope = (!policy.scope.is_empty()).then(|| policy.scope.join(","));
        let all = [
            ("--to", "upstream.to", self.to.clone()),
            ("--from", "server.from", self.from.clone()),
            ("--store", "store.url", self.store.clone()),
            ("--scope", "scope", scope),
            ("--anonymous", "anonymous", policy.anonymous.then(|| "true".to_owned())),
            ("--keys", "defaults.required", required),
            ("--observe", "mode", policy.observe.then(|| "observe".to_owned())),
            ("--dialect", "dialect", policy.dialect.clone()),
            ("--admin", "admin.from", self.admin.clone()),
            ("--tls-cert", "server.tls_cert", self.tls_cert.clone()),
            ("--tls-key", "server.tls_key", self.tls_key.clone()),
            ("--upstream-ca", "upstream.ca_file", self.upstream_ca.clone()),
        ];
        let given = all.into_iter().filter_map(|(flag, key, value)| Some(FlagValue { flag, key, value: value? }));
        given.collect()
    }
}

/// Which store.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreFlags {
    /// A store [default: as configured]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// The configuration [default: hapax.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl StoreFlags {
    /// What a configuration is made from. No upstream is needed: nothing is forwarded.
    #[must_use]
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let flags = Flags { config: self.config.clone(), store: self.store.clone(), ..Flags::default() };
        Sources { without_upstream: true, ..flags.sources(environment) }
    }

    /// The same for a command that needs nothing but the store's place: where a flag names it, nothing else is read, so that a
    /// broken file is no reason to go without a backup.
    pub(crate) fn sources_of_place(&self, environment: Vec<(String, String)>) -> Sources {
        match &self.store {
            Some(_) => Sources { directory: None, ..Self { config: None, ..self.clone() }.sources(Vec::new()) },
            None => self.sources(environment),
        }
    }
}

/// Who acts, for the audit log.
#[derive(Clone, Debug, Default, Args)]
pub struct Actor {
    /// Who acts; without it user@host
    #[arg(long = "as", value_name = "NAME", value_parser = name)]
    pub who: Option<String>,
}

/// A name that a note can hold.
fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || name.len() > NOTE_WORD_BYTES_MAX {
        return Err(format!("a name has 1 to {NOTE_WORD_BYTES_MAX} bytes; say who acts"));
    }
    Ok(name.to_owned())
}

/// What a person shows to a node is not what a node is configured with.
pub(crate) fn without_token(environment: Vec<(String, String)>) -> Vec<(String, String)> {
    environment.into_iter().filter(|(name, _)| name != TOKEN && name != TOKEN_FILE).collect()
}

/// Who acts: as they say, or the user of this host; by number where the environment has no name for it.
pub(crate) fn who(actor: &Actor, environment: &[(String, String)]) -> String {
    if let Some(said) = &actor.who {
        return said.clone();
    }
    let value = |name: &str| environment.iter().find(|(known, value)| known == name && !value.is_empty());
    let named = value("USER").or_else(|| value("LOGNAME")).map(|(_, user)| user.clone());
    let user = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let system = rustix::system::uname();
    format!("{user}@{}", system.nodename().to_string_lossy())
}
