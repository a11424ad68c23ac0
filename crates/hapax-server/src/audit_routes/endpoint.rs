//! A path without its identifiers, so that a million payments are one endpoint.
//!
//! It guesses by form: digits, UUIDs, long hexadecimal numbers, prefixed and other long random names. A word stays.

/// Longer paths are cut: nobody writes such an endpoint, and each one is kept.
const PATH_BYTES_MAX: usize = 256;

/// The path with `{id}` for every segment that looks like an identifier.
pub(super) fn collapsed(path: &str) -> String {
    let mut collapsed = String::with_capacity(path.len().min(PATH_BYTES_MAX));
    for (nth, segment) in path.split('/').enumerate() {
        if nth > 0 {
            collapsed.push('/');
        }
        collapsed.push_str(if is_identifier(segment) { "{id}" } else { segment });
        if collapsed.len() > PATH_BYTES_MAX {
            let end = (0..=PATH_BYTES_MAX).rev().find(|at| collapsed.is_char_boundary(*at)).unwrap_or(0);
            collapsed.truncate(end);
            collapsed.push('…');
            break;
        }
    }
    collapsed
}

fn is_identifier(segment: &str) -> bool {
    let digits = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let long_hex = segment.len() >= 16 && segment.bytes().all(|byte| byte.is_ascii_hexdigit());
    let random = segment.len() >= 20 && is_mixed(segment);
    let prefixed = segment.rsplit_once('_').is_some_and(|(_, tail)| tail.len() >= 12 && is_mixed(tail));
    digits || is_uuid(segment) || (long_hex && is_mixed(segment)) || random || prefixed
}

/// Letters and digits, and both of them: words have no digits.
fn is_mixed(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(
            |(at, byte)| {
                if dashes.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_become_one_endpoint_and_words_stay() {
        for (path, endpoint) in [
            ("/", "/"),
            ("/v1/payments", "/v1/payments"),
            ("/v1/payments/42", "/v1/payments/{id}"),
            ("/v1/payments/42/refunds/7/", "/v1/payments/{id}/refunds/{id}/"),
            ("/u/018f2c3e-7b1a-7c44-9d2e-0123456789AB", "/u/{id}"),
            ("/u/018f2c3e-7b1a-7c44-9d2e-0123456789AG", "/u/018f2c3e-7b1a-7c44-9d2e-0123456789AG"),
            ("/o/507f1f77bcf86cd799439011", "/o/{id}"),
            ("/c/cus_9s6XKzkNRiz8i3", "/c/{id}"),
            ("/t/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/t/{id}"),
            ("/oauth2/token", "/oauth2/token"),
            ("/deadbeefdeadbeef", "/deadbeefdeadbeef"),
            ("/internationalization_settings", "/internationalization_settings"),
        ] {
            assert_eq!(collapsed(path), endpoint, "{path}");
        }
    }

    #[test]
    fn an_endless_path_is_cut() {
        let path = format!("/{}", "ä".repeat(10_000));
        assert!(collapsed(&path).len() <= PATH_BYTES_MAX + "…".len());
    }
}
