//! One request head: line by line, each looked at once, however slowly it arrives.

use memchr::memchr;

use super::problem::{self, Problem};

/// How large a head may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLimits {
    /// Fields of one request.
    pub(crate) fields_max: usize,
    /// Bytes of one head, with its request line.
    pub(crate) bytes_max: usize,
    /// Bytes of one request line.
    pub(crate) line_bytes_max: usize,
}

/// A client that sends more empty lines than this before a request is not a client.
const EMPTY_LINES_MAX: usize = 4;
/// Longer lengths do not fit the signed integers of other servers.
const LENGTH_DIGITS_MAX: usize = 18;

/// What is known of a head so far.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Where the line begins that is not complete yet.
    line_start: usize,
    /// From where to look for its end.
    scanned: usize,
    empty_lines: usize,
    request_line: Option<RequestLine>,
    fields: usize,
    content_length: Option<u64>,
    chunked: bool,
    websocket: bool,
}

#[derive(Debug, Clone, Copy)]
struct RequestLine {
    get: bool,
    /// Refused at the end of the head, so that the refusal can name the request.
    connect: bool,
    http_10: bool,
}

/// What was found out about a head.
#[derive(Debug)]
pub(super) enum Seen {
    Partial,
    /// `length` is that of the body; none for chunks. `upgrade` says that the client wants to leave HTTP.
    Complete {
        bytes: usize,
        length: Option<u64>,
        upgrade: bool,
    },
    Bad(Problem),
}

impl Head {
    pub(super) fn is_untouched(&self) -> bool {
        self.scanned == 0
    }

    /// `bytes` begins where the head begins, and is as long as the last time or longer.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &HeadLimits) -> Seen {
        while let Some(at) = memchr(b'\n', &bytes[self.scanned..]) {
            let end = self.scanned + at;
            let line = &bytes[self.line_start..end];
            self.scanned = end + 1;
            self.line_start = end + 1;
            let Some(line) = line.strip_suffix(b"\r") else {
                return Seen::Bad(problem::bad_framing("A line ends without a carriage return. End lines with CR LF."));
            };
            match self.line(line, limits) {
                Ok(false) if end < limits.bytes_max => {}
                Ok(true) if end < limits.bytes_max => return self.complete(end + 1),
                Ok(_) => return Seen::Bad(problem::HEAD_TOO_LARGE),
                Err(problem) => return Seen::Bad(problem),
            }
        }
        self.scanned = bytes.len();
        self.partial(limits)
    }

    fn partial(&self, limits: &HeadLimits) -> Seen {
        if self.request_line.is_none() && self.scanned - self.line_start > limits.line_bytes_max {
            Seen::Bad(problem::TARGET_TOO_LONG)
        } else if self.scanned > limits.bytes_max {
            Seen::Bad(problem::HEAD_TOO_LARGE)
        } else {
            Seen::Partial
        }
    }

    fn complete(&self, bytes: usize) -> Seen {
        let length = if self.chunked { None } else { Some(self.content_length.unwrap_or(0)) };
        let may_upgrade = self.request_line.is_some_and(|line| line.get && !line.http_10);
        Seen::Complete { bytes, length, upgrade: self.websocket && may_upgrade && length == Some(0) }
    }

    /// True at the end of the head.
    fn line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<bool, Problem> {
        if let Some(request_line) = self.request_line {
            if line.is_empty() {
                let refused = request_line.connect.then_some(problem::NO_TUNNELS);
                return refused.map_or_else(|| self.check_lengths().map(|()| true), Err);
            }
            self.fields += 1;
            if self.fields > limits.fields_max {
                return Err(problem::HEAD_TOO_LARGE);
            }
            return self.field(line, request_line).map(|()| false);
        }
        if line.is_empty() {
            self.empty_lines += 1;
            return if self.empty_lines > EMPTY_LINES_MAX { Err(NO_REQUEST_LINE) } else { Ok(false) };
        }
        if line.len() > limits.line_bytes_max {
            return Err(problem::TARGET_TOO_LONG);
        }
        self.request_line = Some(request_line(line)?);
        Ok(false)
    }

    fn check_lengths(&self) -> Result<(), Problem> {
        if self.chunked && self.content_length.is_some() {
            return Err(problem::bad_framing(
                "Content-Length and Transfer-Encoding exclude each other. Send only one of them.",
            ));
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8], request_line: RequestLine) -> Result<(), Problem> {
        let (name, value) = split_field(line)?;
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value, request_line),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.websocket |= value.eq_ignore_ascii_case(b"websocket");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Problem> {
        check_length(value)?;
        let length = value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0'));
        match self.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(problem::LENGTH_TWICE),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8], request_line: RequestLine) -> Result<(), Problem> {
        if request_line.http_10 {
            return Err(problem::bad_framing("HTTP/1.0 has no Transfer-Encoding. Send Content-Length."));
        }
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(problem::bad_framing("Transfer-Encoding is not exactly chunked. Send chunked, once."));
        }
        self.chunked = true;
        Ok(())
    }
}

/// A length that everybody reads alike. Some read `010` as eight.
pub(crate) fn check_length(length: &[u8]) -> Result<(), Problem> {
    let is_number = (1..=LENGTH_DIGITS_MAX).contains(&length.len()) && length.iter().all(u8::is_ascii_digit);
    if !is_number {
        return Err(problem::bad_framing("Content-Length is not a plain number. Send its decimal digits only."));
    }
    if length.len() > 1 && length[0] == b'0' { Err(problem::LENGTH_WITH_ZERO) } else { Ok(()) }
}

const NO_REQUEST_LINE: Problem =
    problem::bad_framing("The first line is not METHOD TARGET HTTP/1.1. Send a well-formed request.");

fn request_line(line: &[u8]) -> Result<RequestLine, Problem> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(NO_REQUEST_LINE);
    };
    let clean = !method.is_empty() && method.iter().all(|byte| is_token(*byte)) && !target.is_empty();
    if !clean || !target.iter().fold(true, |good, byte| good & byte.is_ascii_graphic()) {
        return Err(NO_REQUEST_LINE);
    }
    let connect = method == b"CONNECT";
    if !connect && !is_target(target, method == b"OPTIONS") {
        return Err(BAD_TARGET);
    }
    let http_10 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(NO_REQUEST_LINE),
    };
    Ok(RequestLine { get: method == b"GET", connect, http_10 })
}

pub(crate) const BAD_TARGET: Problem = problem::bad_framing(
    "The target is neither a path nor http://HOST/PATH, or not well-formed. Escape what it holds.",
);

/// A target longer than this is left to the parser, which has a limit of its own.
const PLAIN_TARGET_BYTES_MAX: usize = 8 * 1024;

/// Whether a target has a form that a server may be asked by, and exactly one meaning: whoever comes behind us would see
/// the rest of it without a fragment, or an authority as no path at all.
pub(crate) fn is_target(target: &[u8], is_options: bool) -> bool {
    let is_path = target.starts_with(b"/");
    if is_path && target.len() <= PLAIN_TARGET_BYTES_MAX && target.iter().all(|byte| is_plain(*byte)) {
        return true;
    }
    let begins_with = |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    let is_formed = is_path || begins_with(b"http://") || begins_with(b"https://") || (is_options && target == b"*");
    is_formed && !target.contains(&b'#') && http::Uri::try_from(target).is_ok()
}

/// The letters of most paths and queries (RFC 3986, 3.3 and 3.4).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        )
        || matches!(byte, b':' | b'@' | b'/' | b'?' | b'%')
}

/// The value of a field in a head that must not pass, as far as the head is there: for telling which request is refused, and
/// for nothing else. Only well-formed lines count, and none does where the field is given twice.
pub(crate) fn value_in_refused<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    let lines = head.split_inclusive(|byte| *byte == b'\n').map_while(|line| line.strip_suffix(b"\n"));
    let unfit: &[u8] = b"not a field";
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(if line.is_empty() { line } else { unfit }));
    // Empty lines may come before the request line, which is no field, whatever it looks like.
    let fields = lines.skip_while(|line| line.is_empty()).skip(1).take_while(|line| !line.is_empty());
    let mut values = fields
        .filter_map(|line| split_field(line).ok())
        .filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value);
    values.next().filter(|_| values.next().is_none())
}

/// A field's name and its value without the space around it.
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let colon = line.iter().position(|byte| !is_token(*byte)).filter(|at| *at > 0 && line[*at] == b':');
    let Some(colon) = colon else {
        return Err(problem::bad_framing(
            "A header line is not NAME: VALUE. Send one field per line, without folding.",
        ));
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // Without an early end, so that many bytes are looked at at once.
    if value.iter().fold(false, |bad, byte| bad | (byte.is_ascii_control() & (*byte != b'\t'))) {
        return Err(problem::bad_framing("A header field holds a control character. Remove it."));
    }
    // Of white space, only spaces and tabs are left by now.
    Ok((name, value.trim_ascii()))
}

fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// The letters of names and methods (RFC 9110, 5.6.2).
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};
