//! A chunked body: sizes, data and trailers, byte for byte as RFC 9112 writes them, and nothing more lenient. Which trailers
//! are passed on is left to [`headers`](crate::headers), for both protocols.

use super::head::split_field;

/// More digits than any body needs, and few enough for 64 bits.
const SIZE_DIGITS_MAX: usize = 15;
/// Extensions mean nothing to us; a client that sends many wants to cost us time.
const EXTENSION_BYTES_MAX: usize = 4 * 1024;
/// Trailers are as small as the smallest heads.
const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Where we are in a chunked body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    size: u64,
    digits: usize,
    extension_bytes: usize,
    trailer_bytes: usize,
    /// The trailer line that is not complete yet.
    line: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerLf,
    End,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of it belongs to the body, and more will come.
    Within,
    /// The body ends before this byte.
    Ended(usize),
    /// This byte cannot stand here.
    Malformed(usize),
}

impl Chunks {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Progress {
        let mut at = 0;
        while at < bytes.len() {
            if self.at == At::Data {
                let step = (bytes.len() - at).min(usize::try_from(self.size).unwrap_or(usize::MAX));
                at += step;
                self.size -= step as u64;
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            let Some(next) = self.step(bytes[at]) else { return Progress::Malformed(at) };
            self.at = next;
            at += 1;
            if next == At::End {
                return Progress::Ended(at);
            }
        }
        Progress::Within
    }

    /// Where the byte leads; none if it cannot stand here.
    fn step(&mut self, byte: u8) -> Option<At> {
        match (self.at, byte) {
            (At::Size, b'\r') if self.digits > 0 => Some(At::SizeLf),
            (At::Size, b';') if self.digits > 0 => Some(At::Extension),
            (At::Size, _) => self.digit(byte),
            (At::Extension, b'\r') => Some(At::SizeLf),
            (At::Extension, _) => self.extension(byte),
            (At::SizeLf, b'\n') => Some(self.after_size()),
            (At::DataCr, b'\r') => Some(At::DataLf),
            (At::DataLf, b'\n') => Some(At::Size),
            (At::Trailer, b'\r') => Some(At::TrailerLf),
            (At::Trailer, _) => self.trailer(byte),
            (At::TrailerLf, b'\n') => self.after_trailer(),
            _ => None,
        }
    }

    fn digit(&mut self, byte: u8) -> Option<At> {
        let digit = char::from(byte).to_digit(16)?;
        self.digits += 1;
        self.size = self.size * 16 + u64::from(digit);
        (self.digits <= SIZE_DIGITS_MAX).then_some(At::Size)
    }

    fn extension(&mut self, byte: u8) -> Option<At> {
        self.extension_bytes += 1;
        let fits = self.extension_bytes <= EXTENSION_BYTES_MAX && (!byte.is_ascii_control() || byte == b'\t');
        fits.then_some(At::Extension)
    }

    fn after_size(&mut self) -> At {
        self.digits = 0;
        if self.size == 0 { At::Trailer } else { At::Data }
    }

    fn trailer(&mut self, byte: u8) -> Option<At> {
        self.trailer_bytes += 1;
        self.line.push(byte);
        (self.trailer_bytes <= TRAILER_BYTES_MAX).then_some(At::Trailer)
    }

    fn after_trailer(&mut self) -> Option<At> {
        if self.line.is_empty() {
            return Some(At::End);
        }
        let is_field = split_field(&self.line).is_ok();
        self.line.clear();
        is_field.then_some(At::Trailer)
    }
}
