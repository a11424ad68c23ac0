//! JSON numbers as exact decimals, each in one spelling.
//!
//! Why: RFC 8785 turns every number into a double and so makes 9007199254740993 and 9007199254740992 one number, though
//! they may be two amounts. Here a number is what its digits say. The rule itself is stated in the parent module.
//!
//! Left to others: finding where a number begins.

use super::NotCanonical;

/// The largest exponent, of either sign, a number may have once it is written as an integer times a power of ten.
///
/// A number beyond it makes the document not canonical. It bounds the arithmetic, not the meaning: no quantity that
/// people send comes near it, and 10^15 leaves room in an `i64` for the digits of any document.
pub const EXPONENT_MAX: i64 = 1_000_000_000_000_000;

/// The most significant digits the shortest spelling of a double can have.
const DOUBLE_DIGITS_MAX: usize = 17;

/// Integers of this many digits are below 2^53, and ECMAScript writes them as plain digits: they are canonical already.
const PLAIN_DIGITS_MAX: usize = 15;

/// More digits than this in an exponent are out of bounds for any document, and would not fit an `i64`.
const EXPONENT_DIGITS_MAX: usize = 18;

/// Reads the number that starts `json[at..]`, writes its canonical spelling to `out`, and says where it ends.
pub(super) fn canonicalise(json: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, NotCanonical> {
    let (written, end) = Written::read(json, at)?;
    if written.is_plain() {
        out.extend_from_slice(&json[at..end]);
        return Ok(end);
    }
    match written.decimal() {
        Some(decimal) => decimal.write(out),
        None => return Err(NotCanonical::Exponent { at }),
    }
    Ok(end)
}

/// Where the number that starts `json[at..]` ends.
pub(super) fn end(json: &[u8], at: usize) -> Result<usize, NotCanonical> {
    Written::read(json, at).map(|(_, end)| end)
}

/// A number cut into the parts of its grammar.
struct Written<'a> {
    negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    exponent_negative: bool,
    exponent: &'a [u8],
}

impl<'a> Written<'a> {
    fn read(json: &'a [u8], at: usize) -> Result<(Self, usize), NotCanonical> {
        let negative = json.get(at) == Some(&b'-');
        let start = at + usize::from(negative);
        let mut end = digits_end(json, start)?;
        let integer = &json[start..end];
        if integer.len() > 1 && integer[0] == b'0' {
            return Err(NotCanonical::Syntax { at: start + 1 });
        }
        let mut fraction: &[u8] = &[];
        if json.get(end) == Some(&b'.') {
            let start = end + 1;
            end = digits_end(json, start)?;
            fraction = &json[start..end];
        }
        let mut exponent: &[u8] = &[];
        let mut exponent_negative = false;
        if matches!(json.get(end), Some(b'e' | b'E')) {
            let sign = json.get(end + 1);
            exponent_negative = sign == Some(&b'-');
            let start = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
            end = digits_end(json, start)?;
            exponent = &json[start..end];
        }
        Ok((Self { negative, integer, fraction, exponent_negative, exponent }, end))
    }

    /// Whether the number is an integer so short that its spelling is canonical already.
    fn is_plain(&self) -> bool {
        let negative_zero = self.negative && self.integer == b"0";
        self.fraction.is_empty() && self.exponent.is_empty() && self.integer.len() <= PLAIN_DIGITS_MAX && !negative_zero
    }

    /// The value, or `None` where its exponent is out of bounds.
    fn decimal(&self) -> Option<Decimal<'a>> {
        let mut head = trim_start(self.integer);
        let mut tail = if head.is_empty() { trim_start(self.fraction) } else { self.fraction };
        if head.is_empty() && trim_end(tail).is_empty() {
            return Some(Decimal { negative: false, head: &[], tail: &[], exponent: 0 });
        }
        let mut dropped = tail.len();
        tail = trim_end(tail);
        dropped -= tail.len();
        if tail.is_empty() {
            dropped += head.len();
            head = trim_end(head);
            dropped -= head.len();
        }
        let shift = i64::try_from(dropped).ok()? - i64::try_from(self.fraction.len()).ok()?;
        let exponent = self.exponent_as_written()?.checked_add(shift)?;
        let within = exponent.abs() <= EXPONENT_MAX;
        within.then_some(Decimal { negative: self.negative, head, tail, exponent })
    }

    fn exponent_as_written(&self) -> Option<i64> {
        let digits = trim_start(self.exponent);
        if digits.len() > EXPONENT_DIGITS_MAX {
            return None;
        }
        let size = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(if self.exponent_negative { -size } else { size })
    }
}

/// An exact value: the integer whose digits are `head` then `tail`, times ten to the `exponent`.
///
/// The digits neither begin nor end with a zero, so each value has one form. Zero has no digits and no sign.
struct Decimal<'a> {
    negative: bool,
    head: &'a [u8],
    tail: &'a [u8],
    exponent: i64,
}

impl Decimal<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.write_exactly(out);
        if self.head.len() + self.tail.len() > DOUBLE_DIGITS_MAX {
            return;
        }
        let Some(double) = read_double(&out[start..]) else { return };
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(double).as_bytes();
        if self.is_denoted_by(shortest) {
            out.truncate(start);
            out.extend_from_slice(shortest);
        }
    }

    /// The spelling of a value that no double's shortest spelling denotes: digits, `e`, exponent.
    fn write_exactly(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        if self.head.is_empty() && self.tail.is_empty() {
            out.push(b'0');
        }
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.tail);
        out.push(b'e');
        out.extend_from_slice(self.exponent.to_string().as_bytes());
    }

    fn is_denoted_by(&self, number: &[u8]) -> bool {
        let Ok((written, _)) = Written::read(number, 0) else { return false };
        written.decimal().is_some_and(|other| {
            self.negative == other.negative
                && self.exponent == other.exponent
                && self.head.iter().chain(self.tail).eq(other.head.iter().chain(other.tail))
        })
    }
}

/// The nearest double, where there is a finite one.
fn read_double(number: &[u8]) -> Option<f64> {
    let double: f64 = str::from_utf8(number).ok()?.parse().ok()?;
    double.is_finite().then_some(double)
}

/// Where the digits that start at `at` end; there must be one.
fn digits_end(json: &[u8], at: usize) -> Result<usize, NotCanonical> {
    let rest = json.get(at..).unwrap_or_default();
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 { Err(NotCanonical::Syntax { at }) } else { Ok(at + count) }
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    &digits[..digits.len() - zeros]
}
