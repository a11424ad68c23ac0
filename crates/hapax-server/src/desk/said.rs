//! What an operator says, checked before anything is looked up: who, why, which verdict, which answer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hapax::http::{REQUEST_LABEL, given_up};
use hapax_core::address::{Key, Scope};
use hapax_core::journal::Note;
use hapax_core::limits::{BODY_BYTES_MAX, NOTE_TEXT_BYTES_MAX, NOTE_WORD_BYTES_MAX};
use hapax_core::record::{Body, Label, Outcome, Record};
use hapax_core::transition::Resolution;

use super::DeskError;
use super::bound::{self, Bond, By};
use super::lookup::{DIGITS_MIN, range};
use super::search::{invalid, label, scope};
use super::view::{AnswerRequest, ResolutionRequest};

/// A note of who does what and why; the rest is filled in when it is kept.
pub(super) fn note(who: &str, what: &str, reason: &str, detail: String) -> Result<Note, DeskError> {
    let (who, reason) = (who.trim(), reason.trim());
    if who.is_empty() || who.len() > NOTE_WORD_BYTES_MAX {
        return Err(invalid(format!("say who acts, in 1 to {NOTE_WORD_BYTES_MAX} bytes")));
    }
    if reason.is_empty() {
        return Err(invalid("a reason is required; say why in a sentence"));
    }
    if reason.len() > NOTE_TEXT_BYTES_MAX {
        let bytes = reason.len();
        return Err(invalid(format!(
            "the reason has {bytes} bytes; at most {NOTE_TEXT_BYTES_MAX} are kept: shorten it"
        )));
    }
    if who.contains('\0') || reason.contains('\0') {
        return Err(invalid("a name or a reason holds a NUL character; leave it out"));
    }
    let (who, what, reason) = (who.to_owned(), what.to_owned(), reason.to_owned());
    Ok(Note { who, what, about: None, before: None, after: None, reason, detail })
}

/// Which record is meant. Callers choose keys and labels: without a scope, what is said of one caller's could settle
/// another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Id(String),
    /// Without a scope only where it was said that keys are unique over all callers.
    Key(Option<Scope>, Key),
    Label(Scope, Label),
}

const ONE_WAY: &str = "name the record in one way: by `id`, by `scope` and `key`, or by `scope` and `label`";

impl Target {
    pub(super) fn of(request: &ResolutionRequest) -> Result<Self, DeskError> {
        match (&request.id, &request.scope, &request.key, &request.label) {
            (Some(id), None, None, None) => Self::id(id),
            (None, scope_name, Some(key), None) => {
                let key = Key::new(key).map_err(|error| invalid(error.to_string()))?;
                let scope = scope_name.as_deref().map(scope).transpose()?;
                check_bound(By::Key, bond(request))?;
                Ok(Self::Key(scope, key))
            }
            (None, scope_name, None, Some(text)) => {
                let label = label(text)?;
                check_bound(By::Label, bond(request))?;
                let scope = scope_name.as_deref().ok_or_else(|| invalid(ONE_WAY))?;
                Ok(Self::Label(self::scope(scope)?, label))
            }
            _ => Err(invalid(ONE_WAY)),
        }
    }

    pub(super) fn id(text: &str) -> Result<Self, DeskError> {
        if range(text).is_none() {
            return Err(invalid(format!("an id has 64 hexadecimal digits; give at least its first {DIGITS_MIN}")));
        }
        Ok(Self::Id(text.to_ascii_lowercase()))
    }
}

/// What a resolution says of whose record it is.
fn bond(request: &ResolutionRequest) -> Bond {
    let has_body = request.answer.as_ref().is_some_and(AnswerRequest::has_body);
    Bond { scoped: request.scope.is_some(), keys_unique: request.keys_unique, has_body }
}

/// Refuses what does not say whose record is meant.
pub(super) fn check_bound(by: By, bond: Bond) -> Result<(), DeskError> {
    let Some(why) = bound::unbound(by, bond) else { return Ok(()) };
    Err(invalid(format!(
        "{why}; name the record by its `id`, which the service got as Idempotency-Record, or add its `scope`"
    )))
}

/// What is said of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Happened(Arc<Outcome>),
    DidNotHappen,
    /// With an answer, or with the one that is usual.
    GiveUp(Option<Arc<Outcome>>),
}

impl Said {
    pub(super) fn of(request: &ResolutionRequest) -> Result<Self, DeskError> {
        let answer = |default_status: u16| request.answer.as_ref().map(|answer| outcome(answer, default_status));
        match (request.verdict.as_str(), &request.answer) {
            ("happened", _) => {
                let empty = AnswerRequest::default();
                Ok(Self::Happened(Arc::new(answer(200).unwrap_or_else(|| outcome(&empty, 200))?)))
            }
            ("give-up", Some(answer)) if answer.status.is_some_and(|status| status < 400) => {
                Err(invalid("giving up records a failure; give a status of 400 or more, or say that it happened"))
            }
            ("give-up", _) => Ok(Self::GiveUp(answer(500).transpose()?.map(Arc::new))),
            ("did-not-happen", None) => Ok(Self::DidNotHappen),
            ("did-not-happen", Some(_)) => {
                Err(invalid("what did not happen has no answer; leave it out, and the next request runs"))
            }
            _ => Err(invalid("there is no such verdict; use happened, did-not-happen or give-up")),
        }
    }

    /// The answer that is recorded by it, for that record.
    pub(super) fn answer(&self, record: &Record) -> Option<Arc<Outcome>> {
        match self {
            Self::DidNotHappen => None,
            Self::Happened(outcome) | Self::GiveUp(Some(outcome)) => Some(Arc::clone(outcome)),
            Self::GiveUp(None) => {
                let id =
                    record.labels.iter().find(|label| label.name == REQUEST_LABEL).map(|label| label.value.as_str());
                Some(Arc::new(given_up(id)))
            }
        }
    }

    /// The same for the rule book.
    pub(super) fn resolution<'a>(&self, answer: Option<&'a Arc<Outcome>>) -> Resolution<'a> {
        match (self, answer) {
            (Self::Happened(_), Some(outcome)) => Resolution::Happened(outcome),
            (Self::GiveUp(_), Some(outcome)) => Resolution::GiveUp(outcome),
            _ => Resolution::DidNotHappen,
        }
    }

    /// For the note: the verdict, and how large an answer was recorded.
    pub(super) fn detail(&self, answer: Option<&Arc<Outcome>>) -> String {
        let word = match self {
            Self::Happened(_) => "happened",
            Self::DidNotHappen => return "did not happen".to_owned(),
            Self::GiveUp(_) => "given up",
        };
        let bytes = |outcome: &Outcome| match &outcome.body {
            Body::Kept(body) => body.len(),
            Body::NotKept => 0,
        };
        answer.map_or_else(String::new, |outcome| {
            format!("{word}; answer {} with {} bytes", outcome.status, bytes(outcome))
        })
    }
}

fn outcome(answer: &AnswerRequest, default_status: u16) -> Result<Outcome, DeskError> {
    let status = answer.status.unwrap_or(default_status);
    if !(200..=599).contains(&status) {
        return Err(invalid(format!("the status {status} is not one of an answer; use 200 to 599")));
    }
    let body = body(answer)?;
    if body.len() > BODY_BYTES_MAX {
        return Err(invalid(format!("the body has {} bytes; at most {BODY_BYTES_MAX} are recorded", body.len())));
    }
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        return Err(invalid(format!("an answer {status} has no body; leave it out, or use another status")));
    }
    let default_type = (!body.is_empty()).then_some("application/json");
    let content_type = answer.content_type.as_deref().or(default_type);
    if content_type.is_some_and(|text| text.trim().is_empty() || http::HeaderValue::from_str(text).is_err()) {
        return Err(invalid("the content type cannot be sent in a header field; write it as application/json"));
    }
    let field = content_type.map(|text| (b"content-type".to_vec(), text.as_bytes().to_vec()));
    Ok(Outcome { status, headers: field.into_iter().collect(), body: Body::Kept(body) })
}

fn body(answer: &AnswerRequest) -> Result<Vec<u8>, DeskError> {
    match (&answer.body, &answer.body_base64) {
        (None, None) => Ok(Vec::new()),
        (Some(text), None) => Ok(text.clone().into_bytes()),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|_| invalid("`body_base64` is not base64; encode it, or use `body`"))
        }
        (Some(_), Some(_)) => Err(invalid("give `body` or `body_base64`, not both")),
    }
}
