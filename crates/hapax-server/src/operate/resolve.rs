//! `hapax keys resolve`: says what became of a request that nobody is sure about.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hapax_core::limits::BODY_BYTES_MAX;

use super::args::{ResolveArgs, Shape};
use super::failure::Failure;
use super::locate::{is_part_of_id, is_whole_id, locate};
use super::open::{self, AnyDesk};
use super::terminal::{agrees, print, print_json, someone_is_there};
use crate::desk::view::{AnswerRequest, ChangeView, RecordView, ResolutionRequest};
use crate::desk::{Desk as _, DeskError, DeskErrorKind};
use crate::logs::escaped;

pub(super) async fn run(args: &ResolveArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let mut request = request(args)?;
    let who = open::who(args.change.who.as_deref(), &environment);
    let desk = open::desk(&args.change.place, environment).await?;
    if !args.change.yes && someone_is_there() {
        let seen = locate(&desk, &args.key, args.scope.as_deref()).await?;
        if !agrees(&question(&seen, &request))? {
            print("nothing was changed\n")?;
            return Ok(0);
        }
        // What was agreed to is what was shown.
        let attempt = request.attempt.or(Some(seen.attempt));
        request = ResolutionRequest { id: Some(seen.id), scope: None, key: None, attempt, ..request };
    }
    let change = say(&desk, &request, &who).await?;
    match args.change.output {
        Shape::Text => print(&text(&change))?,
        Shape::Json => print_json(&change)?,
    };
    Ok(0)
}

/// As a key, and where there is none, as the first digits of an id, or as a label.
async fn say(desk: &AnyDesk, request: &ResolutionRequest, who: &str) -> Result<ChangeView, DeskError> {
    let not_found = match desk.resolve(request, who).await {
        Err(error) if error.kind == DeskErrorKind::NotFound && request.scope.is_none() => error,
        said => return said,
    };
    let plain = ResolutionRequest { id: None, key: None, ..request.clone() };
    if let Some(text) = request.id.clone().filter(|_| request.key.is_none()) {
        // Keys may look like ids.
        return desk.resolve(&ResolutionRequest { key: Some(text), ..plain }, who).await.map_err(|_| not_found);
    }
    let Some(text) = request.key.clone() else { return Err(not_found) };
    if is_part_of_id(&text) {
        return desk.resolve(&ResolutionRequest { id: Some(text), ..plain }, who).await;
    }
    if text.contains('=') {
        return desk.resolve(&ResolutionRequest { label: Some(text), ..plain }, who).await;
    }
    Err(not_found)
}

fn request(args: &ResolveArgs) -> Result<ResolutionRequest, Failure> {
    let key = args.key.trim().to_owned();
    let by_id = is_whole_id(&key) && args.scope.is_none();
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
        id: by_id.then(|| key.clone()),
        scope: args.scope.clone(),
        key: (!by_id).then_some(key),
        label: None,
        verdict: verdict.to_owned(),
        attempt: args.attempt,
        answer,
        reason: args.reason.clone(),
    })
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
        _ => "Clients get the recorded answer from now on",
    };
    let RecordView { key, scope, state, attempt, .. } = seen;
    format!("{key} of {scope} is {state}, attempt {attempt}. Record it as {}? {then}.", request.verdict)
}

fn text(change: &ChangeView) -> String {
    let record = &change.record;
    if !change.changed {
        return format!("unchanged: {} of {} was resolved so before\n", escaped(&record.key), escaped(&record.scope));
    }
    let then = match &record.answer {
        Some(answer) => format!("clients get {} from now on", answer.status),
        None => "the next request with the key runs".to_owned(),
    };
    let (key, scope, before) = (escaped(&record.key), escaped(&record.scope), &change.before);
    format!("{}: {key} of {scope} was {before}; {then}\n", record.state)
}
