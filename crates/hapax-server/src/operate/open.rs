//! Which desk: the store itself, or a running node. And who acts.
//!
//! A store is opened only where it is already, and nothing is swept, reaped or probed meanwhile.

use std::path::Path;
use std::sync::Arc;

use super::args::Place;
use super::failure::Failure;
use crate::config::unprobed::ProbeCount;
use crate::config::{self, Backend, FlagValue, Secret, Sources};
use crate::desk::direct::Direct;
use crate::desk::remote::{Remote, TOKEN, TOKEN_FILE};
use crate::desk::view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StatusView,
};
use crate::desk::{Desk, DeskError, DeskErrorKind};
use crate::flags::without_token;
use crate::store::AnyStore;
use crate::store::ceiling::Ceiling;

/// One of the desks.
#[derive(Debug)]
pub(super) enum AnyDesk {
    /// On the store itself.
    Direct(Direct),
    /// At a running node.
    Remote(Remote),
}

/// Opens the desk that the flags name.
pub(super) async fn desk(place: &Place, environment: Vec<(String, String)>) -> Result<AnyDesk, Failure> {
    if let Some(url) = &place.admin {
        let token = token(&environment)?;
        return Ok(AnyDesk::Remote(Remote::new(url, token.as_ref().map(Secret::expose), None)?));
    }
    let store = place.store.clone().map(|value| FlagValue { flag: "--store", key: "store.url", value });
    let sources = Sources {
        file: place.config.clone(),
        environment: without_token(environment),
        flags: store.into_iter().collect(),
        new_addresses: false,
        without_upstream: true,
        directory: Some(".".into()),
    };
    let store = config::load_store(&sources).map_err(Failure::Configuration)?;
    // Without a file that can be read this command does not know what the nodes' routes are.
    let config = config::load(&sources).ok().filter(|config| config.file.is_some());
    let ceiling = Arc::new(Ceiling::new(&store));
    let desk = Direct::new(open_store(&store).await?).with_ceiling(ceiling);
    Ok(AnyDesk::Direct(match &config {
        None => desk,
        Some(config) => desk.with_probes(ProbeCount::of(config)),
    }))
}

fn token(environment: &[(String, String)]) -> Result<Option<Secret>, Failure> {
    let value = |name: &str| environment.iter().find(|(known, value)| known == name && !value.is_empty());
    match (value(TOKEN), value(TOKEN_FILE)) {
        (Some(_), Some(_)) => Err(Failure::usage(format!("{TOKEN} and {TOKEN_FILE} are both set; unset one"))),
        (Some((_, token)), None) => Ok(Some(Secret::new(token.trim()))),
        (None, Some((_, path))) => {
            let read = config::read_secret(Path::new(path));
            read.map(Some).map_err(|why| Failure::usage(format!("{TOKEN_FILE}: {why}")))
        }
        (None, None) => Ok(None),
    }
}

async fn open_store(config: &config::Store) -> Result<AnyStore, DeskError> {
    let away = |message: String| Err(DeskError::new(DeskErrorKind::Unavailable, message));
    match &config.backend {
        Backend::Memory => away("a store in memory is inside its node; name the node with --admin URL".to_owned()),
        Backend::Sqlite { path } if !path.is_file() => {
            let path = path.display();
            away(format!("there is no store at {path}; name it with --store sqlite:FILE, or a node with --admin URL"))
        }
        _ => Ok(AnyStore::open_existing(config).await?),
    }
}

macro_rules! each {
    ($self:ident, $desk:ident => $call:expr) => {
        match $self {
            Self::Direct($desk) => $call,
            Self::Remote($desk) => $call,
        }
    };
}

impl Desk for AnyDesk {
    async fn status(&self) -> Result<StatusView, DeskError> {
        each!(self, desk => desk.status().await)
    }

    async fn list(&self, filter: &Filter, after: Option<&str>, limit: u32) -> Result<PageView, DeskError> {
        each!(self, desk => desk.list(filter, after, limit).await)
    }

    async fn show(&self, id: &str, body: bool) -> Result<RecordView, DeskError> {
        each!(self, desk => desk.show(id, body).await)
    }

    async fn resolve(&self, request: &ResolutionRequest, who: &str) -> Result<ChangeView, DeskError> {
        each!(self, desk => desk.resolve(request, who).await)
    }

    async fn purge(&self, request: &PurgeRequest, who: &str) -> Result<PurgeView, DeskError> {
        each!(self, desk => desk.purge(request, who).await)
    }

    async fn audit(&self, id: Option<&str>, before: Option<u64>, limit: u32) -> Result<AuditView, DeskError> {
        each!(self, desk => desk.audit(id, before, limit).await)
    }
}
