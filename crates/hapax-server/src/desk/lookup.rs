//! Records and notes by an id, or by its first digits, on whichever store.

use hapax_core::address::Id;
use hapax_core::journal::{Journal as _, NoteScan, Noted};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::store::{Page, Scan, Store as _, StoreError};

use crate::store::AnyStore;

/// Fewer digits would fit too many records.
pub(super) const DIGITS_MIN: usize = 8;

/// Digits of a whole id.
pub(super) const DIGITS: usize = 64;

/// The ids that begin with these digits, from the first to the last; `None`: these are not the digits of an id, or too few.
pub(super) fn range(digits: &str) -> Option<(Id, Id)> {
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digits || !(DIGITS_MIN..=DIGITS).contains(&digits.len()) {
        return None;
    }
    let filled = |with: char| {
        let whole: String = digits.chars().chain(std::iter::repeat(with)).take(DIGITS).collect();
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&whole[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Id::from_bytes(bytes))
    };
    filled('0').zip(filled('f'))
}

/// Whether a record of that space was only observed: nobody was refused or answered by it.
pub(crate) fn is_observed(space: &str) -> bool {
    space.strip_prefix("http-observed").is_some_and(|route| route.is_empty() || route.starts_with(':'))
}

impl AnyStore {
    /// Records whose ids lie between these two, both included.
    pub(super) async fn between(&self, first: &Id, last: &Id, limit: u32) -> Result<Page, StoreError> {
        match self {
            Self::Sqlite(store) => store.between(first, last, limit).await,
            Self::Postgres(store) => store.between(first, last, limit).await,
            Self::Memory(_) => {
                let mut found = self.scan(&Scan { limit: PAGE_ENTRIES_MAX, ..Scan::default() }).await?;
                let mut next = found.next.take();
                while let Some(after) = next {
                    let query = Scan { limit: PAGE_ENTRIES_MAX, after: Some(after), ..Scan::default() };
                    let mut page = self.scan(&query).await?;
                    next = page.next.take();
                    found.entries.append(&mut page.entries);
                }
                found.entries.retain(|entry| (first..=last).contains(&entry.address.id()));
                found.entries.truncate(limit as usize);
                Ok(found)
            }
        }
    }

    /// Notes about records whose ids lie between these two, newest first, also where the records are gone.
    pub(super) async fn notes_between(
        &self,
        first: &Id,
        last: &Id,
        query: &NoteScan,
    ) -> Result<Vec<Noted>, StoreError> {
        match self {
            Self::Sqlite(store) => store.notes_between(first, last, query).await,
            Self::Postgres(store) => store.notes_between(first, last, query).await,
            Self::Memory(_) => {
                let mut found = Vec::new();
                let mut place = NoteScan { about: None, before: query.before, limit: PAGE_ENTRIES_MAX };
                loop {
                    let page = self.notes(&place).await?;
                    let Some(oldest) = page.last() else { break };
                    place.before = Some(oldest.number);
                    let ids = |noted: &Noted| noted.note.about.as_ref().map(|about| about.id);
                    found.extend(
                        page.into_iter().filter(|noted| ids(noted).is_some_and(|id| (first..=last).contains(&&id))),
                    );
                }
                found.truncate(query.count() as usize);
                Ok(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_name_a_range_and_nothing_else_does() {
        let (first, last) = range("93ed900B").unwrap();
        assert_eq!(first.to_string(), format!("93ed900b{}", "0".repeat(56)));
        assert_eq!(last.to_string(), format!("93ed900b{}", "f".repeat(56)));
        let whole = "ab".repeat(32);
        assert_eq!(range(&whole).map(|(first, last)| first == last), Some(true));
        for text in ["", "93ed900", "93ed900g", "é3ed900a", &"a".repeat(65)] {
            assert_eq!(range(text), None, "{text}");
        }
    }
}
