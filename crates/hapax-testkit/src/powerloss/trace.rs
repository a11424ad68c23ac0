//! strace's record as events.
//!
//! A call that another thread interrupts is on two lines, `<unfinished ...>` and `resumed>`. A write counts from its end, a
//! sync from its beginning to its end, and what is said from its beginning: each is the reading that promises most.

use std::collections::HashMap;
use std::path::Path;

use super::MAPPED;

/// What is recorded.
pub(super) const CALLS: &str = "trace=openat,pwrite64,write,fdatasync,fsync,ftruncate,unlink,unlinkat,rename,renameat,\
                                renameat2,link,linkat,pwritev,writev,fallocate,copy_file_range,sendfile";

/// How a role's lines begin; see [`child::say`](crate::child::say).
const SAID: &str = "<said> ";

/// Something that happened. Files are named within the directory; the directory itself is `""`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The name is there from now on.
    Opened {
        name: String,
    },
    Write {
        name: String,
        at: u64,
        data: Vec<u8>,
    },
    Truncated {
        name: String,
        len: u64,
        ok: bool,
    },
    SyncBegun {
        id: u64,
        name: String,
    },
    SyncEnded {
        id: u64,
        ok: bool,
    },
    Unlinked {
        name: String,
    },
    Renamed {
        from: String,
        to: String,
    },
    Said(String),
}

/// The events of a directory.
pub(super) fn events(text: &str, dir: &Path) -> Vec<Event> {
    let dir = dir.canonicalize().expect("the directory is there").to_str().expect("its name is UTF-8").to_owned();
    let mut reader = Reader { dir, unfinished: HashMap::new(), syncs: 0, events: Vec::new() };
    text.lines().for_each(|line| reader.read(line));
    reader.events
}

struct Reader<'t> {
    dir: String,
    /// The beginnings of calls, by thread, with the sync that they are.
    unfinished: HashMap<&'t str, (&'t str, u64)>,
    syncs: u64,
    events: Vec<Event>,
}

const SYNCS: [&str; 2] = ["fdatasync(", "fsync("];

impl<'t> Reader<'t> {
    fn read(&mut self, line: &'t str) {
        let Some((thread, call)) = line.split_once(' ').map(|(thread, call)| (thread, call.trim_start())) else {
            return;
        };
        if let Some(begun) = call.strip_suffix("<unfinished ...>") {
            let id = self.begin(begun);
            self.unfinished.insert(thread, (begun, id));
        } else if call.starts_with("<... ") {
            let Some((begun, id)) = self.unfinished.remove(thread) else { return };
            let end = call.split_once("resumed>").map_or("", |(_, end)| end);
            self.end(&format!("{begun}{end}"), id);
        } else {
            let id = self.begin(call);
            self.end(call, id);
        }
    }

    /// What counts from the beginning of a call.
    fn begin(&mut self, call: &str) -> u64 {
        self.syncs += 1;
        if SYNCS.iter().any(|sync| call.starts_with(sync))
            && let Some(name) = self.descriptor(call)
        {
            self.events.push(Event::SyncBegun { id: self.syncs, name });
        }
        if call.starts_with("write(1<") {
            let said = texts(call).into_iter().next().unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let lines = said.lines().filter_map(|line| line.strip_prefix(SAID));
            self.events.extend(lines.map(|line| Event::Said(line.to_owned())));
        }
        self.syncs
    }

    fn end(&mut self, call: &str, id: u64) {
        let Some((before, result)) = call.rsplit_once(" = ") else { return };
        let ok = !result.starts_with('-');
        let name = before.split('(').next().unwrap_or_default();
        if SYNCS.iter().any(|sync| call.starts_with(sync)) {
            if self.descriptor(call).is_some() {
                self.events.push(Event::SyncEnded { id, ok });
            }
            return;
        }
        let event = match name {
            "ftruncate" => self.descriptor(call).map(|name| Event::Truncated { name, len: last_number(before), ok }),
            _ if !ok => None,
            "openat" if call.contains("O_CREAT") => self.path(call, 0).map(|name| Event::Opened { name }),
            "pwrite64" => self.written(call, before, result),
            "unlink" | "unlinkat" => self.path(call, 0).map(|name| Event::Unlinked { name }),
            "rename" | "renameat" | "renameat2" => {
                self.path(call, 0).zip(self.path(call, 1)).map(|(from, to)| Event::Renamed { from, to })
            }
            "openat" | "write" => self.refuse_unknown_write(call),
            _ => {
                let touched = self.descriptor(call).or_else(|| self.path(call, 1));
                assert!(touched.is_none(), "the recorder does not know this call: {}", &call[..call.len().min(200)]);
                None
            }
        };
        self.events.extend(event);
    }

    /// A plain `write` into the directory has no offset that could be told.
    fn refuse_unknown_write(&self, call: &str) -> Option<Event> {
        let touched = call.starts_with("write(").then(|| self.descriptor(call)).flatten();
        assert!(touched.is_none(), "a write without an offset cannot be recorded: {touched:?}");
        None
    }

    fn written(&self, call: &str, before: &str, result: &str) -> Option<Event> {
        let name = self.descriptor(call)?;
        let mut data = texts(call).into_iter().next()?;
        data.truncate(result.trim().parse().ok()?);
        Some(Event::Write { name, at: last_number(before), data })
    }

    /// The file whose descriptor is the first argument, if it is in the directory.
    fn descriptor(&self, call: &str) -> Option<String> {
        let (_, path) = call.split_once('<')?;
        let path = unescaped(path.split_once('>')?.0);
        self.within(&String::from_utf8_lossy(&path))
    }

    /// The file that the text of that number names.
    fn path(&self, call: &str, number: usize) -> Option<String> {
        let path = texts(call).into_iter().nth(number)?;
        self.within(&String::from_utf8_lossy(&path))
    }

    fn within(&self, path: &str) -> Option<String> {
        let name = path.strip_prefix(&self.dir)?.trim_start_matches('/');
        let is_recorded = !name.contains('/') && !name.ends_with(MAPPED) && !name.ends_with(" (deleted)");
        is_recorded.then(|| name.to_owned())
    }
}

/// The last argument of a call, before its closing bracket.
fn last_number(before: &str) -> u64 {
    let call = before.trim_end_matches([' ', ')']);
    let digits = call.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    digits.unwrap_or_else(|| panic!("no number at the end of {}", &call[call.len().saturating_sub(80)..]))
}

/// The texts among the arguments. strace writes every byte of them as `\xNN`, so no quotation mark is in the middle of one.
fn texts(call: &str) -> Vec<Vec<u8>> {
    call.split('"').skip(1).step_by(2).map(unescaped).collect()
}

fn unescaped(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    let byte = |code: &[u8]| match code {
        [b'\\', b'x', high, low] => digit(*high) * 16 + digit(*low),
        other => *other.first().unwrap_or(&0),
    };
    if text.starts_with("\\x") { text.as_bytes().chunks(4).map(byte).collect() } else { text.as_bytes().to_vec() }
}
