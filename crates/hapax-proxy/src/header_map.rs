//! What `http::HeaderMap` cannot do by itself.

use http::HeaderMap;
use http::header::HeaderName;

/// How many fields are added to a head on its way: room for them is made at once.
const FIELDS_ADDED: usize = 8;

/// Removes what is not to be kept, and leaves the rest in its order. `HeaderMap::remove` does not: it puts the last field
/// into the gap.
pub fn retain(headers: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    let Some(first_gone) = headers.keys().position(|name| !keep(name)) else { return };
    // The last one leaves no gap, and servers like to end with `Connection`.
    if first_gone + 1 == headers.keys_len()
        && let Some(last) = headers.keys().last().cloned()
    {
        headers.remove(last);
        return;
    }
    let all = std::mem::take(headers);
    headers.reserve(all.keys_len() + FIELDS_ADDED);
    let mut kept = None;
    for (name, value) in all {
        // Further lines of a field come without its name.
        if let Some(name) = name {
            kept = Some(name).filter(&keep);
        }
        if let Some(name) = &kept {
            headers.append(name, value);
        }
    }
}
