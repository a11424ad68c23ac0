//! What holds for a request: the policy of a route, or the default one.
//!
//! Names and defaults are those of DESIGN's contract; a route says only what differs. Left to others: which route a
//! request belongs to, and acting on it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use hapax_core::canonical_json::Pointer;
use hapax_core::fingerprint::{InvalidRecipe, Recipe};
use hapax_core::limits::BODY_BYTES_MAX;
use hapax_core::record::{self, OnLapse};
use http::{HeaderName, StatusCode};

pub use super::choice::{Counted, InFlight, KeyFormat, KeyPer, Meaning, Mode, ReplayCheck};
use super::model::count;
use super::probe::Probe;
use super::problem::did_you_mean;
use super::value::{Fault, Value, quoted};

/// What holds for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Protected at all; otherwise passed through.
    pub protect: bool,
    /// A request without a key is refused.
    pub required: bool,
    /// Whether hapax acts or only looks.
    pub mode: Mode,
    /// How long a recorded answer is kept, from completion.
    pub retention: Duration,
    /// After how long without a sign of life an attempt counts as dead. It is renewed while the attempt lives.
    pub lease: Duration,
    /// What that means for the key.
    pub on_lapse: OnLapse,
    /// What a complete 500 or 503 answer means.
    pub on_server_error: Meaning,
    /// What a complete 502, 504 or any other answer from 500 on means.
    pub on_gateway_error: Meaning,
    /// What a retry gets while the first request runs.
    pub in_flight: InFlight,
    /// The longest wait for an answer, by `in_flight = "wait"` or the client's `Prefer: wait=N`.
    pub wait_max: Duration,
    /// Within what a key is unique.
    pub key_per: KeyPer,
    /// What keys look like.
    pub key_format: KeyFormat,
    /// The shortest key that is accepted.
    pub key_length_min: u8,
    /// The oldest key that is accepted, by the time in a UUID of version 7.
    pub key_age_max: Option<Duration>,
    /// The oldest request that is accepted, by the time in `request_time_header`.
    pub request_age_max: Option<Duration>,
    /// The field that holds the time of a request, set by a gateway or covered by a signature.
    pub request_time_header: Option<HeaderName>,
    /// What of a body counts when requests are compared.
    pub fingerprint: Counted,
    /// The pointers for `only` and `except`.
    pub fingerprint_pointers: Vec<Pointer>,
    /// Header fields that count besides those that always do.
    pub fingerprint_headers: Vec<HeaderName>,
    /// The largest request body; larger ones get 413.
    pub request_bytes_max: usize,
    /// The largest answer that is kept.
    pub answer_bytes_max: usize,
    /// `Set-Cookie` is kept and replayed.
    pub keep_cookies: bool,
    /// Statuses that are passed on and leave the key free.
    pub not_stored: Vec<StatusCode>,
    /// How long such a key waits for its next attempt; `None`: for `retention`.
    pub not_stored_retention: Option<Duration>,
    /// New keys per second and caller.
    pub new_keys_per_second: Option<NonZeroU32>,
    /// Look-ups per second and caller.
    pub lookups_per_second: Option<NonZeroU32>,
    /// Who is asked before a recorded answer is sent.
    pub replay_check: ReplayCheck,
    /// How long an expired key answers 410; `None` makes it free at once.
    pub keep_expired: Option<Duration>,
    /// After how many attempts a person has to decide; `None` for no end.
    pub attempts_max: Option<NonZeroU32>,
    /// Business identifiers to find a record by.
    pub labels: BTreeMap<String, LabelSource>,
    /// How an unknown outcome is found out; `None` leaves it to people.
    pub probe: Option<Probe>,
    /// How long a request must have been in doubt before a probe's "it did not happen" counts.
    pub settle_after: Duration,
    /// After how many probes that could not tell a person has to decide.
    pub probe_attempts: NonZeroU32,
    /// The pause after the first probe that could not tell; each one after that is twice as long.
    pub probe_backoff: Duration,
}

/// Where the value of a label stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelSource {
    /// In the JSON body of the request.
    Request(Pointer),
    /// In the JSON body of the answer.
    Answer(Pointer),
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            protect: true,
            required: true,
            mode: Mode::Enforce,
            retention: Duration::from_secs(24 * 60 * 60),
            lease: Duration::from_secs(30),
            on_lapse: OnLapse::Unknown,
            on_server_error: Meaning::Ready,
            on_gateway_error: Meaning::Unknown,
            in_flight: InFlight::Conflict,
            wait_max: Duration::from_secs(10),
            key_per: KeyPer::Caller,
            key_format: KeyFormat::Any,
            key_length_min: 1,
            key_age_max: None,
            request_age_max: None,
            request_time_header: None,
            fingerprint: Counted::Whole,
            fingerprint_pointers: Vec::new(),
            fingerprint_headers: Vec::new(),
            request_bytes_max: 1024 * 1024,
            answer_bytes_max: BODY_BYTES_MAX,
            keep_cookies: false,
            not_stored: vec![
                StatusCode::UNAUTHORIZED,
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::TOO_EARLY,
                StatusCode::TOO_MANY_REQUESTS,
            ],
            not_stored_retention: Some(Duration::from_secs(10 * 60)),
            new_keys_per_second: None,
            lookups_per_second: None,
            replay_check: ReplayCheck::None,
            keep_expired: None,
            attempts_max: None,
            labels: BTreeMap::new(),
            probe: None,
            settle_after: Duration::from_secs(120),
            probe_attempts: count(10),
            probe_backoff: Duration::from_secs(5),
        }
    }
}

impl Policy {
    /// What is frozen into a record at its claim.
    #[must_use]
    pub fn frozen(&self) -> record::Policy {
        record::Policy {
            on_lapse: self.on_lapse,
            lease_ms: millis(self.lease),
            retention_ms: millis(self.retention),
            keep_expired_ms: self.keep_expired.map(millis),
            attempts_max: self.attempts_max.map(NonZeroU32::get),
        }
    }

    /// How fingerprints are made, with the HMAC key of that id if there is one.
    ///
    /// # Errors
    ///
    /// Not for a checked configuration.
    pub fn recipe(&self, key_id: Option<&str>) -> Result<Recipe, InvalidRecipe> {
        let recipe = Recipe::new().with_headers(self.fingerprint_headers.iter().map(HeaderName::as_str))?;
        let pointers = self.fingerprint_pointers.iter().map(Pointer::as_str);
        let recipe = match self.fingerprint {
            Counted::Whole => recipe,
            Counted::Ignored => recipe.without_body()?,
            Counted::Only => recipe.with_only(pointers)?,
            Counted::Except => recipe.with_except(pointers)?,
        };
        key_id.map_or(Ok(recipe.clone()), |id| recipe.with_hmac(id))
    }
}

impl Value for LabelSource {
    fn expected() -> String {
        "\"request:\" or \"answer:\" and a JSON pointer, such as \"request:/order/id\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let (part, pointer) = text.split_once(':').ok_or_else(|| Fault::not(text))?;
        let pointer = Pointer::new(pointer).map_err(|_| Fault::not(text))?;
        match part {
            "request" => Ok(Self::Request(pointer)),
            "answer" => Ok(Self::Answer(pointer)),
            other => Err(Fault::not_but(text, &did_you_mean(other, ["request", "answer"]))),
        }
    }

    fn show(&self) -> String {
        quoted(&match self {
            Self::Request(pointer) => format!("request:{}", pointer.as_str()),
            Self::Answer(pointer) => format!("answer:{}", pointer.as_str()),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
