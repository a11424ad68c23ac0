//! `hapax keys resolve`: says what became of a request that nobody is sure about.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hapax_core::limits::BODY_BYTES_MAX;

use super::args::{ResolveArgs, Shape};
use super::failure::Failure;
use super::locate::{Among, ToChange, locate_to_change};
use super::open;
use super::terminal::{agrees, print, print_declined, print_json, someone_is_there};
use crate::desk::Desk as _;
use crate::desk::view::{AnswerRequest, ChangeView, RecordView, ResolutionRequest};
use crate::flags;
use crate::logs::escaped;

pub(super) async fn run(args: &ResolveArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let request = request(args)?;
    let who = flags::who(&args.change.actor, &environment);
    let desk = open::desk(&args.change.place, environment).await?;
    let named = ToChange {
        command: "resolve",
        text: &args.key,
        scope: args.scope.as_deref(),
        among: Among::UnfinishedFirst,
        keys_unique: args.keys_unique,
        has_body: request.answer.as_ref().is_some_and(AnswerRequest::has_body),
    };
    let seen = locate_to_change(&desk, &named).await?;
    if !args.change.yes && someone_is_there() && !agrees(&question(&seen, &request))? {
        let standing = ChangeView { changed: false, before: seen.state.clone(), record: seen };
        return print_declined(args.change.output, &standing);
    }
    // What was found, and agreed to where somebody was asked, is what is changed; not what has come of it since.
    let attempt = request.attempt.or(Some(seen.attempt));
    let change = desk.resolve(&ResolutionRequest { id: Some(seen.id), attempt, ..request }, &who).await?;
    let printed = match args.change.output {
        Shape::Text => print(&text(&change)),
        Shape::Json => print_json(&change),
    };
    printed.map_err(|failure| if change.changed { failure.after_a_change() } else { failure })?;
    Ok(0)
}

/// What is said, of a record that is still to be found.
fn request(args: &ResolveArgs) -> Result<ResolutionRequest, Failure> {
    let verdict = match (args.verdict.happened, args.verdict.did_not_happen) {
        (true, _) => "happened",
        (_, true) => "did-not-happen",
        _ => "give-up",
    };
    let body = args.body_file.as_deref().map(read_body).transpose()?;
    let answered = args.status.is_some() || args.content_type.is_some() || body.is_some();
    let text = body.map(String::from_utf8);
    let answer = answered.then(|| AnswerRequest {
        status: args.status,
        content_type: args.content_type.clone(),
        body_base64: text.as_ref().and_then(|text| text.as_ref().err()).map(|error| STANDARD.encode(error.as_bytes())),
        body: text.and_then(Result::ok),
    });
    Ok(ResolutionRequest {
        id: None,
        scope: None,
        key: None,
        label: None,
        keys_unique: false,
        verdict: verdict.to_owned(),
        attempt: args.attempt,
        answer,
        reason: args.reason.clone(),
    })
}

/// Whether clients that expect a body would get none.
fn has_no_body(request: &ResolutionRequest) -> bool {
    let Some(answer) = &request.answer else { return true };
    let is_empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    is_empty(&answer.body) && is_empty(&answer.body_base64) && may_have_body(answer.status.unwrap_or(200))
}

fn read_body(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::usage(format!("the body `{}` cannot be read: {error}", path.display()));
    let mut body = Vec::new();
    let room = BODY_BYTES_MAX as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin().lock().take(room).read_to_end(&mut body).map_err(failed)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(room).read_to_end(&mut body)).map_err(failed)?;
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(Failure::usage(format!("the body has more than {BODY_BYTES_MAX} bytes, which are not recorded")));
    }
    Ok(body)
}

fn question(seen: &RecordView, request: &ResolutionRequest) -> String {
    let then = match request.verdict.as_str() {
        "did-not-happen" => "The next request with the key runs",
        "happened" if has_no_body(request) => {
            "Clients get an EMPTY body from now on, and a verdict stands; give one with --body-file"
        }
        _ => "Clients get the recorded answer from now on",
    };
    let RecordView { key, scope, state, attempt, .. } = seen;
    format!("{key} of {scope} is {state}, attempt {attempt}. Record it as {}? {then}.", request.verdict)
}

/// 204 and 304 have none.
fn may_have_body(status: u16) -> bool {
    !matches!(status, 204 | 304)
}

fn text(change: &ChangeView) -> String {
    let record = &change.record;
    if !change.changed {
        return format!("unchanged: {} of {} was resolved so before\n", escaped(&record.key), escaped(&record.scope));
    }
    let then = match &record.answer {
        Some(answer) if answer.body_bytes == Some(0) && may_have_body(answer.status) => format!(
            "clients get {} with an empty body from now on; if yours expect one, it should have been given with --body-file",
            answer.status
        ),
        Some(answer) => format!("clients get {} from now on", answer.status),
        None => "the next request with the key runs".to_owned(),
    };
    let (key, scope, before) = (escaped(&record.key), escaped(&record.scope), &change.before);
    format!("{}: {key} of {scope} was {before}; {then}\n", record.state)
}
