//! What the operating system asks of the process.
//!
//! SIGTERM or SIGINT once means: finish what runs, then end. A second one means: end now, and leave the leases to lapse; while
//! requests are still accepted after a SIGTERM (`server.drain_delay`), it ends that first.
//! SIGHUP means: read the configuration again. What each of them takes is decided by whoever asks for the next one.
//!
//! No reload is lost: [`Reloads`] are taken over before the configuration is read for the first time, and one that comes while the
//! process starts waits until somebody asks for the [next](Signals::next) signal.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop accepting, finish and record what runs, then end.
    Drain,
    /// End now.
    Abandon,
    /// Validate the configuration and swap it in, or keep the old one.
    Reload,
}

/// Reloads that are asked for from now on.
#[derive(Debug)]
pub struct Reloads(Stream);

impl Reloads {
    /// Takes over SIGHUP, inside of a runtime; before this it ends the process. The others still do.
    ///
    /// # Errors
    ///
    /// The operating system refuses.
    pub fn install() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }
}

/// The signals of this process, in order.
#[derive(Debug)]
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
    draining: bool,
    interrupted: bool,
}

impl Signals {
    /// Takes over the others, too; from here on none of them ends the process by itself.
    ///
    /// # Errors
    ///
    /// The operating system refuses.
    pub fn install(reloads: Reloads) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: reloads.0,
            draining: false,
            interrupted: false,
        })
    }

    /// Waits for the next one. Nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> Signal {
        // An end outranks a reload that came at the same time.
        let interrupted = tokio::select! {
            biased;
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
            _ = self.hangup.recv() => return Signal::Reload,
        };
        self.end(interrupted)
    }

    /// Waits for the next one that asks for an end, where there is nothing to reload yet: a reload waits for [`Self::next`].
    pub async fn next_end(&mut self) -> Signal {
        let interrupted = tokio::select! {
            biased;
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
        };
        self.end(interrupted)
    }

    /// Whether a person has asked for the end, at a terminal (SIGINT): nobody is to wait for a load balancer then.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn end(&mut self, interrupted: bool) -> Signal {
        self.interrupted |= interrupted;
        if std::mem::replace(&mut self.draining, true) { Signal::Abandon } else { Signal::Drain }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use futures_util::FutureExt as _;

    use super::*;

    fn send(name: &str) {
        let status = Command::new("kill").args([name, &std::process::id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    // One test, because signals belong to the whole process.
    #[tokio::test]
    async fn the_first_end_drains_the_second_abandons_and_hangup_reloads_in_between() {
        let mut witness = signal(SignalKind::hangup()).unwrap();
        let reloads = Reloads::install().unwrap();
        send("-HUP");
        witness.recv().await;
        let mut signals = Signals::install(reloads).unwrap();
        assert!(signals.next_end().now_or_never().is_none(), "a reload is no end");
        assert_eq!(signals.next().await, Signal::Reload, "and came before anybody asked");
        send("-TERM");
        assert_eq!(signals.next().await, Signal::Drain);
        send("-HUP");
        assert_eq!(signals.next().await, Signal::Reload);
        send("-INT");
        assert_eq!(signals.next().await, Signal::Abandon);
    }
}
