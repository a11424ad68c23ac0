//! Power loss: what a process wrote is recorded, and cut off anywhere.
//!
//! A process runs under strace, which records every write, truncation, sync and change of a name in one directory, and what
//! the process says on its standard output, in one order. [`Recording::image`] then makes the directory as a disk may hold it
//! if the power goes at a given event: what was written before a successful sync began is there once that has returned;
//! of the rest anything may be there, or nothing. A failed sync is what Linux makes of it: pages that were not written count as
//! clean, stay readable, and no later sync writes them unless they are written to once more.
//!
//! Memory maps are not recorded. SQLite maps only the index of its log (`-shm`), which it builds anew after a crash.
//!
//! Left to its users: what runs, and how an image is judged.

mod disk;
mod trace;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use self::disk::Disk;
use self::trace::Event;

/// Files that are not recorded: SQLite maps them, and makes them anew.
const MAPPED: &str = "-shm";

/// Which call fails with EIO, counted in each thread by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// That sync, of whichever file.
    Sync(u32),
    /// That truncation. SQLite cuts its file to size when it has copied its log into it, just before it syncs it: whatever
    /// was written to the file counts as lost, as after a failed sync.
    Truncate(u32),
}

/// A source of chance that can be named: the same seed draws the same.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below that, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// The command under strace, which writes its record to `trace`. `trace` must not be in the directory that is recorded.
pub fn recorded(command: &Command, trace: &Path, fault: Fault) -> Command {
    let mut recorded = Command::new("strace");
    recorded.args(["-f", "-qq", "-y", "-xx", "-s", "2097152", "-e", trace::CALLS]);
    match fault {
        Fault::None => {}
        Fault::Sync(nth) => drop(recorded.arg("-e").arg(format!("inject=fdatasync:error=EIO:when={nth}"))),
        Fault::Truncate(nth) => drop(recorded.arg("-e").arg(format!("inject=ftruncate:error=EIO:when={nth}"))),
    }
    recorded.arg("-o").arg(trace).arg(command.get_program()).args(command.get_args());
    recorded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    recorded
}

/// What one or several processes did to a directory, one after the other.
#[derive(Debug, Default)]
pub struct Recording {
    events: Vec<Event>,
    /// Where each process began.
    runs: Vec<usize>,
    /// What was on the disk before.
    before: BTreeMap<String, Vec<u8>>,
}

/// A directory as a disk may hold it after the power was lost.
#[derive(Debug)]
pub struct Image {
    /// The files by name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What the processes had said before.
    pub said: Vec<String>,
}

impl Recording {
    /// What is in the directory now is on the disk.
    pub fn beginning_with(dir: &Path) -> Recording {
        let files = std::fs::read_dir(dir).expect("the directory is there").map(|entry| entry.expect("a file").path());
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("its name is UTF-8").to_owned();
        let kept = files.filter(|path| !name(path).ends_with(MAPPED));
        let before = kept.map(|path| (name(&path), std::fs::read(&path).expect("it can be read"))).collect();
        Recording { before, ..Recording::default() }
    }

    /// Adds what a process did in that directory.
    pub fn add(&mut self, trace: &Path, dir: &Path) {
        self.runs.push(self.events.len());
        let text = std::fs::read_to_string(trace).expect("strace has written its record");
        self.events.extend(trace::events(&text, dir));
    }

    /// How many events there are: the power can go after each.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events of the process that was added last.
    pub fn last_run(&self) -> std::ops::Range<usize> {
        self.runs.last().copied().unwrap_or(0)..self.len()
    }

    /// Cuts where it matters most: right after something was said, a sync has ended or a name has changed.
    pub fn cuts(&self, dice: &mut Dice, within: std::ops::Range<usize>, count: usize) -> Vec<usize> {
        let matters = |at: &usize| self.events.get(*at).is_some_and(|event| !matches!(event, Event::Write { .. }));
        let telling: Vec<usize> = within.clone().filter(matters).collect();
        let draw = |_| match dice.below(3) {
            0 => within.start + dice.below(within.len()),
            _ => telling.get(dice.below(telling.len())).map_or(within.start, |at| at + 1),
        };
        (0..count).map(draw).collect()
    }

    /// The directory if the power goes after the first `cut` events. With `lie`, every `lie`-th sync only pretends.
    pub fn image(&self, cut: usize, dice: &mut Dice, lie: Option<usize>) -> Image {
        let mut disk = Disk::new(&self.before, lie);
        let mut said = Vec::new();
        for event in self.events.iter().take(cut) {
            match event {
                Event::Said(line) => said.push(line.clone()),
                event => disk.apply(event, dice),
            }
        }
        Image { files: disk.after_power_loss(dice), said }
    }

    /// The bytes that were written to a file between the beginning of the last process and the first thing that it said,
    /// and synced before that: as ranges, in order.
    pub fn synced_before_said(&self, name: &str) -> Vec<std::ops::Range<u64>> {
        let (mut written, mut synced, mut marks) = (Vec::new(), 0, BTreeMap::new());
        for event in self.events.iter().skip(self.last_run().start) {
            match event {
                Event::Write { name: file, at, data } if file == name => written.push(*at..at + data.len() as u64),
                Event::SyncBegun { id, name: file } if file == name => drop(marks.insert(*id, written.len())),
                Event::SyncEnded { id, ok: true } => synced = marks.get(id).copied().unwrap_or(synced),
                Event::Said(_) => break,
                _ => {}
            }
        }
        written.truncate(synced);
        written
    }
}

impl Image {
    /// Writes the files into an empty directory. What SQLite would map there is missing, or nonsense.
    pub fn write_to(&self, dir: &Path, dice: &mut Dice) {
        for (name, bytes) in &self.files {
            std::fs::write(dir.join(name), bytes).expect("the image can be written");
        }
        let mapped = match dice.below(3) {
            0 => return,
            1 => vec![0; 32 * 1024],
            _ => (0..32 * 1024).map(|_| dice.below(256) as u8).collect(),
        };
        let databases = self.files.keys().filter(|name| self.files.contains_key(&format!("{name}-wal")));
        for name in databases {
            std::fs::write(dir.join(format!("{name}{MAPPED}")), &mapped).expect("the image can be written");
        }
    }
}

#[cfg(test)]
mod tests;
