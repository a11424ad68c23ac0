//! The bodies of recorded responses that are being sent: each is in memory, and in the memory budget, once.
//!
//! A thousand retries of one key share one buffer, and whoever reads its response slowly, or not at all, holds no copy of its
//! own. A buffer belongs to one version of a record, so a record that was written again is never mistaken for its past.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use hapax_core::record::{Body, Outcome, Version};

use crate::http::budget::{Budget, Full, SMALL_BYTES_MAX, Share, Use};
use crate::http::client::Client;

/// Large bodies that are being sent.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    sending: Mutex<Sending>,
}

#[derive(Debug, Default)]
struct Sending {
    bodies: HashMap<Version, Weak<Sent>>,
    /// When there are so many, those that nobody sends any more are forgotten.
    clear_at: usize,
}

#[derive(Debug)]
struct Sent {
    outcome: Arc<Outcome>,
    _share: Share,
}

impl Replayed {
    /// The recorded body, held within the budget until the last part of it is sent; none where it was not kept.
    pub(crate) fn body(
        &self,
        budget: &Arc<Budget>,
        client: Option<&Client>,
        version: Version,
        outcome: &Arc<Outcome>,
    ) -> Result<Option<Bytes>, Full> {
        let Body::Kept(body) = &outcome.body else { return Ok(None) };
        match body.len() {
            0 => Ok(Some(Bytes::new())),
            1..=SMALL_BYTES_MAX => {
                let mut share = budget.share(client);
                share.hold(body.len(), Use::Replay)?;
                Ok(Some(share.around(Whole(Arc::clone(outcome)))))
            }
            _ => self.large(budget, client, version, outcome).map(Some),
        }
    }

    fn large(
        &self,
        budget: &Arc<Budget>,
        client: Option<&Client>,
        version: Version,
        outcome: &Arc<Outcome>,
    ) -> Result<Bytes, Full> {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = sending.bodies.get(&version).and_then(Weak::upgrade) {
            return Ok(Bytes::from_owner(Shared(sent)));
        }
        let mut share = budget.share(client);
        share.hold(kept(outcome).len(), Use::Replay)?;
        if sending.bodies.len() >= sending.clear_at {
            sending.bodies.retain(|_, sent| sent.strong_count() > 0);
            sending.clear_at = 2 * sending.bodies.len() + 16;
        }
        let sent = Arc::new(Sent { outcome: Arc::clone(outcome), _share: share });
        sending.bodies.insert(version, Arc::downgrade(&sent));
        Ok(Bytes::from_owner(Shared(sent)))
    }
}

fn kept(outcome: &Outcome) -> &[u8] {
    match &outcome.body {
        Body::Kept(body) => body,
        Body::NotKept => &[],
    }
}

/// A recorded body as bytes, without a copy.
pub(crate) struct Whole(pub(crate) Arc<Outcome>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        kept(&self.0)
    }
}

struct Shared(Arc<Sent>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        kept(&self.0.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(body: Body) -> Arc<Outcome> {
        Arc::new(Outcome { status: 201, headers: Vec::new(), body })
    }

    fn version(number: u64) -> Version {
        Version::from_bytes(u128::from(number).to_le_bytes())
    }

    #[test]
    fn replays_of_one_version_share_one_buffer_and_count_once() {
        let (replayed, budget) = (Replayed::default(), Arc::<Budget>::default());
        // A store that reads a copy for each.
        let copies: Vec<Bytes> = (0..200)
            .map(|_| {
                let copy = outcome(Body::Kept(vec![7; 100_000]));
                replayed.body(&budget, None, version(1), &copy).unwrap().unwrap()
            })
            .collect();
        assert!(copies.iter().all(|copy| copy.as_ptr() == copies[0].as_ptr() && copy.len() == 100_000));
        assert_eq!(budget.used(), 100_000);
        let other = outcome(Body::Kept(vec![8; 100_000]));
        assert_eq!(replayed.body(&budget, None, version(2), &other).unwrap().unwrap()[0], 8);
        drop(copies);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_body_counts_until_it_is_sent_and_none_is_sent_beyond_the_budget() {
        let (replayed, budget) = (Replayed::default(), Arc::<Budget>::default());
        budget.set_max(1_000_000);
        let large = outcome(Body::Kept(vec![7; 500_000]));
        let mut sending = replayed.body(&budget, None, version(1), &large).unwrap().unwrap();
        let last = sending.split_off(499_999);
        drop(sending);
        let next = outcome(Body::Kept(vec![7; 500_000]));
        assert_eq!(replayed.body(&budget, None, version(2), &next), Err(Full));
        drop(last);
        assert!(replayed.body(&budget, None, version(2), &next).is_ok());
    }

    #[test]
    fn small_empty_and_missing_bodies() {
        let (replayed, budget) = (Replayed::default(), Arc::<Budget>::default());
        let body = |body: Body| replayed.body(&budget, None, version(1), &outcome(body)).unwrap();
        assert_eq!(body(Body::NotKept), None);
        assert_eq!(body(Body::Kept(Vec::new())), Some(Bytes::new()));
        let small = body(Body::Kept(b"small".to_vec()));
        assert_eq!((small.as_deref(), budget.used()), (Some(&b"small"[..]), 5));
    }

    #[test]
    fn what_nobody_sends_is_forgotten() {
        let (replayed, budget) = (Replayed::default(), Arc::<Budget>::default());
        for number in 0..1_000 {
            let large = outcome(Body::Kept(vec![7; SMALL_BYTES_MAX + 1]));
            replayed.body(&budget, None, version(number), &large).unwrap();
        }
        assert!(replayed.sending.lock().unwrap().bodies.len() <= 32);
    }
}
