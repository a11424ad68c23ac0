//! [`SendBefore`]: until when an attempt may begin to act.
//!
//! A process that sleeps (SIGSTOP, a swap storm, a stopped virtual machine) does not notice that its lease ends, and others
//! may take its request over. So the lease is looked at again where the first irreversible step is taken, by a clock that
//! goes on while the host is asleep. What is left is the time between that look and the step itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// Of a lease, the share in which an attempt may begin to act. The rest is for what lies between the look at the clock and
/// the effect: a system call, a queue in the kernel, the difference between two hosts' idea of a second.
const SHARE: (u64, u64) = (3, 4);

/// Until when an attempt may begin to act: an extension of every request that holds a claim.
///
/// Look at it directly before the first step that cannot be taken back, and take none when it [is over](Self::is_over): the
/// lease may have lapsed, and another process may have taken the request over. Answer with
/// [`Happened::No`](crate::http::Happened) then, so that the key comes free. Renewals of the lease lengthen it, so keep a
/// clone and not a copy of the time.
///
/// ```
/// use std::time::Duration;
/// use hapax::http::SendBefore;
///
/// fn charge(request: &http::Request<()>) -> Result<(), &'static str> {
///     if request.extensions().get::<SendBefore>().is_some_and(SendBefore::is_over) {
///         return Err("held up for longer than the lease: nothing was sent");
///     }
///     Ok(())
/// }
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(SendBefore::after(Duration::from_secs(60)));
/// assert!(charge(&request).is_ok());
/// request.extensions_mut().insert(SendBefore::after(Duration::ZERO));
/// assert!(charge(&request).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct SendBefore(Arc<AtomicU64>);

impl SendBefore {
    /// Until so long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(Arc::new(AtomicU64::new(clock::boot_ms().saturating_add(ms))))
    }

    /// For a lease of that length, asked for at that moment of the boot clock.
    pub(crate) fn of_lease(asked_ms: u64, lease_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(end_ms(asked_ms, lease_ms))))
    }

    /// The lease was renewed; that was asked for at that moment.
    pub(crate) fn renew(&self, asked_ms: u64, lease_ms: u64) {
        self.0.fetch_max(end_ms(asked_ms, lease_ms), Ordering::Relaxed);
    }

    /// Whether nothing must be begun any more. Counts the time in which the process was stopped or the host asleep.
    #[must_use]
    pub fn is_over(&self) -> bool {
        clock::boot_ms() >= self.0.load(Ordering::Relaxed)
    }
}

fn end_ms(asked_ms: u64, lease_ms: u64) -> u64 {
    let (share, whole) = SHARE;
    asked_ms.saturating_add(lease_ms / whole * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_may_be_used_for_three_quarters_of_its_time() {
        let now = clock::boot_ms();
        assert!(!SendBefore::of_lease(now, 60_000).is_over());
        assert!(!SendBefore::of_lease(now.saturating_sub(44_000), 60_000).is_over());
        assert!(SendBefore::of_lease(now.saturating_sub(45_000), 60_000).is_over());
        assert!(SendBefore::of_lease(now, 0).is_over());
        assert!(!SendBefore::of_lease(u64::MAX, u64::MAX).is_over());
    }

    #[test]
    fn a_renewal_lengthens_it_for_all_clones_and_never_shortens_it() {
        let now = clock::boot_ms();
        let before = SendBefore::of_lease(now.saturating_sub(60_000), 60_000);
        let kept = before.clone();
        assert!(kept.is_over());
        before.renew(now, 60_000);
        assert!(!kept.is_over());
        before.renew(now.saturating_sub(60_000), 60_000);
        assert!(!kept.is_over(), "a late reply to an older renewal");
    }
}
