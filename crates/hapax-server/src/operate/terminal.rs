//! What the terminal can: its width, colours, whether a person is there to ask. Everything printed goes through here.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use super::EXIT_DECLINED;
use super::args::Shape;
use super::failure::Failure;
use crate::logs::escaped;

/// Where the system does not say.
const WIDTH_DEFAULT: usize = 80;

/// Narrower ones scroll.
const WIDTH_MIN: usize = 40;

/// How the standard output is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terminal {
    /// Columns; `None`: it is not a terminal, and nothing is cut.
    pub(super) width: Option<usize>,
    colour: bool,
}

impl Terminal {
    /// The standard output.
    pub(super) fn of_output(environment: &[(String, String)]) -> Self {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Self::default();
        }
        let said = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
        let width = if said == 0 { WIDTH_DEFAULT } else { said.max(WIDTH_MIN) };
        let value = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let plain = value("NO_COLOR").is_some_and(|value| !value.is_empty()) || value("TERM") == Some("dumb");
        Self { width: Some(width), colour: !plain }
    }

    /// Text that calls for attention.
    pub(super) fn alarming(self, text: &str) -> String {
        self.coloured("31", text)
    }

    /// Text that says that all is well.
    pub(super) fn calming(self, text: &str) -> String {
        self.coloured("32", text)
    }

    fn coloured(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Prints, and says whether somebody still reads. A reader that has gone away, as `head` does, is no failure.
pub(super) fn print(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        done => Ok(done.is_ok()),
    }
}

/// Prints a document. Control characters inside texts stay escaped, whatever they are.
pub(super) fn print_json(document: &impl Serialize) -> Result<bool, Failure> {
    let text = serde_json::to_string_pretty(document)?;
    let safe: Vec<_> = text.split('\n').map(escaped).collect();
    print(&format!("{}\n", safe.join("\n")))
}

/// A document on one line.
pub(super) fn print_json_line(document: &impl Serialize) -> Result<bool, Failure> {
    let text = serde_json::to_string(document)?;
    print(&format!("{}\n", escaped(&text)))
}

/// Says that the person who was asked said no: in words, or by how things stand.
pub(super) fn print_declined(shape: Shape, standing: &impl Serialize) -> Result<u8, Failure> {
    match shape {
        Shape::Text => print("nothing was changed\n")?,
        Shape::Json => print_json(standing)?,
    };
    Ok(EXIT_DECLINED)
}

/// A remark for people, beside the output.
pub(super) fn remark(text: &str) {
    eprintln!("note: {}", escaped(text));
}

/// Whether somebody is there to ask.
pub(super) fn someone_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks; anything but yes is no.
pub(super) fn agrees(question: &str) -> Result<bool, Failure> {
    eprint!("{} [y/N] ", escaped(question));
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
