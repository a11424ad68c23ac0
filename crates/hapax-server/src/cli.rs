//! The commands of `hapax` and their flags.
//!
//! A flag that sets a key says which; its value is read and refused by the configuration, like one from a file, so that
//! both are explained in the same words. Left to others: what commands do (`main`).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{FlagValue, Sources};
use crate::ledger::args::LedgerArgs;
use crate::operate::args::Operation;
use crate::store_files::args::StoreCommand;

/// State-changing work, once: idempotency for any HTTP API
#[derive(Debug, Parser)]
#[command(name = "hapax", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand in front of an API, and answer retries from the record
    Proxy(Flags),
    /// Check, show or explain the configuration
    Config {
        /// Which of these.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// List the routes, and what is called without protection
    Routes(RoutesArgs),
    /// Compare a provider's records with hapax's, and settle by them
    Reconcile(LedgerArgs),
    /// Back up, restore and fence the store
    Store {
        /// Which of these.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// What an operator does.
    #[command(flatten)]
    Operate(Operation),
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Find what `hapax proxy` would refuse, except by its store and ports
    Check(Flags),
    /// Print every setting as it is in force
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
        /// The flags of the proxy.
        #[command(flatten)]
        flags: Flags,
    },
    /// Print a file with every key, its meaning and its default
    Default,
}

/// The flags of `hapax routes`.
#[derive(Debug, Args)]
pub struct RoutesArgs {
    /// An access log: NDJSON, Common or Combined Log Format
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How to print: text, json
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Output::Text, hide_possible_values = true)]
    pub output: Output,
    /// The flags of the proxy that say what holds for a request.
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// The configuration [default: hapax.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

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

impl RoutesArgs {
    /// What a configuration is made from. No upstream is needed: nothing is forwarded.
    #[must_use]
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let flags = Flags { config: self.config.clone(), policy: self.policy.clone(), ..Flags::default() };
        Sources { without_upstream: true, ..flags.sources(environment) }
    }
}
