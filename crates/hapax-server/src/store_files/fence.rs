//! `hapax store fence`: shown, raised after a recovery by other means, lifted.
//!
//! What a fence does at a claim is in the library (`hapax::fence`). Raising one also takes back what may have been overtaken:
//! a record of the backup that stood to be run may have run in what was lost, and the rules make it `unknown`; one that was
//! unknown already is in doubt since the restore.

use std::time::Duration;

use hapax::fence::{self, Fence};
use hapax::remembered::SPACE;
use hapax::tokens;
use hapax_core::clock::{Now, Timestamp};
use hapax_core::engine::{Engine, EngineError};
use hapax_core::journal::{Journal, Note};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::Labels;
use hapax_core::store::{Entry, Scan, Seen, Store, StoreError};
use hapax_core::transition::Event;

use super::StoreFileError;
use super::args::FenceArgs;
use super::open;
use crate::config::unprobed::ProbeCount;
use crate::config::{self, Config};
use crate::flags::{who, without_token};
use crate::timestamp;

/// What raising a fence came to.
pub(super) struct Raised {
    pub(super) fence: Fence,
    /// Records that were ready and are unknown now.
    pub(super) suspected: u64,
}

/// Shows, raises or lifts.
pub(super) async fn run(args: &FenceArgs, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    // For how long a fence must stand, and which routes have a probe. To look at one, or to lift it, the store says enough.
    let loaded = config::load(&args.store.sources(without_token(environment.clone())));
    let config = if args.raise { Some(loaded?) } else { loaded.ok() };
    let who = who(&args.actor, &environment);
    let store = open::existing(&args.store, environment).await?;
    let now = time_of(&store).await?;
    let reason = args.reason.as_deref().unwrap_or_default();
    if (args.raise || args.lift) && reason.trim().is_empty() {
        return Err(StoreFileError::Usage("`--reason` is empty; say why in a sentence".to_owned()));
    }
    if let Some(config) = config.as_ref().filter(|_| args.raise) {
        let since = args.since.as_deref().and_then(timestamp::read).ok_or_else(no_time)?;
        if since > now {
            return Err(StoreFileError::Usage("`--since` has not come yet; give the time of the backup".to_owned()));
        }
        let note = note(&who, "raise-fence", reason, "");
        let raised = raise(&store, since, longest_retention(config), &note).await?;
        return Ok(format!("{}{}", shown(&raised.fence, Some(config)), suspected(&raised)));
    }
    if args.lift {
        let Some(standing) = fence::standing(&store).await? else {
            return Ok("No fence stands; nothing to lift.\n".to_owned());
        };
        let stood = format!("stood since {}", timestamp::text(standing.restored_at));
        fence::lift(&store, &note(&who, "lift-fence", reason, &stood)).await?;
        return Ok(
            "The fence is lifted. Nodes notice within a few seconds: from then on every new key runs.\n\
             Keys that began under it stay unknown until they are probed or resolved: `hapax keys list --state unknown`.\n"
                .to_owned()
        );
    }
    let standing = fence::standing(&store).await?;
    Ok(standing.map_or_else(|| "No fence stands.\n".to_owned(), |fence| shown(&fence, config.as_ref())))
}

/// Raises a fence over everything claimed since then, and takes back what stood to be run. Each change is kept with its note.
pub(super) async fn raise(
    store: &impl Journal,
    lost_since: Timestamp,
    retention: Duration,
    note: &Note,
) -> Result<Raised, StoreError> {
    let restored_at = time_of(store).await?;
    let lasting = |ms: u64| Fence { lost_since, restored_at, until: restored_at.plus_ms(ms) };
    let configured_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    // First the fence, so that no key comes free while the records are read; then its end, which hangs on them.
    let fence = lasting(configured_ms);
    fence::raise(store, fence, &Note { detail: detail(&fence), ..note.clone() }).await?;
    let (mut suspected, mut longest_ms) = (0, configured_ms);
    let mut query = Scan { limit: PAGE_ENTRIES_MAX, ..Scan::default() };
    loop {
        let page = store.scan(&query).await?;
        for entry in page.entries.iter().filter(|entry| entry.address.space().as_str() != SPACE) {
            let policy = &entry.stored.record.policy;
            longest_ms = longest_ms.max(policy.retention_ms.saturating_add(policy.keep_expired_ms.unwrap_or(0)));
            suspected += u64::from(suspect(store, entry, page.now, restored_at, note).await?);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    if longest_ms > configured_ms {
        let fence = lasting(longest_ms);
        let what = "extend-fence".to_owned();
        fence::raise(store, fence, &Note { what, detail: detail(&fence), ..note.clone() }).await?;
    }
    let standing = fence::standing(store).await?;
    Ok(Raised { fence: standing.unwrap_or_else(|| lasting(longest_ms)), suspected })
}

/// A record that stands to be run may have run in what was lost. True where it is unknown now and was not before.
async fn suspect(
    store: &impl Journal,
    entry: &Entry,
    now: Now,
    since: Timestamp,
    note: &Note,
) -> Result<bool, StoreError> {
    let Entry { address, stored } = entry;
    // What has expired is free, and suspected when somebody claims it. Accepted work is not: it would be said never to have run.
    let has_expired = stored.expires_at().is_some_and(|expires_at| now.has_reached(expires_at));
    if has_expired && stored.record.request.is_none() {
        return Ok(false);
    }
    let (fingerprints, policy) = (&stored.record.fingerprint, stored.record.policy);
    let event = Event::Suspect { since, fingerprints, policy, labels: &Labels::default() };
    let seen = Seen { stored: Some(stored.clone()), now };
    let note = Note { what: "suspect".to_owned(), ..note.clone() };
    let engine = Engine::new(store, tokens::random as tokens::Random);
    match engine.apply_once_noted(address, &event, seen, &note).await {
        Ok(Some(reply)) => Ok(reply.wrote && reply.record().is_some_and(|record| record.state != stored.record.state)),
        // A write that came first was made after the restore, and knows what it did. What cannot be compared is not claimed.
        Ok(None) | Err(EngineError::Scheme(_) | EngineError::Contended) => Ok(false),
        Err(EngineError::Store(error)) => Err(error),
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

fn detail(fence: &Fence) -> String {
    format!("lost since {}, until {}", timestamp::text(fence.lost_since), timestamp::text(fence.until))
}

/// What a fence means, in the words of those who will be called about it.
pub(super) fn shown(fence: &Fence, config: Option<&Config>) -> String {
    let Fence { lost_since, restored_at, until } = fence;
    let number = |count: usize| config.map_or_else(|| "not known".to_owned(), |_| count.to_string());
    let ProbeCount { with, without } = config.map_or(ProbeCount { with: 0, without: 0 }, ProbeCount::of);
    let (with, without) = (number(with), number(without));
    let source = match config.and_then(|config| config.file.as_ref()) {
        Some(file) => file.display().to_string(),
        None => "no configuration file was read; name the nodes' with --config".to_owned(),
    };
    format!(
        "A fence stands: what was claimed from {lost} to {back} may be lost.\n\
         Every new key gets 409 outcome-unknown for up to {lasts}, until {end}: it may have run in the lost time. Only a \
         UUIDv7 made a minute after {back} or later runs at once.\n\
         Routes with a probe: {with}. The probe finds out, and the client's next retry is answered or runs.\n\
         Routes without a probe: {without}. A person must decide every such key: hapax keys list --state unknown, hapax keys resolve.\n\
         (Routes as in {source}.)\n\
         hapax status needs attention meanwhile.\n\
         It falls by itself at {end}; lift it earlier with hapax store fence --lift --reason TEXT.\n",
        lost = timestamp::text(*lost_since),
        back = timestamp::text(*restored_at),
        end = timestamp::text(*until),
        lasts = length(restored_at.ms_until(*until)),
    )
}

/// Days, or hours, or minutes: whichever is a number that people can use.
fn length(ms: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")];
    let (count, unit) = UNITS
        .into_iter()
        .map(|(size, unit)| (ms.div_ceil(size), size, unit))
        .find(|(count, size, _)| *count >= 2 || ms >= *size)
        .map_or((1, "minute"), |(count, _, unit)| (count, unit));
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
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
