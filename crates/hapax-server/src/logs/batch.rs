//! Lines that are gathered and written together, by a thread of their own.
//!
//! A write for every request would cost more than many a request. So what is logged for each of them waits a moment for
//! others. Who logs never waits for the reader of the log: beyond a limit lines are left out, and counted. A process that is
//! killed loses the lines of the last moment; all others are as late as that at most.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::Sink;

/// How long a line waits for others.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// What waits for a reader of the log that does not read: seconds of a busy node.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// See the module.
pub(super) struct Batch {
    waiting: Mutex<Waiting>,
    came: Condvar,
    sink: Sink,
    /// Held while lines are handed on, so that they stay in order.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    left_out: u64,
}

impl Batch {
    /// Hands lines on to that end, from a thread of its own.
    pub(super) fn start(sink: Sink) -> Arc<Self> {
        let batch = Arc::new(Self::new(sink));
        let own = Arc::clone(&batch);
        let thread = std::thread::Builder::new().name("hapax-log".to_owned());
        // Without a thread lines are written when there are many, and at the end.
        let _ = thread.spawn(move || own.keep_writing());
        batch
    }

    fn new(sink: Sink) -> Self {
        Self { waiting: Mutex::default(), came: Condvar::new(), sink, writing: Mutex::default() }
    }

    /// Takes a line.
    pub(super) fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.lines.len() + line.len() > WAITING_BYTES_MAX {
            waiting.left_out += 1;
            return;
        }
        let is_first = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        if is_first {
            self.came.notify_one();
        }
    }

    /// Hands on what waits.
    pub(super) fn flush(&self) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Waiting { lines, left_out } = std::mem::take(&mut *waiting);
        drop(waiting);
        if !lines.is_empty() {
            (self.sink)(&lines);
        }
        if left_out > 0 {
            tracing::warn!(left_out, "lines of requests were left out: the log is not read fast enough");
        }
    }

    fn keep_writing(&self) {
        loop {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let is_empty = |waiting: &mut Waiting| waiting.lines.is_empty() && waiting.left_out == 0;
            drop(self.came.wait_while(waiting, is_empty).unwrap_or_else(PoisonError::into_inner));
            std::thread::park_timeout(GATHERED_FOR);
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_in_order_and_what_is_too_much_is_left_out() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&written);
        let batch = Batch::new(Arc::new(move |lines: &[u8]| kept.lock().unwrap().extend_from_slice(lines)));
        batch.push(b"one\n");
        batch.push(b"two\n");
        assert!(written.lock().unwrap().is_empty());
        batch.flush();
        assert_eq!(*written.lock().unwrap(), b"one\ntwo\n");
        let line = vec![b'x'; WAITING_BYTES_MAX];
        batch.push(&line);
        batch.push(b"three\n");
        assert_eq!(batch.waiting.lock().unwrap().left_out, 1);
        batch.flush();
        batch.push(b"four\n");
        batch.flush();
        assert!(written.lock().unwrap().ends_with(b"xfour\n"));
    }

    #[test]
    fn a_line_is_written_without_being_asked_for() {
        let (send, written) = std::sync::mpsc::channel();
        let batch = Batch::start(Arc::new(move |lines: &[u8]| drop(send.send(lines.to_vec()))));
        batch.push(b"one\n");
        assert_eq!(written.recv_timeout(Duration::from_secs(30)).unwrap(), b"one\n");
    }
}
