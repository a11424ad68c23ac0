//! What the query of a request says: names and values, decoded, each known.
//!
//! A name that nobody knows is refused: a misspelt filter would otherwise be no filter. Values are texts, whatever they
//! look like; nothing is ever put together from them.

use http::Uri;

use super::refusal::Refusal;

/// Longer values match nothing: keys, scopes and labels are shorter.
pub(super) const TEXT_CHARS_MAX: usize = 512;

/// The decoded parameters of a query.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the query of a URL.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        decoded.collect::<Result<_, _>>().map(Self)
    }

    /// Refuses every parameter but these.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Refusal> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(self),
            Some((name, _)) => {
                let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Refusal::invalid(format!("There is no parameter {name:?} here. There are: {there}.")))
            }
        }
    }

    /// All values of a parameter.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let of_name = self.0.iter().filter(|(given, _)| given == name);
        of_name.map(|(_, value)| sound(name, value).map(str::to_owned)).collect()
    }

    /// The value of a parameter that is given at most once.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let mut texts = self.texts(name)?;
        match texts.len() {
            0 | 1 => Ok(texts.pop()),
            _ => Err(Refusal::invalid(format!("`{name}` is given several times. Give it once."))),
        }
    }

    /// A number within bounds.
    pub(super) fn number(&self, name: &str, from: u64, to: u64) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // A sign is not a digit, so `+5` and `-0` are no numbers here.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (from..=to).contains(number));
        number.map(Some).ok_or_else(|| Refusal::invalid(format!("`{name}` must be a number from {from} to {to}.")))
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Refusal::invalid(format!("`{name}` must be true or false."))),
        }
    }
}

/// Refuses what no store can hold.
fn sound<'a>(name: &str, value: &'a str) -> Result<&'a str, Refusal> {
    if value.is_empty() {
        return Err(Refusal::invalid(format!("`{name}` is empty. Give it a value or leave it out.")));
    }
    if value.contains('\0') {
        return Err(Refusal::invalid(format!("`{name}` holds a NUL character. Leave it out.")));
    }
    if value.chars().count() > TEXT_CHARS_MAX {
        return Err(Refusal::invalid(format!("`{name}` has more than {TEXT_CHARS_MAX} characters. Shorten it.")));
    }
    Ok(value)
}

/// `%41` is A, `+` is a space.
fn decode(text: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, others) = others.split_at_checked(2).ok_or_else(undecodable)?;
                bytes.push(byte(digits).ok_or_else(undecodable)?);
                rest = others;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| undecodable())
}

fn byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn undecodable() -> Refusal {
    Refusal::invalid("The query is not percent-encoded UTF-8. Write % as %25.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Refusal> {
        Query::of(&format!("/v1/keys?{text}").parse().unwrap())
    }

    #[test]
    fn values_are_decoded_and_stay_text() {
        let query = query("scope=a%26b%3D%27+OR+1%3D1--&state=dead&state=unknown&&find=%E2%82%AC").unwrap();
        assert_eq!(query.text("scope").unwrap().unwrap(), "a&b=' OR 1=1--");
        assert_eq!(query.texts("state").unwrap(), ["dead", "unknown"]);
        assert_eq!(query.text("find").unwrap().unwrap(), "€");
        assert_eq!(query.text("label").unwrap(), None);
    }

    #[test]
    fn what_is_not_utf_8_or_half_an_escape_is_refused() {
        for text in ["scope=%FF", "scope=%4", "scope=%", "scope=%G1", "%C3=1"] {
            assert_eq!(query(text).unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn unknown_repeated_empty_and_overlong_parameters_are_refused() {
        assert!(query("scop=x").unwrap().only(&["scope"]).unwrap_err().detail.contains("\"scop\""));
        let refused = query("scope=a&scope=b&find=&label=%00").unwrap();
        for name in ["scope", "find", "label"] {
            assert_eq!(refused.text(name).unwrap_err().status, 400, "{name}");
        }
        let long = query(&format!("find={}", "x".repeat(TEXT_CHARS_MAX + 1))).unwrap();
        assert!(long.text("find").is_err());
    }

    #[test]
    fn a_number_has_bounds_and_no_sign() {
        for text in ["1000000000", "0", "-1", "+5", "5x", "1e3", "%20", "99999999999999999999999"] {
            let refusal = query(&format!("limit={text}")).unwrap().number("limit", 1, 500).unwrap_err();
            assert_eq!(
                (refusal.status.as_u16(), refusal.detail.contains("500") || text == "%20"),
                (400, true),
                "{text}"
            );
        }
        assert_eq!(query("limit=500").unwrap().number("limit", 1, 500).unwrap(), Some(500));
    }
}
