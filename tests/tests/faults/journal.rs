//! Computes the state of a disk after a power failure from the journal that `disk.c` wrote.
//!
//! The disk keeps flushed data: the bytes of a flushed file, and the names in a flushed directory. Any part of the
//! unflushed data may be present, by sectors and in any order. An unflushed name refers to the old or the new file.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

/// The files of a disk, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Number of bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Size of a record of `disk.c`.
const RECORD: usize = 24;

/// Suffix of a database's write-ahead log.
const WAL: &str = "-wal";

/// The times at which the database flushes its write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// As in the journal.
    Full,
    /// Only before a checkpoint, as with `synchronous = NORMAL`, independent of the journal.
    Normal,
}

/// Returns the files of a disk after a power failure at the end of the journal. `before` are the files before the
/// journal. `survives` decides about each part that was not flushed.
pub fn after_power_cut(
    before: &Files,
    journal: &[u8],
    synchronous: Synchronous,
    mut survives: impl FnMut() -> bool,
) -> Files {
    let mut disk = Disk::new(before);
    for record in records(journal) {
        disk.apply(record, synchronous, &mut survives);
    }
    disk.after_power_cut(&mut survives)
}

/// An operation on a file, or on the directory if the name is empty.
struct Record<'j> {
    name: &'j str,
    deed: Deed<'j>,
}

enum Deed<'j> {
    Create,
    Resize(usize),
    Write { offset: usize, bytes: &'j [u8] },
    Flush,
    FailedFlush,
    Rename(&'j str),
    Remove,
}

/// Returns the records of a journal. An incomplete last record is ignored: the service was killed while it wrote the
/// record, so it did not acknowledge the operation to any caller.
fn records(mut journal: &[u8]) -> impl Iterator<Item = Record<'_>> {
    iter::from_fn(move || {
        let (record, rest) = split(journal)?;
        journal = rest;
        Some(record)
    })
}

/// Returns the first record and the rest of the journal; `None` if the record is incomplete.
fn split(journal: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (head, rest) = journal.split_at_checked(RECORD)?;
    let short = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
    let long = |at: usize| usize::try_from(u64::from_ne_bytes(head[at..at + 8].try_into().unwrap())).unwrap();
    let (offset, length) = (long(8), long(16));
    let (name, rest) = rest.split_at_checked(usize::try_from(short(4)).unwrap())?;
    let name = str::from_utf8(name).unwrap();
    let (deed, rest) = match short(0) {
        1 => (Deed::Create, rest),
        2 => (Deed::Resize(length), rest),
        3 => {
            let (bytes, rest) = rest.split_at_checked(length)?;
            (Deed::Write { offset, bytes }, rest)
        }
        4 => (Deed::Flush, rest),
        5 => (Deed::FailedFlush, rest),
        6 => {
            let (new_name, rest) = rest.split_at_checked(length)?;
            (Deed::Rename(str::from_utf8(new_name).unwrap()), rest)
        }
        7 => (Deed::Remove, rest),
        other => panic!("unknown operation {other}"),
    };
    Some((Record { name, deed }, rest))
}

/// A disk: the files as the process sees them, and the flushed names.
struct Disk<'j> {
    files: Vec<File<'j>>,
    /// The file of each name.
    names: BTreeMap<String, usize>,
    /// The file of each name at the last flush of the directory.
    flushed: BTreeMap<String, usize>,
}

impl<'j> Disk<'j> {
    fn new(before: &Files) -> Self {
        let names: BTreeMap<String, usize> = before.keys().cloned().zip(0..).collect();
        let file = |bytes: &Vec<u8>| File {
            flushed: bytes.clone(),
            pending: Vec::new(),
        };
        Self {
            files: before.values().map(file).collect(),
            flushed: names.clone(),
            names,
        }
    }

    fn apply(&mut self, record: Record<'j>, synchronous: Synchronous, survives: impl FnMut() -> bool) {
        let Record { name, deed } = record;
        match deed {
            Deed::Create => {
                self.names.insert(name.to_owned(), self.files.len());
                self.files.push(File::default());
            }
            Deed::Resize(length) => self.file(name).pending.push(Change::Resize(length)),
            Deed::Write { offset, bytes } => {
                let wal = format!("{name}{WAL}");
                if synchronous == Synchronous::Normal && self.names.contains_key(&wal) {
                    self.file(&wal).settle(|| true);
                }
                self.file(name).write(offset, bytes);
            }
            Deed::Flush if name.is_empty() => self.flushed = self.names.clone(),
            Deed::Flush if synchronous == Synchronous::Normal && name.ends_with(WAL) => {}
            Deed::Flush => self.file(name).settle(|| true),
            // A failed flush of the directory does not change which names survive.
            Deed::FailedFlush if name.is_empty() => {}
            // After a failed flush, the operating system treats the unwritten data as written.
            Deed::FailedFlush => self.file(name).settle(survives),
            Deed::Rename(new_name) => {
                let file = self.names.remove(name).unwrap();
                self.names.insert(new_name.to_owned(), file);
            }
            Deed::Remove => {
                self.names.remove(name).unwrap();
            }
        }
    }

    fn file(&mut self, name: &str) -> &mut File<'j> {
        &mut self.files[self.names[name]]
    }

    fn after_power_cut(mut self, mut survives: impl FnMut() -> bool) -> Files {
        let names: BTreeSet<&String> = self.names.keys().chain(self.flushed.keys()).collect();
        let mut left = Files::new();
        for name in names {
            let (now, flushed) = (self.names.get(name), self.flushed.get(name));
            let found = if now == flushed || survives() { now } else { flushed };
            if let Some(place) = found {
                let file = &mut self.files[*place];
                file.settle(&mut survives);
                left.insert(name.clone(), file.flushed.clone());
            }
        }
        left
    }
}

/// A file: its flushed content, and the operations since the flush.
#[derive(Default)]
struct File<'j> {
    flushed: Vec<u8>,
    pending: Vec<Change<'j>>,
}

enum Change<'j> {
    Resize(usize),
    Write { offset: usize, bytes: &'j [u8] },
}

impl<'j> File<'j> {
    fn write(&mut self, offset: usize, bytes: &'j [u8]) {
        let sectors = bytes.chunks(SECTOR).zip((offset..).step_by(SECTOR));
        let changes = sectors.map(|(bytes, offset)| Change::Write { offset, bytes });
        self.pending.extend(changes);
    }

    /// Ends all pending operations: the surviving ones are applied, the others are lost.
    fn settle(&mut self, mut survives: impl FnMut() -> bool) {
        for change in self.pending.drain(..) {
            if !survives() {
                continue;
            }
            match change {
                Change::Resize(length) => self.flushed.resize(length, 0),
                Change::Write { offset, bytes } => {
                    let end = offset + bytes.len();
                    if self.flushed.len() < end {
                        self.flushed.resize(end, 0);
                    }
                    self.flushed[offset..end].copy_from_slice(bytes);
                }
            }
        }
    }
}
