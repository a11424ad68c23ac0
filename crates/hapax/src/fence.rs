//! The fence after a restore: which keys may have been claimed in what was lost.
//!
//! A store that was restored from a backup has forgotten every claim made after the backup. A retry of such a claim would
//! look like a new key and run a second time. So while a fence stands, a key that could have been claimed in the lost time
//! starts as `unknown` and is probed, or resolved by a person, before anything runs. A UUIDv7 says when it was made: one
//! made after the restore cannot have been claimed before it.

use hapax_core::address::Key;
use hapax_core::clock::{Now, Timestamp};
use hapax_core::journal::{Journal, Note};
use hapax_core::store::{ErrorKind, Store, StoreError};

use crate::clock::SKEW_MS;
use crate::remembered::{recall, remember_noted};

/// The name under which a store remembers it.
const NAME: &str = "fence";

/// How often raising and lifting is tried while others do the same.
const TRIES_MAX: u32 = 8;

/// A fence as the store remembers it. Times are store time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// What was claimed since then may be lost: the time of the backup.
    pub lost_since: Timestamp,
    /// When the store was restored.
    pub restored_at: Timestamp,
    /// When every lost answer would have expired, and the fence falls by itself.
    pub until: Timestamp,
}

impl Fence {
    /// Whether that key could have been claimed in what was lost. Only a key that says itself when it was made could not.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        made_at(key.as_str()).is_none_or(|made_at| made_at <= self.restored_at.plus_ms(SKEW_MS))
    }

    /// Whether every lost answer would have expired, by a clock that is trusted: then the fence holds nothing any more.
    #[must_use]
    pub fn has_fallen(&self, now: Now) -> bool {
        now.has_reached(self.until)
    }
}

/// The fence that stands, if one does. One whose time has passed by the store's clock counts as none; while the store does not
/// trust its clock, no fence falls.
///
/// # Errors
/// If the store fails, or what it remembers cannot be read.
pub async fn standing(store: &impl Store) -> Result<Option<Fence>, StoreError> {
    let recalled = recall(store, NAME).await?;
    Ok(read(recalled.text.as_deref())?.filter(|fence| !fence.has_fallen(recalled.now)))
}

/// Raises a fence, with a note of who did it and why. Where one stands, the two become one that holds whatever either held.
///
/// # Errors
/// If the store fails.
pub async fn raise(store: &impl Journal, fence: Fence, note: &Note) -> Result<(), StoreError> {
    replace(store, note, |standing| Some(standing.map_or(fence, |standing| widest(standing, fence)))).await.map(|_| ())
}

/// Lifts the fence, with a note of who did it and why, and says which one stood.
///
/// # Errors
/// If the store fails.
pub async fn lift(store: &impl Journal, note: &Note) -> Result<Option<Fence>, StoreError> {
    replace(store, note, |_| None).await
}

async fn replace(
    store: &impl Journal,
    note: &Note,
    next: impl Fn(Option<Fence>) -> Option<Fence> + Send + Sync,
) -> Result<Option<Fence>, StoreError> {
    let mut recalled = recall(store, NAME).await?;
    for _ in 0..TRIES_MAX {
        let standing = read(recalled.text.as_deref())?;
        match remember_noted(store, NAME, &recalled, &write(next(standing)), note).await? {
            Ok(()) => return Ok(standing),
            Err(other) => recalled = other,
        }
    }
    Err(StoreError::new("fence", ErrorKind::Unavailable, "others keep changing the fence; try again"))
}

fn widest(one: Fence, other: Fence) -> Fence {
    Fence {
        lost_since: one.lost_since.min(other.lost_since),
        restored_at: one.restored_at.max(other.restored_at),
        until: one.until.max(other.until),
    }
}

/// Three numbers; empty: none.
fn write(fence: Option<Fence>) -> String {
    fence.map_or_else(String::new, |fence| {
        format!("{} {} {}", fence.lost_since.as_ms(), fence.restored_at.as_ms(), fence.until.as_ms())
    })
}

fn read(text: Option<&str>) -> Result<Option<Fence>, StoreError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some([lost_since, restored_at, until]) => Ok(Some(Fence {
            lost_since: Timestamp::from_ms(*lost_since),
            restored_at: Timestamp::from_ms(*restored_at),
            until: Timestamp::from_ms(*until),
        })),
        _ => Err(StoreError::new("fence", ErrorKind::Damaged, "the fence cannot be read; raise it again")),
    }
}

/// When a key was made, if it says so: a UUIDv7 does.
fn made_at(key: &str) -> Option<Timestamp> {
    let digits: String = key.split('-').collect();
    let dashes: Vec<usize> = key.match_indices('-').map(|(at, _)| at).collect();
    if dashes != [8, 13, 18, 23] || digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let uuid = u128::from_str_radix(&digits, 16).ok()?;
    ((uuid >> 76) & 0xf == 7).then(|| Timestamp::from_ms((uuid >> 80) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::limits::CLOCK_SETTLE_MS;
    use hapax_core::memory::Memory;
    use hapax_testkit::clock::FakeClock;

    const RESTORED_MS: u64 = 1_700_000_000_000;

    fn fence() -> Fence {
        let at = Timestamp::from_ms;
        Fence { lost_since: at(RESTORED_MS - 5_000), restored_at: at(RESTORED_MS), until: at(RESTORED_MS + 86_400_000) }
    }

    fn note() -> Note {
        let text = |text: &str| text.to_owned();
        let (who, what, reason, detail) = (text("ada"), text("fence"), text("a test"), String::new());
        Note { who, what, about: None, before: None, after: None, reason, detail }
    }

    fn uuid_v7(ms: u64) -> Key {
        let hex = format!("{ms:012x}70008000000000000000");
        Key::new(&format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])).unwrap()
    }

    #[test]
    fn only_a_key_that_was_surely_made_later_is_let_through() {
        for key in ["order-17", "8e03978e-40d5-43dd-bc93-6894a57f9324"] {
            assert!(fence().holds(&Key::new(key).unwrap()), "{key}");
        }
        assert!(
            fence().holds(&uuid_v7(RESTORED_MS - 90_000)),
            "made before the backup, it may have been sent after it"
        );
        assert!(fence().holds(&uuid_v7(RESTORED_MS - 1)));
        assert!(fence().holds(&uuid_v7(RESTORED_MS + SKEW_MS)), "a clock may be ahead");
        assert!(!fence().holds(&uuid_v7(RESTORED_MS + SKEW_MS + 1)));
    }

    #[tokio::test]
    async fn a_fence_falls_by_the_stores_clock_and_only_if_that_is_trusted() {
        let clock = FakeClock::default();
        let store = Memory::with_clock(clock.clone());
        let until = Timestamp::from_ms(RESTORED_MS + 1_000);
        raise(&store, Fence { until, ..fence() }, &note()).await.unwrap();
        assert_eq!(standing(&store).await.unwrap().unwrap().until, until);
        clock.advance_ms(999);
        assert!(standing(&store).await.unwrap().is_some());
        clock.step_ms(3_600_000);
        clock.advance_ms(1);
        assert!(standing(&store).await.unwrap().is_some(), "somebody set the clock");
        clock.advance_ms(CLOCK_SETTLE_MS);
        assert_eq!(standing(&store).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_fence_stands_until_it_is_lifted() {
        let store = Memory::with_clock(FakeClock::default());
        assert_eq!(standing(&store).await.unwrap(), None);
        raise(&store, fence(), &note()).await.unwrap();
        assert_eq!(standing(&store).await.unwrap(), Some(fence()));
        let earlier = Fence { lost_since: Timestamp::from_ms(1), until: Timestamp::from_ms(2), ..fence() };
        raise(&store, earlier, &note()).await.unwrap();
        let both = Fence { lost_since: earlier.lost_since, ..fence() };
        assert_eq!(standing(&store).await.unwrap(), Some(both), "what either held");
        assert_eq!(lift(&store, &note()).await.unwrap(), Some(both));
        assert_eq!(standing(&store).await.unwrap(), None);
        assert_eq!(lift(&store, &note()).await.unwrap(), None);
    }
}
