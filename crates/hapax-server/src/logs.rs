//! What is logged, and how: one line per event, on standard error.
//!
//! Pretty on a terminal, JSON otherwise, both with UTC times. Whatever a caller can put into a value, a line stays one line and
//! a terminal stays as it was: every control character is escaped on the way out, in one place, after formatting. Callers are
//! logged as short digests; keys, secrets, bodies and field values are not logged at all, nor is what the crates we build on
//! have to say about them. What is worth an event is decided where it happens. The lines of requests (`requests`) are so many
//! that they are formatted by hand and written together (`batch`). Of what strangers can cause again and again only so many lines are
//! written in a second (`allowance`).

mod allowance;
mod batch;
mod requests;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use allowance::{Allowances, WithinAllowance};
use batch::Batch;
use requests::{Requests, is_request};

/// What the lines look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Pretty on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Pretty,
    /// For machines: one JSON object per line.
    Json,
}

impl FromStr for Format {
    type Err = LogsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "pretty" => Ok(Self::Pretty),
            "json" => Ok(Self::Json),
            other => Err(LogsError::Format(escaped(other).into_owned())),
        }
    }
}

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// No such format.
    #[error("`{0}` is no format of logs; use auto, pretty or json")]
    Format(String),
    /// The filter cannot be read.
    #[error("`{0}` is no level or filter of logs; use error, warn, info, debug or trace, or target=level,…")]
    Filter(String),
    /// Logging was set up before.
    #[error("logging was set up before; call init once")]
    Twice,
}

/// Begins logging to standard error for the whole process. `filter` is a level or a list of `target=level`; of each kind of line
/// that requests cause ([`hapax::log`]), at most so many are written in a second.
///
/// # Errors
///
/// The filter cannot be read, or logging was set up before.
pub fn init(format: Format, filter: &str, requests_per_second: Option<NonZeroU32>) -> Result<(), LogsError> {
    let terminal = io::stderr().is_terminal();
    let pretty = format == Format::Pretty || (format == Format::Auto && terminal);
    let style = match (pretty, terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())) {
        (true, true) => Style::Coloured,
        (true, false) => Style::Plain,
        (false, _) => Style::Json,
    };
    // A log that cannot be written must not end the work that is logged.
    let sink: Sink = Arc::new(|line: &[u8]| drop(io::stderr().lock().write_all(line)));
    let batch = Batch::start(Arc::clone(&sink));
    let gathered = Arc::clone(&batch);
    let requests: Sink = Arc::new(move |line: &[u8]| gathered.push(line));
    let allowances = Arc::new(Allowances::default());
    allowances.set(requests_per_second);
    let requests = Requests { style, sink: requests, allowances: Arc::clone(&allowances) };
    let (subscriber, set_filter) = build(style, filter, sink, requests)?;
    subscriber.try_init().map_err(|_| LogsError::Twice)?;
    RUNNING.set(Running { batch, allowances, set_filter }).map_err(|_| LogsError::Twice)
}

/// What [`init`] has set up.
struct Running {
    batch: Arc<Batch>,
    allowances: Arc<Allowances>,
    set_filter: SetFilter,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Puts another filter in force.
type SetFilter = Box<dyn Fn(&str) -> Result<(), LogsError> + Send + Sync>;

/// Changes what is logged from now on. Without [`init`] nothing is, and nothing changes.
///
/// # Errors
///
/// The filter cannot be read; the old one stays in force.
pub fn set_filter(filter: &str) -> Result<(), LogsError> {
    RUNNING.get().map_or(Ok(()), |running| (running.set_filter)(filter))
}

/// Changes how many lines of each kind that requests cause are written in a second; none for any number.
pub fn set_requests_per_second(limit: Option<NonZeroU32>) {
    if let Some(running) = RUNNING.get() {
        running.allowances.set(limit);
    }
}

/// Writes the lines that wait for others. Whoever ends the process asks for it.
pub fn flush() {
    if let Some(running) = RUNNING.get() {
        running.batch.flush();
    }
}

/// Whether [`init`] takes that filter.
///
/// # Errors
///
/// The filter cannot be read.
pub fn check_filter(filter: &str) -> Result<(), LogsError> {
    parse_filter(filter).map(|_| ())
}

/// A decided [`Format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Pretty, with the colour of the level.
    Coloured,
    /// Pretty.
    Plain,
    /// JSON.
    Json,
}

/// Where finished lines go, each whole and with its line feed.
pub type Sink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What [`init`] installs, with another end.
///
/// # Errors
///
/// The filter cannot be read.
pub fn subscriber(style: Style, filter: &str, sink: Sink) -> Result<impl Subscriber + Send + Sync + use<>, LogsError> {
    let requests = Requests { style, sink: Arc::clone(&sink), allowances: Arc::default() };
    build(style, filter, sink, requests).map(|(subscriber, _)| subscriber)
}

/// With an end of their own for the lines of requests, and with what changes the filter later.
fn build(
    style: Style,
    filter: &str,
    sink: Sink,
    requests: Requests,
) -> Result<(impl Subscriber + Send + Sync + use<>, SetFilter), LogsError> {
    let (filter, handle) = reload::Layer::new(parse_filter(filter)?);
    let allowances = Arc::clone(&requests.allowances);
    let within = WithinAllowance(Arc::clone(&allowances));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines { style, sink, allowances });
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match style {
        Style::Json => Box::new(lines.json().flatten_event(true).with_current_span(true).with_span_list(false)),
        Style::Plain | Style::Coloured => Box::new(lines),
    };
    let subscriber = Registry::default()
        .with(lines.with_filter(within))
        .with(requests.with_filter(FilterFn::new(is_request)))
        .with(FilterFn::new(is_fit_to_log))
        .with(filter);
    let set_filter = move |text: &str| handle.reload(parse_filter(text)?).map_err(|_| LogsError::Twice);
    Ok((subscriber, Box::new(set_filter)))
}

/// Below `info`, the crates we build on log what passes through them: drivers the parameters of a statement, HTTP crates
/// header fields. No filter brings that out.
fn is_fit_to_log(meta: &Metadata<'_>) -> bool {
    is_ours(meta) || *meta.level() <= Level::INFO
}

fn is_ours(meta: &Metadata<'_>) -> bool {
    meta.target().strip_prefix("hapax").is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', ':']))
}

fn parse_filter(text: &str) -> Result<EnvFilter, LogsError> {
    // A bare word that is no level would be taken for a target, and a misspelt level would silence everything.
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let is_rule = |part: &str| part.contains(['=', '[', ']', '{', '}']);
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let misspelt = parts.iter().any(|part| !is_level(part) && !is_rule(part));
    let parsed = EnvFilter::builder().parse(parts.join(",")).ok().filter(|_| !misspelt);
    parsed.ok_or_else(|| LogsError::Filter(escaped(text).into_owned()))
}

/// Makes a writer for each line.
struct Lines {
    style: Style,
    sink: Sink,
    allowances: Arc<Allowances>,
}

/// Takes one formatted event, escapes it, and hands it on.
struct Line<'l> {
    lines: &'l Lines,
    level: Level,
    /// Lines of its kind that were left out before it.
    left_out: u64,
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = Line<'l>;

    fn make_writer(&'l self) -> Line<'l> {
        Line { lines: self, level: Level::INFO, left_out: 0 }
    }

    fn make_writer_for(&'l self, meta: &Metadata<'_>) -> Line<'l> {
        Line { lines: self, level: *meta.level(), left_out: self.allowances.left_out(meta) }
    }
}

impl Line<'_> {
    /// The same with what was left out before it, if anything was, in the form of its other fields.
    fn with_left_out<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        match (self.left_out, self.lines.style, text.strip_suffix('}')) {
            (0, ..) => text,
            (left_out, Style::Json, Some(object)) => format!("{object},\"left_out\":{left_out}}}").into(),
            (left_out, ..) => format!("{text} left_out={left_out}").into(),
        }
    }
}

impl Write for Line<'_> {
    /// The formatter hands over each event in one piece, which ends in the only line feed that is ours.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = escaped(text.strip_suffix('\n').unwrap_or(&text));
        let text = self.with_left_out(text);
        let line = match (self.lines.style, colour(self.level)) {
            (Style::Coloured, Some(colour)) => format!("\x1b[{colour}m{text}\x1b[0m\n"),
            _ => format!("{text}\n"),
        };
        (self.lines.sink)(line.as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What needs attention is coloured, what is only of interest to a developer is dim.
fn colour(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        Level::INFO => None,
        _ => Some(2),
    }
}

/// The text with every character that could end a line, move a cursor or turn the reading direction written as `\u001b`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_unsafe(letter) {
            safe.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

/// C0, DEL and C1 controls, line and paragraph separators, marks that turn the reading direction.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A caller's scope as it may be logged and shown: the first 12 hexadecimal digits of its SHA-256.
///
/// An operator who knows the scope finds it with `printf %s "$scope" | sha256sum | cut -c1-12`.
#[must_use]
pub fn digest_of_caller(scope: &str) -> String {
    hex(&Sha256::digest(scope.as_bytes())[..6])
}

/// Bytes as hexadecimal digits. By hand, since ids and digests are written for every request.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    let text = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
    // Digits are text.
    String::from_utf8(text).unwrap_or_default()
}
