//! A disk with a page cache in front of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;

use super::Dice;
use super::trace::Event;

/// What the host reads, writes and marks at a time.
const PAGE: usize = 4096;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// Files, each with what is in the cache, what is on the disk, and what is on the way between them.
pub(super) struct Disk {
    files: Vec<File>,
    /// Names as processes see them, and as they are on the disk.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Syncs under way.
    syncing: HashMap<u64, Syncing>,
    lie: Option<usize>,
    syncs: usize,
    clock: u64,
}

#[derive(Default)]
struct File {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// In the order of time.
    pending: Vec<Pending>,
}

/// Something that no sync has covered yet.
struct Pending {
    since: u64,
    change: Change,
}

enum Change {
    /// A page as it is in the cache after a write.
    Page {
        number: usize,
        bytes: Vec<u8>,
    },
    Size(usize),
}

struct Syncing {
    /// None: the directory.
    file: Option<usize>,
    /// What was there before this is covered.
    before: u64,
}

impl Disk {
    /// With those files on it.
    pub(super) fn new(before: &BTreeMap<String, Vec<u8>>, lie: Option<usize>) -> Disk {
        let file = |bytes: &Vec<u8>| File { cache: bytes.clone(), disk: bytes.clone(), pending: Vec::new() };
        let files = before.values().map(file).collect();
        let names: BTreeMap<_, _> = before.keys().cloned().zip(0..).collect();
        let durable_names = names.clone();
        Disk { files, names, durable_names, syncing: HashMap::new(), lie, syncs: 0, clock: 0 }
    }

    pub(super) fn apply(&mut self, event: &Event, dice: &mut Dice) {
        self.clock += 1;
        match event {
            Event::Opened { name } => drop(self.file(name)),
            Event::Write { name, at, data } => {
                let (clock, file) = (self.clock, self.file(name));
                self.files[file].write(*at as usize, data, clock);
            }
            Event::Truncated { name, len, ok: true } => {
                let (clock, file) = (self.clock, self.file(name));
                self.files[file].resize(*len as usize, clock);
            }
            Event::Truncated { name, ok: false, .. } => {
                let (clock, file) = (self.clock, self.file(name));
                self.files[file].lose(clock, dice);
            }
            Event::SyncBegun { id, name } => {
                let file = (!name.is_empty()).then(|| self.file(name));
                self.syncing.insert(*id, Syncing { file, before: self.clock });
            }
            Event::SyncEnded { id, ok } => self.synced(*id, *ok, dice),
            Event::Unlinked { name } => drop(self.names.remove(name)),
            Event::Renamed { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            Event::Said(_) => {}
        }
    }

    fn file(&mut self, name: &str) -> usize {
        let files = &mut self.files;
        *self.names.entry(name.to_owned()).or_insert_with(|| {
            files.push(File::default());
            files.len() - 1
        })
    }

    fn synced(&mut self, id: u64, ok: bool, dice: &mut Dice) {
        let Some(Syncing { file, before }) = self.syncing.remove(&id) else { return };
        self.syncs += 1;
        if ok && self.lie.is_some_and(|lie| self.syncs.is_multiple_of(lie)) {
            return;
        }
        match file {
            None if ok => self.durable_names = self.names.clone(),
            None => {}
            Some(file) if ok => self.files[file].persist(before),
            Some(file) => self.files[file].lose(before, dice),
        }
    }

    /// The files as the disk may hold them if the power goes now.
    pub(super) fn after_power_loss(mut self, dice: &mut Dice) -> BTreeMap<String, Vec<u8>> {
        let names: BTreeSet<String> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        let mut left = BTreeMap::new();
        for name in names {
            let [now, durable] = [&self.names, &self.durable_names].map(|names| names.get(&name).copied());
            let file = if dice.coin() { now } else { durable };
            if let Some(file) = file {
                left.insert(name, self.files[file].after_power_loss(dice));
            }
        }
        left
    }
}

impl File {
    fn write(&mut self, at: usize, data: &[u8], clock: u64) {
        let end = at + data.len();
        if data.is_empty() {
            return;
        }
        if self.cache.len() < end {
            self.cache.resize(end, 0);
        }
        self.cache[at..end].copy_from_slice(data);
        for number in at / PAGE..=(end - 1) / PAGE {
            let bytes = self.cache[number * PAGE..self.cache.len().min((number + 1) * PAGE)].to_vec();
            self.pending.push(Pending { since: clock, change: Change::Page { number, bytes } });
        }
    }

    fn resize(&mut self, len: usize, clock: u64) {
        if len != self.cache.len() {
            self.cache.resize(len, 0);
            self.pending.push(Pending { since: clock, change: Change::Size(len) });
        }
    }

    /// A sync has covered what was written before that moment.
    fn persist(&mut self, before: u64) {
        let (covered, rest): (Vec<_>, Vec<_>) = take(&mut self.pending).into_iter().partition(|one| one.since < before);
        covered.iter().for_each(|one| apply(&mut self.disk, &one.change));
        self.pending = rest;
    }

    /// A sync has failed: its pages count as clean, and some of them may have been written.
    fn lose(&mut self, before: u64, dice: &mut Dice) {
        let (covered, rest): (Vec<_>, Vec<_>) = take(&mut self.pending).into_iter().partition(|one| one.since < before);
        self.pending = rest;
        let some = dice.below(3) == 0;
        for one in &covered {
            // That a file became shorter or longer is not in its pages, but in a journal.
            if matches!(one.change, Change::Size(_)) || some && dice.coin() {
                apply(&mut self.disk, &one.change);
            }
        }
    }

    fn after_power_loss(&mut self, dice: &mut Dice) -> Vec<u8> {
        let pending = take(&mut self.pending);
        let mut left = self.disk.clone();
        let (way, at) = (dice.below(7), dice.below(pending.len() + 1));
        for (number, Pending { change, .. }) in pending.iter().enumerate() {
            match way {
                0 => {}
                1 => apply(&mut left, change),
                2 if number < at => apply(&mut left, change),
                3 if number >= at => apply(&mut left, change),
                4 if dice.coin() => apply(&mut left, change),
                5 => apply_sectors(&mut left, change, dice),
                6 if dice.coin() => apply_size(&mut left, change),
                _ => {}
            }
        }
        left
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Size(len) => bytes.resize(*len, 0),
        Change::Page { number, bytes: page } => {
            let at = number * PAGE;
            if bytes.len() < at + page.len() {
                bytes.resize(at + page.len(), 0);
            }
            bytes[at..at + page.len()].copy_from_slice(page);
        }
    }
}

/// Some sectors of a page.
fn apply_sectors(bytes: &mut Vec<u8>, change: &Change, dice: &mut Dice) {
    let Change::Page { number, bytes: page } = change else { return };
    for (sector, part) in page.chunks(SECTOR).enumerate() {
        let at = number * PAGE + sector * SECTOR;
        if dice.coin() {
            if bytes.len() < at + part.len() {
                bytes.resize(at + part.len(), 0);
            }
            bytes[at..at + part.len()].copy_from_slice(part);
        }
    }
}

/// The file is as long as it was to become, and what was to be there is zeros.
fn apply_size(bytes: &mut Vec<u8>, change: &Change) {
    let len = match change {
        Change::Size(len) => *len,
        Change::Page { number, bytes: page } => bytes.len().max(number * PAGE + page.len()),
    };
    bytes.resize(len, 0);
}
