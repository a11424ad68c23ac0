//! How many lines of each kind may be written in a second: a stranger can cause some with every request, connection or frame,
//! and a line of the log is longer than what caused it.
//!
//! The kinds are the targets in [`hapax::log`], and all that other crates have to say. Each has an allowance of its own, so
//! that a flood of one hides no other. The first line after some were left out says how many. Every other line is about the
//! state of the node, and always written; metrics count everything.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hapax::log::PER_REQUEST;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};
use tracing_subscriber::layer::{Context, Filter};

use super::{is_ours, requests};

/// One for each kind.
#[derive(Debug, Default)]
pub(super) struct Allowances {
    per_request: [Allowance; PER_REQUEST.len()],
    /// Of the crates we build on: h2 has a line for every frame that it does not expect.
    of_others: Allowance,
}

impl Allowances {
    /// From now on, for each kind; none for any number.
    pub(super) fn set(&self, per_second: Option<NonZeroU32>) {
        let per_second = per_second.map_or(0, NonZeroU32::get);
        let all = self.per_request.iter().chain([&self.of_others]);
        all.for_each(|allowance| allowance.per_second.store(per_second, Ordering::Relaxed));
    }

    /// Whether such a line may be written now. If not, it counts as left out.
    pub(super) fn admit(&self, meta: &Metadata<'_>) -> bool {
        self.of(meta).is_none_or(|allowance| allowance.admit(hapax::clock::boot_ms() / 1000))
    }

    /// How many lines of that kind were left out since this was asked last: whoever asks writes it down.
    pub(super) fn left_out(&self, meta: &Metadata<'_>) -> u64 {
        self.of(meta).map_or(0, Allowance::left_out)
    }

    fn of(&self, meta: &Metadata<'_>) -> Option<&Allowance> {
        if !is_ours(meta) {
            return Some(&self.of_others);
        }
        let kind = PER_REQUEST.iter().position(|target| *target == meta.target())?;
        self.per_request.get(kind)
    }
}

/// How many lines of one kind may be written in a second.
#[derive(Debug, Default)]
struct Allowance {
    /// 0 for any number.
    per_second: AtomicU32,
    /// The second in the upper half, and the lines written in it in the lower one.
    written: AtomicU64,
    left_out: AtomicU64,
}

impl Allowance {
    fn admit(&self, second: u64) -> bool {
        let per_second = match self.per_second.load(Ordering::Relaxed) {
            0 => return true,
            limit => u64::from(limit),
        };
        let fresh = second << 32;
        let next = |written: u64| match written & u64::from(u32::MAX) {
            // A request that is late by a moment counts for the second that has begun.
            count if written >> 32 >= second & u64::from(u32::MAX) => (count < per_second).then_some(written + 1),
            _ => Some(fresh + 1),
        };
        let is_admitted = self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if !is_admitted {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    fn left_out(&self) -> u64 {
        // Most of the time there is nothing to take.
        if self.left_out.load(Ordering::Relaxed) == 0 { 0 } else { self.left_out.swap(0, Ordering::Relaxed) }
    }
}

/// Lets through what is no line of a request and within its allowance, before anything of it is formatted.
pub(super) struct WithinAllowance(pub(super) Arc<Allowances>);

impl<S> Filter<S> for WithinAllowance {
    fn enabled(&self, meta: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        !requests::is_request(meta)
    }

    fn callsite_enabled(&self, meta: &'static Metadata<'static>) -> Interest {
        if requests::is_request(meta) { Interest::never() } else { Interest::always() }
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.admit(event.metadata())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::logs::requests::Requests;
    use crate::logs::{Sink, Style, build};

    /// What is written of the lines that `log` logs, with one line of each kind in a second that does not end.
    fn written(style: Style, log: impl FnOnce(&dyn Fn())) -> Vec<String> {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&kept);
        let sink: Sink = Arc::new(move |line: &[u8]| kept.lock().unwrap().extend_from_slice(line));
        let allowances = Arc::new(Allowances::default());
        let own = Arc::clone(&allowances);
        let next_second = || {
            let far = (u64::from(u32::MAX) - 1) << 32;
            own.per_request.iter().chain([&own.of_others]).for_each(|one| one.written.store(far, Ordering::Relaxed));
        };
        allowances.set(NonZeroU32::new(1));
        next_second();
        let requests = Requests { style, sink: Arc::clone(&sink), allowances };
        let (subscriber, _) = build(style, "info", sink, requests).unwrap();
        tracing::subscriber::with_default(subscriber, || log(&next_second));
        let text = String::from_utf8(all.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_beyond_the_allowance_of_a_second_are_left_out_and_counted() {
        let allowance = Allowance::default();
        let take = |second| allowance.admit(second).then(|| allowance.left_out());
        assert!((0..1000).all(|_| take(7) == Some(0)), "any number");
        allowance.per_second.store(2, Ordering::Relaxed);
        let taken: Vec<Option<u64>> = [7, 7, 7, 7, 8, 7, 8, 9].map(take).to_vec();
        assert_eq!(taken, [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1)]);
    }

    #[test]
    fn the_next_line_of_a_kind_says_how_many_were_left_out() {
        let log = |next_second: &dyn Fn()| {
            let all = || {
                tracing::info!(target: hapax::log::REQUEST, "request");
                tracing::info!(target: hapax::log::REFUSED, code = "a", "refused");
                tracing::warn!(target: hapax::log::UPSTREAM, "upstream");
                tracing::info!(target: hapax::log::OBSERVED, "observed");
                tracing::warn!(target: hapax::log::RECORD, "record");
                tracing::warn!(target: "h2::proto::ping_pong", "frame");
                let span = tracing::info_span!("request", request_id = "r");
                tracing::warn!(target: hapax::log::ATTEMPT, parent: &span, "attempt");
            };
            (0..4).for_each(|_| all());
            next_second();
            all();
        };
        for message in ["request", "refused", "upstream", "observed", "record", "frame", "attempt"] {
            let json = written(Style::Json, log);
            let values = json.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
            let own: Vec<serde_json::Value> = values.filter(|value| value["message"] == message).collect();
            let left_out: Vec<&serde_json::Value> = own.iter().map(|line| &line["left_out"]).collect();
            assert_eq!(left_out, [&serde_json::Value::Null, &3.into()], "{message}");
            assert!(message != "attempt" || own[1]["span"]["request_id"] == "r", "{own:?}");
            let plain = written(Style::Plain, log);
            let own: Vec<bool> = plain
                .iter()
                .filter(|line| line.contains(&format!(": {message}")))
                .map(|line| line.ends_with(" left_out=3"))
                .collect();
            assert_eq!(own, [false, true], "{message}: {plain:#?}");
        }
    }

    #[test]
    fn lines_about_the_state_of_a_node_are_never_left_out() {
        let lines = written(Style::Json, |_| {
            for _ in 0..100 {
                tracing::info!(target: hapax::log::REFUSED, "refused");
                tracing::warn!(target: "hapax_server::abuse::breaker", "the store fails");
                tracing::error!(target: "hapax::http::attempts", "full");
            }
        });
        let count = |message: &str| lines.iter().filter(|line| line.contains(message)).count();
        assert_eq!([count("refused"), count("the store fails"), count("full")], [1, 100, 100]);
    }

    #[test]
    fn a_filter_by_one_kind_takes_no_other() {
        for target in PER_REQUEST {
            let others = PER_REQUEST.iter().filter(|other| **other != target);
            assert!(others.into_iter().all(|other| !other.starts_with(target)), "{target}");
        }
    }
}
