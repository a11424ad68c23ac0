//! `hapax store fence`: shown, raised after a recovery by other means, lifted.
//!
//! What a fence does at a claim is in the library (`hapax::fence`). Raising one also takes back what may have been overtaken:
//! a record that stood `ready` in the backup may have run in what was lost, so it becomes `unknown`.

use std::time::Duration;

use hapax::fence::{self, Fence};
use hapax::remembered::SPACE;
use hapax::tokens;
use hapax_core::clock::Timestamp;
use hapax_core::journal::{Journal, Note};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::{Doubt, OnLapse, Record, State, Stored, Version};
use hapax_core::store::{Entry, Scan, Store, StoreError, Swap};

use super::StoreFileError;
use super::args::FenceArgs;
use super::open;
use crate::config::{self, Config};
use crate::desk::moment;
use crate::operate::{who, without_token};

/// What raising a fence came to.
pub(super) struct Raised {
    pub(super) fence: Fence,
    /// Records that were ready and are unknown now.
    pub(super) suspected: u64,
}

/// Shows, raises or lifts.
pub(super) async fn run(args: &FenceArgs, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    let config = config::load(&args.store.sources(without_token(environment.clone())))?;
    let who = who(None, &environment);
    let store = open::existing(&args.store, environment).await?;
    let now = time_of(&store).await?;
    let reason = args.reason.as_deref().unwrap_or_default();
    if (args.raise || args.lift) && reason.trim().is_empty() {
        return Err(StoreFileError::Usage("`--reason` is empty; say why in a sentence".to_owned()));
    }
    // What cannot be noted is not done.
    note(&who, "fence", reason, "").check_limits()?;
    if args.raise {
        let since = args.since.as_deref().and_then(moment::read).ok_or_else(no_time)?;
        if since > now {
            return Err(StoreFileError::Usage("`--since` has not come yet; give the time of the backup".to_owned()));
        }
        let raised = raise(&store, since, longest_retention(&config)).await?;
        store.note(&note(&who, "raise-fence", reason, &detail(&raised))).await?;
        return Ok(format!("{}{}", shown(&raised.fence), suspected(&raised)));
    }
    if args.lift {
        let Some(fence) = fence::lift(&store).await?.filter(|fence| now < fence.until) else {
            return Ok("No fence stands; nothing to lift.\n".to_owned());
        };
        store
            .note(&note(&who, "lift-fence", reason, &format!("stood since {}", moment::text(fence.restored_at))))
            .await?;
        return Ok(
            "The fence is lifted. Nodes notice within a few seconds: from then on every new key runs.\n".to_owned()
        );
    }
    let standing = fence::standing(&store, now).await?;
    Ok(standing.map_or_else(|| "No fence stands.\n".to_owned(), |fence| shown(&fence)))
}

/// Raises a fence over everything claimed since then, and takes back what was ready.
pub(super) async fn raise(
    store: &impl Store,
    lost_since: Timestamp,
    retention: Duration,
) -> Result<Raised, StoreError> {
    let restored_at = time_of(store).await?;
    let mut retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    // First the fence, so that no key comes free while the records are read; then its end, which hangs on them.
    fence::raise(store, Fence { lost_since, restored_at, until: restored_at.plus_ms(retention_ms) }).await?;
    let mut suspected = 0;
    let mut query = Scan { limit: PAGE_ENTRIES_MAX, ..Scan::default() };
    loop {
        let page = store.scan(&query).await?;
        for entry in page.entries.iter().filter(|entry| entry.address.space().as_str() != SPACE) {
            let policy = &entry.stored.record.policy;
            let kept_ms = policy.retention_ms.saturating_add(policy.keep_expired_ms.unwrap_or(0));
            retention_ms = retention_ms.max(kept_ms);
            suspected += u64::from(suspect(store, entry).await?);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let fence = Fence { lost_since, restored_at, until: restored_at.plus_ms(retention_ms) };
    fence::raise(store, fence).await?;
    let standing = fence::standing(store, restored_at).await?;
    Ok(Raised { fence: standing.unwrap_or(fence), suspected })
}

/// A record that may start may have started in what was lost. True where it is unknown now.
async fn suspect(store: &impl Store, entry: &Entry) -> Result<bool, StoreError> {
    let record = &entry.stored.record;
    // An attempt that ran at the backup has ended, one way or the other; only under this policy it says so by itself.
    let may_run_again = match record.state {
        State::Ready => true,
        State::Running => record.policy.on_lapse != OnLapse::Unknown,
        _ => false,
    };
    if !may_run_again {
        return Ok(false);
    }
    let expect = entry.stored.record.version;
    // Whoever was faster wrote after the restore, and knows what it did.
    let swapped = store.swap(&entry.address, Some(expect), &doubted(&entry.stored)).await?;
    Ok(matches!(swapped, Swap::Applied(_)))
}

/// In doubt since now, and due at once.
fn doubted(stored: &Stored) -> Record {
    Record {
        version: Version::from_bytes(tokens::random()),
        state: State::Unknown,
        due_in_ms: Some(0),
        expires_in_ms: None,
        created_at: Some(stored.created_at()),
        error: Some("restored".to_owned()),
        verdict: None,
        doubt: Some(Doubt { since: None, probes: 0 }),
        ..stored.record.clone()
    }
}

/// Lost answers were kept as long as the routes say.
pub(super) fn longest_retention(config: &Config) -> Duration {
    let kept = |policy: &config::Policy| policy.retention.saturating_add(policy.keep_expired.unwrap_or_default());
    let routes = config.routes.iter().map(|route| kept(&route.policy));
    routes.chain([kept(&config.defaults)]).max().unwrap_or_default()
}

pub(super) async fn time_of(store: &impl Store) -> Result<Timestamp, StoreError> {
    Ok(store.scan(&Scan { limit: 1, ..Scan::default() }).await?.now.at)
}

pub(super) fn note(who: &str, what: &str, reason: &str, detail: &str) -> Note {
    Note {
        who: who.to_owned(),
        what: what.to_owned(),
        about: None,
        before: None,
        after: None,
        reason: reason.to_owned(),
        detail: detail.to_owned(),
    }
}

pub(super) fn detail(raised: &Raised) -> String {
    let Raised { fence, suspected } = raised;
    let (since, until) = (moment::text(fence.lost_since), moment::text(fence.until));
    format!("lost since {since}, until {until}; {suspected} ready records became unknown")
}

pub(super) fn shown(fence: &Fence) -> String {
    let Fence { lost_since, restored_at, until } = fence;
    format!(
        "A fence stands: what was claimed from {} to {} may be lost.\n\
         A key that could be one of those starts as unknown and is probed before anything runs.\n\
         It falls by itself at {}; lift it earlier with hapax store fence --lift --reason TEXT.\n",
        moment::text(*lost_since),
        moment::text(*restored_at),
        moment::text(*until),
    )
}

pub(super) fn suspected(raised: &Raised) -> String {
    match raised.suspected {
        0 => String::new(),
        count => format!("{count} records that stood ready may have run since, and are unknown now.\n"),
    }
}

fn no_time() -> StoreFileError {
    let why = "`--raise` needs --since with the time of the backup or recovery target, such as 2026-11-16T12:00:00Z";
    StoreFileError::Usage(why.to_owned())
}
