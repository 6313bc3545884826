//! Verifying a log: that everything lies there as it was written, and that it means something.
//!
//! Of each session, as of one moment: every record matches its checksum, stands where its number says and can be read;
//! the records fold to a state; every content matches its checksum and its digest; every content that an event names is
//! there, unless the event says that it was left out; the snapshot and the remembered requests match their checksums. A fault never ends the check of the others.

use std::{collections::BTreeMap, path::Path};

use thiserror::Error;

use super::{error::MaintenanceError, open, references};
use crate::{
    domain::{
        content::ContentRef,
        event::Recorded,
        evolve,
        ids::{Digest, Sequence, SessionId},
        session::Session,
        settings::PromptLog,
    },
    store::{Head, LogReader, RawContent, RawRecord, ReadError, SessionLog, Side, Snapshot},
    wire::{DecodeError, decode_record, decode_snapshot},
};

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The engine checks the pages of the file.
    Pages,
    /// So many sessions are checked.
    Sessions {
        /// How many.
        checked: u64,
        /// How many there were at the beginning.
        of: u64,
    },
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many sessions were checked.
    pub sessions: u64,
    /// How many records they have.
    pub events: u64,
    /// How many contents.
    pub contents: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// How many blocks of prompts are named but not kept, as a session's `prompt_log` may ask for. Not a fault.
    pub not_kept: u64,
    /// How many contents are named but were left out, because their session had no room for them. Not a fault.
    pub left_out: u64,
    /// What is wrong with the file itself.
    pub damage: Vec<String>,
    /// What is wrong with sessions: one entry for each that has a problem.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.faults.is_empty()
    }
}

/// What is wrong with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which.
    pub session: SessionId,
    /// The first problem that was found.
    pub first: Problem,
    /// How many there are.
    pub problems: u64,
}

/// One thing that is wrong with a session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Records are not there.
    #[error("record {0} is missing")]
    Missing(Sequence),
    /// A record is not what was written.
    #[error("record {0} does not match its checksum")]
    Changed(Sequence),
    /// A record is there that the session does not count.
    #[error("record {found} is beyond the last one, {head}")]
    Beyond {
        /// The record.
        found: Sequence,
        /// The last one by the session's word.
        head: Sequence,
    },
    /// A record says that it is another.
    #[error("record {lies_under} says that it is record {says}")]
    Misplaced {
        /// The number that it lies under.
        lies_under: Sequence,
        /// The number that it says.
        says: Sequence,
    },
    /// A record can't be read.
    #[error("record {sequence}: {cause}")]
    Unreadable {
        /// The record.
        sequence: Sequence,
        /// Why.
        cause: DecodeError,
    },
    /// The snapshot of a compacted session can't be read, and nothing else tells what came before.
    #[error("its snapshot as of record {sequence}: {cause}")]
    UnreadableSnapshot {
        /// As of which record it is.
        sequence: Sequence,
        /// Why.
        cause: DecodeError,
    },
    /// The first record doesn't open the session.
    #[error("its first record does not open it")]
    NotOpened,
    /// Records were compacted away that no snapshot includes.
    #[error("it is compacted up to record {oldest}, and no snapshot goes so far")]
    NoSnapshot {
        /// The last record that is gone.
        oldest: Sequence,
    },
    /// Something beside the records is not what was written.
    #[error("its {0} does not match its checksum")]
    SideChanged(Side),
    /// A content is not what its digest names.
    #[error("content {0} does not match its digest")]
    WrongContent(Digest),
    /// A content is not there.
    #[error("content {digest} of record {sequence} is missing")]
    NoContent {
        /// The content.
        digest: Digest,
        /// The first record that names it.
        sequence: Sequence,
    },
    /// A content has another size than the event says.
    #[error("content {digest} has {found} bytes; record {sequence} says {says}")]
    WrongSize {
        /// The content.
        digest: Digest,
        /// Its size.
        found: u64,
        /// The first record that names it.
        sequence: Sequence,
        /// The size by that record.
        says: u64,
    },
    /// The engine couldn't read on.
    #[error("{0}")]
    Engine(String),
}

/// Checks the log of a data directory, beside a running service or without one, and tells how far it is.
///
/// # Errors
/// See [`MaintenanceError`]: only what keeps the check from beginning. What it finds is in the report.
pub fn verify(data_dir: &Path, tell: &mut dyn FnMut(Progress)) -> Result<Report, MaintenanceError> {
    let log = open(data_dir)?;
    tell(Progress::Pages);
    let mut report = Report {
        damage: log.page_faults().unwrap_or_else(|error| vec![error.to_string()]),
        ..Report::default()
    };
    if let Err(error) = each_session(&log, &mut report, tell) {
        report.damage.push(error.to_string());
    }
    Ok(report)
}

fn each_session(log: &LogReader, report: &mut Report, tell: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
    let of = log.session_count()?;
    let mut after = None;
    loop {
        let page = log.sessions(after)?;
        let Some(&last) = page.last() else { return Ok(()) };
        after = Some(last);
        for session in page {
            // It may have been deleted meanwhile.
            if let Some(stored) = log.session(session)? {
                report.add(check(&stored));
                tell(Progress::Sessions {
                    checked: report.sessions,
                    of: of.max(report.sessions),
                });
            }
        }
    }
}

impl Report {
    fn add(&mut self, check: Check) {
        self.sessions += 1;
        self.events += check.events;
        self.contents += check.contents;
        self.bytes += check.bytes;
        self.not_kept += check.not_kept;
        self.left_out += check.left_out;
        if let Some(first) = check.first {
            self.faults.push(Fault {
                session: check.session,
                first,
                problems: check.problems,
            });
        }
    }
}

/// What the records came to so far.
enum Fold {
    /// There was none yet.
    Before,
    /// They fold to this.
    At(Box<Session>),
    /// Something on the way can't be read.
    Unknown,
}

/// A content that events name.
struct Named {
    /// The first record that names it.
    sequence: Sequence,
    /// Its size by that record.
    size: u64,
    /// What the strictest of them says.
    keeping: Keeping,
}

/// What an event says of a content that it names, from what asks for least on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Keeping {
    /// The session's settings do not ask for it.
    NotAskedFor,
    /// The session had no room for it.
    LeftOut,
    /// It must be there.
    Kept,
}

/// The check of one session under way.
struct Check {
    session: SessionId,
    head: Head,
    /// The last record that was seen or was missing; those up to `oldest` may be missing.
    seen: Sequence,
    fold: Fold,
    named: BTreeMap<Digest, Named>,
    events: u64,
    contents: u64,
    bytes: u64,
    not_kept: u64,
    left_out: u64,
    first: Option<Problem>,
    problems: u64,
}

fn check(stored: &SessionLog<'_>) -> Check {
    let head = stored.head();
    let mut check = Check {
        session: stored.id(),
        head,
        seen: head.oldest,
        fold: Fold::Before,
        named: BTreeMap::new(),
        events: 0,
        contents: 0,
        bytes: 0,
        not_kept: 0,
        left_out: 0,
        first: None,
        problems: 0,
    };
    check.snapshot(stored);
    let read = stored.each_record(|record| check.record(&record));
    match read {
        Ok(()) => check.missing_up_to(head.sequence),
        Err(error) => check.failed(error),
    }
    let read = stored.each_content(|content| check.content(&content));
    match read {
        Ok(()) => check.missing_contents(),
        Err(error) => check.failed(error),
    }
    if let Err(error) = stored.check_requests() {
        check.failed(error);
    }
    check
}

impl Check {
    fn problem(&mut self, problem: Problem) {
        self.problems += 1;
        self.first.get_or_insert(problem);
    }

    fn failed(&mut self, error: ReadError) {
        let problem = match error {
            ReadError::CorruptSide { side, .. } => Problem::SideChanged(side),
            ReadError::Corrupt { sequence, .. } => Problem::Changed(sequence),
            ReadError::Compacted { .. } | ReadError::Engine(_) => Problem::Engine(error.to_string()),
        };
        self.problem(problem);
    }

    /// Takes for missing what lies after the last record that was seen, up to this one.
    fn missing_up_to(&mut self, last: Sequence) {
        let missing = last.get().saturating_sub(self.seen.get());
        if missing > 0 {
            self.problem(Problem::Missing(self.seen.next()));
            self.problems += missing - 1;
            self.fold = Fold::Unknown;
            self.seen = last;
        }
    }

    fn record(&mut self, record: &RawRecord) {
        let sequence = record.sequence;
        self.events += 1;
        self.bytes += record.bytes.len() as u64;
        if sequence > self.head.sequence {
            self.problem(Problem::Beyond {
                found: sequence,
                head: self.head.sequence,
            });
            return;
        }
        // What is compacted has left only its marked records, and gaps between them.
        if sequence > self.head.oldest {
            self.missing_up_to(Sequence::new(sequence.get().saturating_sub(1)));
            self.seen = sequence;
        }
        if !record.is_intact {
            self.problem(Problem::Changed(sequence));
            self.fold = Fold::Unknown;
            return;
        }
        match decode_record(self.session, &record.bytes) {
            Ok(recorded) if recorded.sequence == sequence => {
                self.fold(&recorded);
                self.names(&recorded);
            }
            Ok(recorded) => {
                self.problem(Problem::Misplaced {
                    lies_under: sequence,
                    says: recorded.sequence,
                });
                self.fold = Fold::Unknown;
            }
            Err(cause) => {
                self.problem(Problem::Unreadable { sequence, cause });
                self.fold = Fold::Unknown;
            }
        }
    }

    fn fold(&mut self, recorded: &Recorded) {
        match &mut self.fold {
            Fold::At(session) if recorded.sequence > session.sequence => evolve::evolve(session, recorded),
            // The snapshot has it.
            Fold::At(_) | Fold::Unknown => {}
            Fold::Before => match evolve::open(self.session, recorded) {
                Some(session) => self.fold = Fold::At(Box::new(session)),
                None => {
                    self.fold = Fold::Unknown;
                    self.problem(Problem::NotOpened);
                }
            },
        }
    }

    /// Remembers the contents that a record names.
    fn names(&mut self, recorded: &Recorded) {
        let brought = if recorded.circumstances.contents_left_out {
            Keeping::LeftOut
        } else {
            Keeping::Kept
        };
        for content in references::kept(&recorded.event) {
            self.name(content, recorded.sequence, brought);
        }
        let prompts = match &self.fold {
            Fold::At(session) if session.settings.prompt_log == PromptLog::Full => brought,
            Fold::At(_) | Fold::Before | Fold::Unknown => Keeping::NotAskedFor,
        };
        for block in references::prompt(&recorded.event) {
            self.name(block, recorded.sequence, prompts);
        }
    }

    fn name(&mut self, content: &ContentRef, sequence: Sequence, keeping: Keeping) {
        let named = self.named.entry(content.digest).or_insert(Named {
            sequence,
            size: content.size,
            keeping,
        });
        named.keeping = named.keeping.max(keeping);
    }

    fn content(&mut self, content: &RawContent) {
        let (named_by, found) = (content.digest, content.bytes.len() as u64);
        self.contents += 1;
        self.bytes += found;
        let named = self.named.remove(&named_by);
        if !content.is_intact {
            self.problem(Problem::SideChanged(Side::Content(named_by)));
        } else if Digest::of(&content.bytes) != named_by {
            self.problem(Problem::WrongContent(named_by));
        } else if let Some(named) = named
            && named.size != found
        {
            self.problem(Problem::WrongSize {
                digest: named_by,
                found,
                sequence: named.sequence,
                says: named.size,
            });
        }
    }

    /// What is still named was not among the contents.
    fn missing_contents(&mut self) {
        for (digest, named) in std::mem::take(&mut self.named) {
            match named.keeping {
                Keeping::NotAskedFor => self.not_kept += 1,
                Keeping::LeftOut => self.left_out += 1,
                Keeping::Kept => self.problem(Problem::NoContent {
                    digest,
                    sequence: named.sequence,
                }),
            }
        }
    }

    /// Looks at the snapshot. The state of a compacted session begins with it.
    fn snapshot(&mut self, stored: &SessionLog<'_>) {
        let oldest = self.head.oldest;
        let is_compacted = oldest > Sequence::ZERO;
        if is_compacted {
            self.fold = Fold::Unknown;
        }
        match stored.snapshot() {
            Ok(Some(Snapshot { sequence, bytes })) if sequence >= oldest => {
                match decode_snapshot(self.session, sequence, &bytes) {
                    Ok(session) if is_compacted => self.fold = Fold::At(Box::new(session)),
                    // The whole log is there, and is folded where the snapshot can't be read.
                    Err(cause) if is_compacted => self.problem(Problem::UnreadableSnapshot { sequence, cause }),
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(None) if !is_compacted => {}
            Ok(Some(_) | None) => self.problem(Problem::NoSnapshot { oldest }),
            Err(error) => self.failed(error),
        }
    }
}
