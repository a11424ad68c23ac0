//! What operators see and say, the same on the terminal, in the admin API and in its document.
//!
//! Times are RFC 3339 in UTC with milliseconds. Nothing here holds a body unless it was asked for.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// The states there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StateName {
    /// Not started, or the last attempt provably did nothing.
    Ready,
    /// Claimed by an attempt that is under way.
    Running,
    /// The last attempt may or may not have happened.
    Unknown,
    /// Automation gave up: a person decides.
    Dead,
    /// An answer is recorded.
    Completed,
    /// A tombstone.
    Expired,
}

/// What can be said of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictName {
    /// It happened.
    Happened,
    /// It did not: a retry runs again.
    DidNotHappen,
    /// Nobody will ever know: a failure is recorded.
    GiveUp,
}

/// How things stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Whether nothing needs a person: the store works, its clock is trusted, nothing is dead, no unknown record is old,
    /// no fence stands, and there is room for new keys.
    pub healthy: bool,
    /// What is wrong, in sentences; empty if healthy.
    pub problems: Vec<String>,
    /// The store.
    pub store: StoreView,
    /// How many records are in each state that needs looking at, and about how many there are in all.
    pub counts: CountsView,
    /// Since when the oldest unknown record has been so.
    pub oldest_unknown_since: Option<String>,
    /// The fence after a restore, if one stands.
    pub fence: Option<FenceView>,
    /// The store's time.
    pub now: String,
}

/// What the store says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreView {
    /// `sqlite`, `postgres`, `memory`.
    pub kind: String,
    /// What an acknowledged write survives, as the store itself says now: `none` (nothing survives the process, or the host's
    /// power), `disk` (one disk), `replicated` (a synchronous standby confirms it); `unknown` where it cannot say.
    pub durability: String,
    /// Where that is less than the configuration lets people expect, what it means and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Whether its clock is trusted.
    pub clock_trusted: bool,
    /// How many bytes it takes, where it can say it cheaply.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// How many bytes are left on its disk, where it is a file.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
}

/// How many records there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsView {
    /// Not started, or the last attempt did nothing.
    pub ready: u64,
    /// Running now.
    pub running: u64,
    /// How many of them have a lease that has ended, and no node has noticed yet.
    #[serde(default)]
    pub past_lease: u64,
    /// Nobody knows what became of them.
    pub unknown: u64,
    /// Automation gave up.
    pub dead: u64,
    /// Whether one of the numbers above is only a lower bound: counting stopped there.
    pub capped: bool,
    /// About how many records there are in all, hapax's own left out, where the store can say it cheaply.
    pub about_all: Option<u64>,
}

/// A fence after a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FenceView {
    /// What was claimed since then may be lost.
    pub lost_since: String,
    /// When the store was restored.
    pub restored_at: String,
    /// When it falls by itself.
    pub until: String,
    /// On how many protected routes a person must decide about new keys meanwhile, where the configuration is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes_without_probe: Option<usize>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordView {
    /// 64 hexadecimal digits.
    pub id: String,
    /// What the store is used for: `http`, or `http:` and a digest of the route where keys are unique per route; `http-observed`
    /// likewise where the request was only observed.
    pub space: String,
    /// Whose key it is.
    pub scope: String,
    /// The key.
    pub key: String,
    /// `ready`, `running`, `unknown`, `dead`, `completed`, `expired`.
    #[schema(value_type = StateName)]
    pub state: String,
    /// How many attempts have started.
    pub attempt: u32,
    /// Why the last attempt failed or is in doubt: a word.
    pub error: Option<String>,
    /// What was said of the last attempt: `happened`, `did-not-happen`, `given-up`.
    pub verdict: Option<String>,
    /// Since when nobody knows.
    pub doubted_since: Option<String>,
    /// How many probes could not tell.
    pub probes: u32,
    /// When the key was first seen.
    pub created_at: String,
    /// When the record was last written.
    pub changed_at: String,
    /// When somebody or something looks next.
    pub due_at: Option<String>,
    /// When it expires.
    pub expires_at: Option<String>,
    /// What state and times do not say by themselves: that it was only observed, that its lease has ended and no node has
    /// noticed, until when its tombstone keeps the key taken.
    #[serde(default)]
    pub remark: Option<String>,
    /// Business identifiers, and `route` and `request-id` of the last attempt.
    pub labels: BTreeMap<String, String>,
    /// The recorded answer.
    pub answer: Option<AnswerView>,
}

/// A recorded answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerView {
    /// Its status.
    pub status: u16,
    /// How many bytes its body has; none, if the body was not kept.
    pub body_bytes: Option<u64>,
    /// Header fields in order, only where they were asked for.
    pub headers: Option<Vec<(String, String)>>,
    /// The body, only where it was asked for: as text if it is text.
    pub body: Option<String>,
    /// The same in base64 if it is not.
    pub body_base64: Option<String>,
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageView {
    /// What matched.
    pub records: Vec<RecordView>,
    /// Ids of records that could not be read, with the reason. Somebody must look.
    pub damaged: Vec<DamagedView>,
    /// Where to go on; none: that was all. A page may be empty and still have a next one.
    pub next: Option<String>,
}

impl PageView {
    /// Adds what is not on the page yet: one that cannot be read may be met by every look.
    pub(crate) fn add_damaged(&mut self, damaged: impl IntoIterator<Item = DamagedView>) {
        for one in damaged {
            if !self.damaged.contains(&one) {
                self.damaged.push(one);
            }
        }
    }
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedView {
    /// Its id, as far as it can be read.
    pub id: Option<String>,
    /// Its scope, as far as it can be read; it may be what was altered.
    pub scope: Option<String>,
    /// Its key, likewise.
    pub key: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl DamagedView {
    /// How a person can find it.
    pub(crate) fn named(&self) -> String {
        let id = self.id.as_deref().unwrap_or("without an id");
        match (&self.key, &self.scope) {
            (Some(key), Some(scope)) => format!("{id} (key {key:?}, scope {scope})"),
            _ => id.to_owned(),
        }
    }
}

/// Which records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// In one of these states; empty: in any.
    #[schema(value_type = Vec<StateName>, max_items = 6)]
    pub states: Vec<String>,
    /// Of exactly this scope.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub scope: Option<String>,
    /// Of exactly this key. With the scope, it is found at once.
    #[schema(min_length = 1, max_length = 255, pattern = "^[\x20-\x7e]+$")]
    pub key: Option<String>,
    /// With this label, `name=value`.
    #[schema(max_length = 512, pattern = r"^[^=\x00]+=[^\x00]+$")]
    pub label: Option<String>,
    /// Found by anything a person pastes: an id or the first 8 or more of its digits, a key, a scope, a request id, the value of a label.
    #[schema(max_length = 512, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$")]
    pub find: Option<String>,
    /// First seen at or after.
    #[schema(format = DateTime, pattern = "^(19[7-9]|[2-9])")]
    pub since: Option<String>,
    /// First seen before.
    #[schema(format = DateTime, pattern = "^(19[7-9]|[2-9])")]
    pub until: Option<String>,
}

/// What an operator says of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionRequest {
    /// Which record: by `id`, which the service got as `Idempotency-Record`; or by `scope` and `key`, or `scope` and `label`
    /// (`name=value`). Callers choose keys and labels, so that neither is enough by itself.
    #[serde(default)]
    #[schema(pattern = "^[0-9a-fA-F]{8,64}$")]
    pub id: Option<String>,
    /// See `id`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub scope: Option<String>,
    /// See `id`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255, pattern = "^[\x20-\x7e]+$")]
    pub key: Option<String>,
    /// See `id`.
    #[serde(default)]
    #[schema(max_length = 512, pattern = r"^[^=\x00]+=[^\x00]+$")]
    pub label: Option<String>,
    /// Said out loud: no two callers ever use the same key. Then `key` may do without `scope`, and the answer has no body.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keys_unique: bool,
    /// `happened`, `did-not-happen`, `give-up`.
    #[schema(value_type = VerdictName)]
    pub verdict: String,
    /// The attempt that is meant. If the record is at another one, nothing is changed.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4294967295_i64)]
    pub attempt: Option<u32>,
    /// The answer to replay: for `happened`, default 200 and no body; for `give-up`, default 500 and a problem document.
    #[serde(default, deserialize_with = "object")]
    pub answer: Option<AnswerRequest>,
    /// Why.
    #[schema(min_length = 1, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$")]
    pub reason: String,
}

/// An answer to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerRequest {
    /// Its status, 200 to 599.
    #[schema(minimum = 200, maximum = 599)]
    #[serde(deserialize_with = "whole")]
    pub status: Option<u16>,
    /// Its content type; default `application/json` with a body.
    #[schema(pattern = "^[!-~][ -~]*$")]
    pub content_type: Option<String>,
    /// Its body as text.
    pub body: Option<String>,
    /// Or in base64.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$")]
    pub body_base64: Option<String>,
}

impl AnswerRequest {
    /// Whether a body was given, be it an empty one.
    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some() || self.body_base64.is_some()
    }
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// False if the record already said so: said once more, it changes nothing.
    pub changed: bool,
    /// The state before.
    pub before: String,
    /// The record as it now stands.
    pub record: RecordView,
}

/// What to take away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeRequest {
    /// Which record; or `filter`.
    #[serde(default)]
    #[schema(pattern = "^[0-9a-fA-F]{8,64}$")]
    pub id: Option<String>,
    /// Which records; or `id`. Callers write labels and choose keys, so that `label` and `find` stand beside `scope` only.
    #[serde(default, deserialize_with = "object")]
    pub filter: Option<Filter>,
    /// A completed key is free at once, so that a retry runs again. Said out loud.
    #[serde(default)]
    pub allow_rerun: bool,
    /// Only count.
    #[serde(default)]
    pub dry_run: bool,
    /// How many records the caller expects, from a dry run. If there are more now, nothing is changed.
    #[serde(default, deserialize_with = "whole")]
    #[schema(maximum = 9007199254740991_i64)]
    pub expect: Option<u64>,
    /// Why.
    #[schema(min_length = 1, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$")]
    pub reason: String,
}

/// What came of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeView {
    /// Records that matched.
    pub matched: u64,
    /// Answers taken away whose keys are free at once.
    pub freed: u64,
    /// Records that became a tombstone.
    pub tombstones: u64,
    /// Records that could not be touched: running, expired already, or changed meanwhile.
    pub left: u64,
    /// Whether they were only counted: nothing was changed.
    pub dry_run: bool,
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoteView {
    /// Its number; later ones are larger.
    pub number: u64,
    /// When.
    pub at: String,
    /// Who.
    pub who: String,
    /// What was done: a word.
    pub what: String,
    /// The record's id, if it is about one.
    pub id: Option<String>,
    /// Its scope.
    pub scope: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// Its attempt.
    pub attempt: Option<u32>,
    /// The state before.
    pub before: Option<String>,
    /// The state after.
    pub after: Option<String>,
    /// Why.
    pub reason: String,
    /// More, for people.
    pub detail: String,
}

/// A page of the audit log, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// What was done.
    pub notes: Vec<NoteView>,
    /// Pass it as `before` to go on; none: that was all.
    pub next: Option<u64>,
}

/// Larger whole numbers are not exact in JSON, so nobody can have meant one.
const WHOLE_MAX: u64 = 9_007_199_254_740_991;

/// An object, or none. A list of its values in the order of its fields would be taken for one, too.
fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let Some(fields) = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(from)? else {
        return Ok(None);
    };
    serde_json::from_value(fields.into()).map(Some).map_err(serde::de::Error::custom)
}

/// Reads a whole number however it is spelled: to JSON `7` and `7.0` are the same.
fn whole<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    // A float is written with all its digits, so one that is not whole, or too large, is read as no number.
    let by_text = || (number.as_f64()? + 0.0).to_string().parse::<u64>().ok();
    let whole = number.as_u64().or_else(by_text).filter(|whole| *whole <= WHOLE_MAX);
    let whole = whole.and_then(|whole| T::try_from(whole).ok());
    whole.map(Some).ok_or_else(|| serde::de::Error::custom(format_args!("{number} is not a whole number in range")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_spelled_as_a_float() {
        let status = |text: &str| {
            serde_json::from_str::<AnswerRequest>(&format!("{{\"status\":{text}}}"))
                .ok()
                .and_then(|answer| answer.status)
        };
        assert_eq!(
            (status("201"), status("201.0"), status("2.01e2"), status("null")),
            (Some(201), Some(201), Some(201), None)
        );
        for text in ["201.5", "-1", "65536", "1e300", "\"201\"", "true"] {
            assert!(serde_json::from_str::<AnswerRequest>(&format!("{{\"status\":{text}}}")).is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<AnswerRequest>("{}").unwrap(), AnswerRequest::default());
    }
}
