//! The lines of requests, which come by the thousand: formatted by hand, in the form that all other lines have, and no more of
//! them in a second than is allowed (`allowance`).

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use hapax_core::clock::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::allowance::Allowances;
use super::{Sink, Style, is_unsafe};
use crate::timestamp;

/// Writes what has the target of these lines, and nothing else.
pub(super) struct Requests {
    pub(super) style: Style,
    pub(super) sink: Sink,
    pub(super) allowances: Arc<Allowances>,
}

/// Whether that is such a line.
pub(super) fn is_request(meta: &Metadata<'_>) -> bool {
    meta.is_event() && meta.target() == hapax::log::REQUEST
}

thread_local! {
    /// A line is made in the memory of the one before.
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };
    /// The last moment, and as text: many lines are of the same millisecond.
    static NOW: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Adds the time.
fn push_now(line: &mut String) {
    let now_ms = hapax::clock::wall_ms();
    NOW.with_borrow_mut(|(known_ms, text)| {
        if *known_ms != now_ms || text.is_empty() {
            (*known_ms, *text) = (now_ms, timestamp::text(Timestamp::from_ms(now_ms)));
        }
        line.push_str(text);
    });
}

impl<S: Subscriber> Layer<S> for Requests {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !self.allowances.admit(event.metadata()) {
            return;
        }
        let left_out = self.allowances.left_out(event.metadata());
        LINE.with(|line| {
            // Nobody logs while a line is made; if so, that line is left out.
            let Ok(mut line) = line.try_borrow_mut() else { return };
            line.clear();
            let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
            let is_json = self.style == Style::Json;
            line.push_str(if is_json { "{\"timestamp\":\"" } else { "" });
            push_now(&mut line);
            let between = if is_json { ["\",\"level\":\"", level, "\""] } else { [" ", level, " "] };
            line.extend(between);
            line.extend(if is_json { ["", ""] } else { [target, ":"] });
            event.record(&mut Fields { line: &mut line, is_json });
            if left_out > 0 {
                let name = if is_json { ",\"left_out\":" } else { " left_out=" };
                // Writing to a string does not fail.
                let _ = write!(line, "{name}{left_out}");
            }
            line.extend(if is_json { [",\"target\":\"", target, "\"}\n"] } else { ["\n", "", ""] });
            (self.sink)(line.as_bytes());
        });
    }
}

/// Adds one field after another.
struct Fields<'a> {
    line: &'a mut String,
    is_json: bool,
}

impl Fields<'_> {
    fn name(&mut self, field: &Field) {
        self.line.extend(match (self.is_json, field.name()) {
            (true, name) => [",\"", name, "\":"],
            (false, "message") => [" ", "", ""],
            (false, name) => [" ", name, "="],
        });
    }

    fn plain(&mut self, field: &Field, value: impl fmt::Display) {
        self.name(field);
        // Writing to a string does not fail.
        let _ = write!(self.line, "{value}");
    }

    fn text(&mut self, field: &Field, write: impl FnOnce(&mut Escaped<'_>) -> fmt::Result) {
        self.name(field);
        let quoted = self.is_json || field.name() != "message";
        let quote = if quoted { "\"" } else { "" };
        self.line.push_str(quote);
        let _ = write(&mut Escaped(self.line));
        self.line.push_str(quote);
    }
}

impl Visit for Fields<'_> {
    /// With three digits behind the point. What has no such form is rare, and longer.
    fn record_f64(&mut self, field: &Field, value: f64) {
        let thousandths = (value * 1000.0).round();
        if (0.0..1e15).contains(&thousandths) {
            let thousandths = thousandths as u64;
            self.plain(field, format_args!("{}.{:03}", thousandths / 1000, thousandths % 1000));
        } else {
            self.text(field, |text| write!(text, "{value}"));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, |text| text.write_str(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, |text| write!(text, "{value:?}"));
    }
}

/// Escapes quotes and backslashes, and all that could end a line or turn it around.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if text.bytes().all(is_plain) {
            self.0.push_str(text);
            return Ok(());
        }
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.0.extend(['\\', letter]),
                letter if is_unsafe(letter) => write!(self.0, "\\u{:04x}", u32::from(letter))?,
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn lines(style: Style) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&written);
        let sink: Sink = Arc::new(move |line: &[u8]| kept.lock().unwrap().extend_from_slice(line));
        let subscriber = crate::logs::subscriber(style, "info", sink).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(
                target: hapax::http::LOG_TARGET,
                route = "a\"b\\c\nd\u{202e}é",
                id = %"x",
                absent = None::<&str>,
                status = 201_u16,
                duration_ms = 4.21,
                "request"
            );
            tracing::info!(target: "hapax::other", "another line");
            tracing::debug!(target: hapax::http::LOG_TARGET, "not at this level");
        });
        let written = written.lock().unwrap().clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn a_line_is_one_json_object_whatever_its_fields_hold() {
        let all = lines(Style::Json);
        let all: Vec<serde_json::Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [line, other] = &all[..] else { panic!("{all:?}") };
        assert_eq!(line["route"], "a\"b\\c\nd\u{202e}é");
        assert_eq!((&line["id"], &line["message"]), (&"x".into(), &"request".into()));
        assert_eq!((line["status"].as_u64(), line["duration_ms"].as_f64()), (Some(201), Some(4.21)));
        assert_eq!((&line["target"], &line["level"]), (&"hapax::request".into(), &"INFO".into()));
        let moment = timestamp::read(line["timestamp"].as_str().unwrap()).unwrap();
        assert!(hapax::clock::wall_ms() - moment.as_ms() < 60_000);
        assert_eq!(other["message"], "another line");
    }

    #[test]
    fn a_pretty_line_stays_one_line() {
        let all = lines(Style::Plain);
        let line = all.lines().next().unwrap();
        let expected =
            " INFO hapax::request: request route=\"a\\\"b\\\\c\\u000ad\\u202eé\" id=\"x\" status=201 duration_ms=4.210";
        assert!(line.ends_with(expected), "{line}");
        assert_eq!(all.lines().count(), 2);
    }
}
