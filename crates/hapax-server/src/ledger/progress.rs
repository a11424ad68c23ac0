//! How far a long comparison has come: a bar on standard error, and only on a terminal.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Smaller files are read before a bar could be seen.
const FILE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// A bar, or nothing.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// The bytes of a file.
    pub(super) fn of_file(path: &Path) -> Self {
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        if bytes < FILE_BYTES_MIN {
            return Self(ProgressBar::hidden());
        }
        // indicatif draws nothing where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        Self(styled(bar, "ledger  {wide_bar} {bytes}/{total_bytes} {eta}"))
    }

    /// Records, nobody knows how many.
    pub(super) fn of_records() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self(styled(bar, "records {spinner} {human_pos}"))
    }

    pub(super) fn reach(&self, position: u64) {
        self.0.set_position(position);
    }

    pub(super) fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
