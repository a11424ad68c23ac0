//! How a request is treated, who says so, and how a script spells it.

use std::time::Duration;

use super::book::Entry;

/// What is done with a request after it was written to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// A JSON object that tells the request back, with an id of its own for every execution: two executions never give
    /// equal bytes. 201 for a POST, otherwise 200.
    #[default]
    Echo,
    /// Exactly this.
    Answer(Answer),
    /// The echo, this much later.
    Delay(Duration),
    /// The echo byte by byte, each this much after the one before.
    Drip(Duration),
    /// Close the connection without an answer: it happened, and nobody is told.
    Drop,
    /// Never answer, and keep the connection open.
    Hang,
    /// Reset the connection before a byte of the answer.
    ResetBeforeHead,
    /// Reset the connection inside the body.
    ResetInBody,
    /// Close the connection inside a body whose length was announced.
    ShortLength,
    /// Close the connection before the last chunk.
    MissingLastChunk,
    /// So many interim answers (103) before the echo.
    InterimFlood(usize),
    /// Two `Content-Length` fields that differ.
    TwoLengths,
    /// The echo with a field of so many bytes.
    LargeHeader(usize),
    /// The echo with so many further fields.
    ManyHeaders(usize),
    /// A body of so many bytes.
    LargeBody(usize),
    /// A stream of so many events, each this long after the one before.
    Stream(usize, Duration),
    /// The echo with two `Set-Cookie` fields, `Age` and rate-limit fields.
    Cookies,
    /// This status with `Retry-After`, in seconds: 429 or 503.
    RetryLater(u16, u32),
    /// The echo in chunks with a trailer.
    Trailers,
    /// The echo with its end shown by the end of the connection.
    UntilClose,
    /// These bytes, then close the connection.
    Raw(Vec<u8>),
    /// The first execution of the tenant's key is treated so; later ones are echoed.
    First(Box<Behaviour>),
    /// The work takes this long, whoever still waits for it. It is in the ledger when it is done, and then treated so.
    Late(Duration, Box<Behaviour>),
    /// No execution but a question: did the key, or the record's id, that the query names (`?…=KEY`) happen? Answered as its execution would
    /// have been by this behaviour, or with 404.
    LookUp(Box<Behaviour>),
}

/// An answer in every detail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Fields, in this order. `Content-Length` is added.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long to wait before it.
    pub delay: Duration,
}

impl Behaviour {
    /// An answer with this status and body.
    pub fn answer(status: u16, body: &str) -> Behaviour {
        Behaviour::Answer(Answer { status, body: body.into(), ..Answer::default() })
    }

    /// What `X-Test-Behaviour` asks for: `drop`, `answer 500`, `delay 100` (ms), `interim 1000`, `first drop`, …
    ///
    /// # Panics
    ///
    /// When it is misspelt: a test that asks for a fault and does not get it shows nothing.
    pub fn parse(text: &str) -> Behaviour {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        if name == "first" {
            return Behaviour::First(Box::new(Behaviour::parse(text.trim_start()["first".len()..].trim())));
        }
        let numbers: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
        let numbers = numbers.unwrap_or_else(|| panic!("{text:?}: a behaviour takes numbers"));
        let number = |at: usize, otherwise: usize| numbers.get(at).copied().unwrap_or(otherwise);
        let ms = |at: usize, otherwise: usize| Duration::from_millis(number(at, otherwise) as u64);
        match name {
            "echo" => Behaviour::Echo,
            "answer" => Behaviour::answer(number(0, 200) as u16, &format!("{{\"status\":{}}}", number(0, 200))),
            "delay" => Behaviour::Delay(ms(0, 100)),
            "drip" => Behaviour::Drip(ms(0, 1000)),
            "drop" => Behaviour::Drop,
            "hang" => Behaviour::Hang,
            "reset-before-head" => Behaviour::ResetBeforeHead,
            "reset-in-body" => Behaviour::ResetInBody,
            "short-length" => Behaviour::ShortLength,
            "missing-last-chunk" => Behaviour::MissingLastChunk,
            "interim-flood" => Behaviour::InterimFlood(number(0, 1000)),
            "two-lengths" => Behaviour::TwoLengths,
            "large-header" => Behaviour::LargeHeader(number(0, 64 * 1024)),
            "many-headers" => Behaviour::ManyHeaders(number(0, 1000)),
            "large-body" => Behaviour::LargeBody(number(0, 16 * 1024 * 1024)),
            "stream" => Behaviour::Stream(number(0, 3), ms(1, 10)),
            "cookies" => Behaviour::Cookies,
            "retry-later" => Behaviour::RetryLater(number(0, 503) as u16, number(1, 1) as u32),
            "trailers" => Behaviour::Trailers,
            "until-close" => Behaviour::UntilClose,
            _ => panic!("there is no behaviour {text:?}"),
        }
    }

    /// The name by which the ledger notes it: the first word of how it is spelled for [`parse`](Self::parse), and for an
    /// answer its status.
    pub fn name(&self) -> String {
        let name = match self {
            Behaviour::Echo => "echo",
            Behaviour::Answer(answer) => return format!("answer {}", answer.status),
            Behaviour::Delay(_) => "delay",
            Behaviour::Drip(_) => "drip",
            Behaviour::Drop => "drop",
            Behaviour::Hang => "hang",
            Behaviour::ResetBeforeHead => "reset-before-head",
            Behaviour::ResetInBody => "reset-in-body",
            Behaviour::ShortLength => "short-length",
            Behaviour::MissingLastChunk => "missing-last-chunk",
            Behaviour::InterimFlood(_) => "interim-flood",
            Behaviour::TwoLengths => "two-lengths",
            Behaviour::LargeHeader(_) => "large-header",
            Behaviour::ManyHeaders(_) => "many-headers",
            Behaviour::LargeBody(_) => "large-body",
            Behaviour::Stream(..) => "stream",
            Behaviour::Cookies => "cookies",
            Behaviour::RetryLater(status, _) => return format!("retry-later {status}"),
            Behaviour::Trailers => "trailers",
            Behaviour::UntilClose => "until-close",
            Behaviour::Raw(_) => "raw",
            Behaviour::First(then) => return then.name(),
            Behaviour::Late(..) => "late",
            Behaviour::LookUp(_) => "look-up",
        };
        name.to_owned()
    }

    /// What it comes to, where it depends on whether this is the first execution of the key.
    pub(super) fn resolved(self, is_first: impl FnOnce() -> bool) -> Behaviour {
        match self {
            Behaviour::First(then) if is_first() => *then,
            Behaviour::First(_) => Behaviour::Echo,
            behaviour => behaviour,
        }
    }
}

/// Which requests are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// All of them.
    Any,
    /// Those with this path.
    Path(String),
    /// Those with this key.
    Key(String),
}

impl From<&str> for Selector {
    /// `"*"` is all, `"/path"` a path, and anything else a key.
    fn from(text: &str) -> Selector {
        match text {
            "*" => Selector::Any,
            path if path.starts_with('/') => Selector::Path(path.to_owned()),
            key => Selector::Key(key.to_owned()),
        }
    }
}

impl From<&String> for Selector {
    fn from(text: &String) -> Selector {
        Selector::from(text.as_str())
    }
}

impl Selector {
    pub(super) fn matches(&self, entry: &Entry) -> bool {
        match self {
            Selector::Any => true,
            Selector::Path(path) => *path == entry.path,
            Selector::Key(key) => Some(key) == entry.key.as_ref(),
        }
    }

    /// A key says more than a path, and a path more than nothing.
    fn weight(&self) -> u8 {
        match self {
            Selector::Any => 0,
            Selector::Path(_) => 1,
            Selector::Key(_) => 2,
        }
    }
}

/// What the test wants, in the order in which it said so.
#[derive(Debug, Default)]
pub(super) struct Rules {
    once: Vec<(Selector, Behaviour)>,
    always: Vec<(Selector, Behaviour)>,
}

impl Rules {
    pub(super) fn once(&mut self, whom: Selector, behaviour: Behaviour) {
        self.once.push((whom, behaviour));
    }

    /// A later rule for the same requests replaces an earlier one.
    pub(super) fn always(&mut self, whom: Selector, behaviour: Behaviour) {
        self.always.retain(|(other, _)| *other != whom);
        self.always.push((whom, behaviour));
    }

    /// The behaviour for this request; uses up what was meant for one request.
    pub(super) fn take(&mut self, entry: &Entry) -> Behaviour {
        if let Some(at) = best(&self.once, entry) {
            return self.once.remove(at).1;
        }
        best(&self.always, entry).map(|at| self.always[at].1.clone()).unwrap_or_default()
    }
}

/// The first of the weightiest rules that match.
fn best(rules: &[(Selector, Behaviour)], entry: &Entry) -> Option<usize> {
    let matching = rules.iter().enumerate().filter(|(_, (whom, _))| whom.matches(entry));
    matching.rev().max_by_key(|(_, (whom, _))| whom.weight()).map(|(at, _)| at)
}
