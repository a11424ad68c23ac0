//! `hapax.toml`, the environment and the flags, made into one checked configuration.
//!
//! A flag beats a variable, which beats the file, which beats the default. [`load`] is the only way to a [`Config`]: a
//! start, a reload and `hapax config check` run the same checks, and report every problem in one go.
//!
//! | module | what it is |
//! |---|---|
//! | `model`, [`policy`], `probe` | the result: plain data with its defaults |
//! | `source`, `environment` | where settings come from |
//! | `reader` | who wins, and which keys nobody knows |
//! | `sections`, `read_admin`, `read_policy`, `read_scope`, `read_store` | which keys there are |
//! | `value`, `choice`, `units`, `secret` | types of values |
//! | `check`, `check_policy`, `host` | which values fit together |
//! | `show`, `reload`, `changes` | what operators see, what a reload cannot change, and what it did change |

mod changes;
mod check;
mod check_fields;
mod check_policy;
mod choice;
mod environment;
mod host;
mod model;
pub mod policy;
mod probe;
mod problem;
mod read_admin;
mod read_policy;
mod read_scope;
mod read_store;
mod reader;
mod reload;
mod secret;
mod sections;
mod show;
mod source;
pub(crate) mod units;
pub(crate) mod unprobed;
mod value;

pub(crate) use changes::changes;
pub use hapax_core::record::OnLapse;
pub use hapax_proxy::network::{InvalidNetwork, Network};
pub use model::{
    Admin, AdminToken, Ask, Backend, Background, Config, Cors, Dialect, FingerprintKeys, HmacKey, Jwt, JwtAlgorithm,
    JwtKeys, KeySyntax, Keys, Log, LogFormat, Mode, Place, Role, Route, Scope, ScopeKind, Server, Store, Tls, Upstream,
};
pub use policy::Policy;
pub use probe::{Condition, KEYS as PROBE_KEYS, Piece, Probe, ProbeAnswer, Sign, Template};
pub use problem::{ConfigErrors, Origin, Problem};
pub(crate) use read_admin::OPERATOR;
pub(crate) use read_store::exposed_store;
pub use reader::Setting;
pub use secret::Secret;
pub(crate) use secret::read_file as read_secret;
pub use show::show;
pub use source::{FILE_DEFAULT, FILE_VARIABLE, FlagValue, Sources};
pub(crate) use units::{duration, show_duration};
pub(crate) use value::without_query;

use reader::{Entries, Reader};
use source::Override;

/// The file with every key, its comment and its default.
pub const DEFAULT_FILE: &str = include_str!("../../hapax.default.toml");

/// A configuration with the story of each value.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The configuration, or what is wrong with it.
    pub config: Result<Config, ConfigErrors>,
    /// Every setting as far as it could be read.
    pub settings: Vec<Setting>,
}

/// Reads and checks a configuration. It can be called again: the file is read anew.
///
/// # Errors
///
/// Where anything is wrong: all problems that were found, in the order of the file.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    explain(sources).config
}

/// What else leads to a store that a flag names.
const WAY_TO_STORE: [&str; 2] = ["store.schema", "store.ca_file"];

/// What its nodes go by.
const LIMITS_OF_STORE: [&str; 3] = ["store.rows_max", "store.bytes_max", "store.free_disk_min"];

/// The store that a flag names, for a command that needs nothing else. What the configuration says of it (a schema, a CA, limits)
/// counts where it can be read; a broken file is no reason to go without looking at the store.
///
/// # Errors
///
/// Where no flag names a store and the configuration is wrong, or the flag itself is.
pub fn load_store(sources: &Sources) -> Result<Store, ConfigErrors> {
    let Explained { config, settings } = explain(sources);
    let errors = match config {
        Ok(config) => return Ok(config.store),
        Err(errors) => errors,
    };
    let Some(named) = sources.flags.iter().find(|flag| flag.key == "store.url") else { return Err(errors) };
    let said = |key: &'static str| {
        let is_set = |setting: &&Setting| setting.key == key && setting.origin != Origin::Default;
        let value = settings.iter().find(is_set)?.value.trim_matches('"').to_owned();
        Some(FlagValue { flag: named.flag, key, value })
    };
    let with = |keys: &[&'static str]| {
        let flags = std::iter::once(named.clone()).chain(keys.iter().filter_map(|key| said(key))).collect();
        load(&Sources { flags, without_upstream: true, ..Sources::default() }).map(|config| config.store)
    };
    // A limit may be what is wrong; it says nothing about the way to the store.
    with(&[&WAY_TO_STORE[..], &LIMITS_OF_STORE].concat()).or_else(|_| with(&WAY_TO_STORE)).map_err(|_| errors)
}

/// Reads and checks a configuration, and keeps where each value comes from.
#[must_use]
pub fn explain(sources: &Sources) -> Explained {
    let mut problems = Vec::new();
    let path = sources.named_file();
    let root = path.as_deref().map(|path| source::read_file(path, &mut problems)).unwrap_or_default();
    // A file that could not be read would make many a problem that is none.
    let file_is_whole = problems.is_empty();
    let overrides = overrides(sources, &mut problems);
    let mut reader = Reader::new(path.as_deref(), &overrides);
    let config = read_and_check(&mut reader, &root, sources);
    let Reader { problems: found, settings, .. } = reader;
    if file_is_whole {
        problems.extend(found);
    }
    problems.sort_by_key(|problem| match problem.origin {
        Origin::File { line, .. } => (problem.origin.rank(), line),
        _ => (problem.origin.rank(), 0),
    });
    let config = if problems.is_empty() { Ok(config) } else { Err(ConfigErrors(problems)) };
    Explained { config, settings }
}

/// Every key outside of routes, with its section: `server.from`. A route has `methods`, `path` and the keys of
/// `defaults`.
#[must_use]
pub fn keys() -> Vec<String> {
    let mut reader = Reader::new(None, &[]);
    sections::read(&mut reader, &[]);
    reader.settings.into_iter().map(|setting| setting.key).collect()
}

/// What flags and variables say, the strongest first.
fn overrides(sources: &Sources, problems: &mut Vec<Problem>) -> Vec<Override> {
    let of_flag = |flag: &FlagValue| Override {
        key: flag.key.to_owned(),
        text: flag.value.clone(),
        origin: Origin::Flag(flag.flag),
    };
    let mut found: Vec<Override> = sources.flags.iter().map(of_flag).collect();
    found.extend(environment::read(&sources.environment, &keys(), problems));
    found
}

fn read_and_check<'a>(reader: &mut Reader<'a>, root: &'a Entries, sources: &Sources) -> Config {
    let mut config = sections::read(reader, root);
    reader.refuse_unknown();
    check::config(reader, &config, sources.without_upstream);
    check_policy::policies(reader, &config);
    if !sources.without_upstream {
        check_policy::probes(reader, &config);
    }
    config.new_addresses = sources.new_addresses;
    if config.mode == Mode::Observe {
        config.defaults.mode = Mode::Observe;
        config.routes.iter_mut().for_each(|route| route.policy.mode = Mode::Observe);
    }
    config.routes.sort_by_key(|route| std::cmp::Reverse(route.path.specificity()));
    config
}
