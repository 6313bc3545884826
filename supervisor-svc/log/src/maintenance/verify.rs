//! Verification of a log: stored data is intact and consistent.
//!
//! For a consistent view of each session, the check verifies the following. Every record matches its checksum, is
//! stored under its own number and can be decoded. The records fold to a state. Every content matches its checksum and
//! its digest. Every content that an event refers to is stored, unless the event says that it was omitted. The snapshot
//! and the stored requests match their checksums. A fault does not stop the check of other sessions.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use supervisor_core::{
    content::ContentRef,
    event::Recorded,
    evolve,
    ids::{Digest, Sequence, SessionId},
    settings::PromptLog,
    state::session::Session,
};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{error::MaintenanceError, open, references};
use crate::{
    codec::{DecodeError, decode_record, decode_snapshot},
    store::{Head, LogReader, RawContent, RawRecord, ReadError, SessionLog, Side, Snapshot},
};

/// Progress of a check or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The engine checks the pages of the file.
    Pages,
    /// Sessions are being checked.
    Sessions {
        /// Number of sessions checked so far.
        checked: u64,
        /// Number of sessions at the start.
        of: u64,
    },
    /// Rows are being copied into a database.
    Rows {
        /// Number of rows copied so far.
        copied: u64,
    },
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of sessions checked.
    pub sessions: u64,
    /// Number of records checked.
    pub events: u64,
    /// Number of contents checked.
    pub contents: u64,
    /// Number of transcript entries checked.
    pub entries: u64,
    /// Total size of these records, contents and entries, in bytes.
    pub bytes: u64,
    /// Number of prompt blocks that events refer to but that are not stored, in accordance with the session's
    /// `prompt_log`. Not a fault.
    pub not_kept: u64,
    /// Number of contents that events refer to but that were omitted because the session's content quota was exhausted.
    /// Not a fault.
    pub left_out: u64,
    /// Damage to the database file itself.
    pub damage: Vec<String>,
    /// Sessions with problems, one entry per session.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Returns whether the check found no problem.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.faults.is_empty()
    }
}

/// A session with its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The session's id.
    pub session: SessionId,
    /// The first problem that was found.
    pub first: Problem,
    /// Number of problems.
    pub problems: u64,
}

/// A problem of a session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// A record is missing.
    #[error("record {0} is missing")]
    Missing(Sequence),
    /// A record is damaged: it does not match its checksum.
    #[error("record {0} does not match its checksum")]
    Changed(Sequence),
    /// A record is beyond the session's head.
    #[error("record {found} is beyond the last one, {head}")]
    Beyond {
        /// The record.
        found: Sequence,
        /// The last record according to the session.
        head: Sequence,
    },
    /// A record is stored under a different number than its own.
    #[error("record {lies_under} contains the number of record {says}")]
    Misplaced {
        /// The number under which it is stored.
        lies_under: Sequence,
        /// The number that it contains.
        says: Sequence,
    },
    /// A record can't be read.
    #[error("record {sequence}: {cause}")]
    Unreadable {
        /// The record.
        sequence: Sequence,
        /// The cause.
        cause: DecodeError,
    },
    /// The snapshot of a compacted session cannot be read, and no other data covers the compacted part.
    #[error("its snapshot as of record {sequence}: {cause}")]
    UnreadableSnapshot {
        /// The last record that the snapshot includes.
        sequence: Sequence,
        /// The cause.
        cause: DecodeError,
    },
    /// The first record doesn't open the session.
    #[error("its first record does not open the session")]
    NotOpened,
    /// Compaction removed records that no snapshot includes.
    #[error("it is compacted up to record {oldest}, and no snapshot includes that record")]
    NoSnapshot {
        /// The last compacted record.
        oldest: Sequence,
    },
    /// Data stored with the records does not match its checksum.
    #[error("its {0} does not match its checksum")]
    SideChanged(Side),
    /// A content does not match its digest.
    #[error("content {0} does not match its digest")]
    WrongContent(Digest),
    /// A content is missing.
    #[error("content {digest} of record {sequence} is missing")]
    NoContent {
        /// The content.
        digest: Digest,
        /// The first record that refers to it.
        sequence: Sequence,
    },
    /// The size of a content differs from the size in the event.
    #[error("content {digest} has {found} bytes; record {sequence} contains the size {says}")]
    WrongSize {
        /// The content.
        digest: Digest,
        /// Its stored size.
        found: u64,
        /// The first record that refers to it.
        sequence: Sequence,
        /// The size in that record.
        says: u64,
    },
    /// The engine couldn't continue to read.
    #[error("{0}")]
    Engine(String),
}

/// Verifies the log of a data directory and reports progress. A service may be running.
///
/// # Errors
/// See [`MaintenanceError`]: only errors that prevent the check from starting. Findings are in the report.
pub fn verify(data_dir: &Path, report_progress: &mut dyn FnMut(Progress)) -> Result<Report, MaintenanceError> {
    let log = open(data_dir)?;
    report_progress(Progress::Pages);
    let mut report = Report {
        damage: log.page_faults().unwrap_or_else(|error| vec![error.to_string()]),
        ..Report::default()
    };
    if let Err(error) = each_session(&log, &mut report, report_progress) {
        report.damage.push(error.to_string());
    }
    Ok(report)
}

/// Verifies the sessions of a copy, whose pages were checked when it was made.
///
/// # Errors
/// See [`verify`], and [`MaintenanceError::Cancelled`].
pub(super) fn verify_copy(directory: &Path, cancel: &CancellationToken) -> Result<Report, MaintenanceError> {
    let mut log = open(directory)?;
    log.interrupt_on(cancel)?;
    let mut report = Report::default();
    let checked = each_session(&log, &mut report, &mut |_| {});
    if cancel.is_cancelled() {
        return Err(MaintenanceError::Cancelled);
    }
    checked?;
    Ok(report)
}

fn each_session(
    log: &LogReader,
    report: &mut Report,
    report_progress: &mut dyn FnMut(Progress),
) -> Result<(), ReadError> {
    let of = log.session_count()?;
    let mut after = None;
    loop {
        let page = log.sessions(after)?;
        let Some(&last) = page.last() else { return Ok(()) };
        after = Some(last);
        for session in page {
            // The session may have been deleted in the meantime.
            if let Some(stored) = log.session(session)? {
                check(report, &stored);
                report_progress(Progress::Sessions {
                    checked: report.sessions,
                    of: of.max(report.sessions),
                });
            }
        }
    }
}

impl Report {
    /// Returns an error about damaged sessions in a copy.
    pub(super) fn into_error(self, path: PathBuf) -> MaintenanceError {
        let sessions = self.faults.len();
        let fault = self.faults.into_iter().next();
        let fault = fault.map(|fault| format!("session {}: {}", fault.session, fault.first));
        MaintenanceError::Unsound {
            path,
            sessions,
            first: fault.unwrap_or_default(),
        }
    }
}

/// The result of folding the records so far.
enum Fold {
    /// No record was folded yet.
    Before,
    /// The folded state.
    At(Box<Session>),
    /// The state is unknown, because a record can't be read.
    Unknown,
}

/// A content that events refer to.
struct Named {
    /// The first record that refers to it.
    sequence: Sequence,
    /// Its size in that record.
    size: u64,
    /// The strongest storage requirement of the events that refer to it.
    requirement: Requirement,
}

/// Whether a content that an event refers to must be stored, from the weakest requirement to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    /// The session's settings do not require the content to be stored.
    NotRequired,
    /// The content was omitted, because the session's content quota was exhausted.
    Omitted,
    /// The content must be stored.
    Stored,
}

/// The state of the check of one session.
struct Check<'r> {
    report: &'r mut Report,
    session: SessionId,
    head: Head,
    /// The last record that was read or reported missing. Records up to `oldest` may be missing.
    seen: Sequence,
    fold: Fold,
    named: BTreeMap<Digest, Named>,
    first: Option<Problem>,
    problems: u64,
}

/// Checks a session and adds its numbers and problems to the report.
fn check(report: &mut Report, stored: &SessionLog<'_>) {
    let (session, head) = (stored.id(), stored.head());
    report.sessions += 1;
    let mut check = Check {
        report,
        session,
        head,
        seen: head.oldest,
        fold: Fold::Before,
        named: BTreeMap::new(),
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
    match stored.check_transcripts() {
        Ok((entries, bytes)) => {
            check.report.entries += entries;
            check.report.bytes += bytes;
        }
        Err(error) => check.failed(error),
    }
    if let Err(error) = stored.check_requests() {
        check.failed(error);
    }
    if let Some(first) = check.first {
        check.report.faults.push(Fault {
            session,
            first,
            problems: check.problems,
        });
    }
}

impl Check<'_> {
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

    /// Reports the records after the last record that was read, up to and including `last`, as missing.
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
        self.report.events += 1;
        self.report.bytes += record.bytes.len() as u64;
        if sequence > self.head.sequence {
            self.problem(Problem::Beyond {
                found: sequence,
                head: self.head.sequence,
            });
            return;
        }
        // A compacted part contains only its marked records, with gaps between them.
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
                self.add_references(&recorded);
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
            // The snapshot includes this record, or the state is unknown.
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

    /// Adds the contents that a record refers to.
    fn add_references(&mut self, recorded: &Recorded) {
        let stored = if recorded.metadata.contents_left_out {
            Requirement::Omitted
        } else {
            Requirement::Stored
        };
        for content in references::required(&recorded.event) {
            self.add_reference(content, recorded.sequence, stored);
        }
        let prompts = match &self.fold {
            Fold::At(session) if session.settings.prompt_log == PromptLog::Full => stored,
            Fold::At(_) | Fold::Before | Fold::Unknown => Requirement::NotRequired,
        };
        for block in references::prompt_blocks(&recorded.event) {
            self.add_reference(block, recorded.sequence, prompts);
        }
    }

    fn add_reference(&mut self, content: &ContentRef, sequence: Sequence, requirement: Requirement) {
        let named = self.named.entry(content.digest).or_insert(Named {
            sequence,
            size: content.size,
            requirement,
        });
        named.requirement = named.requirement.max(requirement);
    }

    fn content(&mut self, content: &RawContent) {
        let (named_by, found) = (content.digest, content.bytes.len() as u64);
        self.report.contents += 1;
        self.report.bytes += found;
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

    /// Reports contents that events refer to but that are not stored.
    fn missing_contents(&mut self) {
        for (digest, named) in std::mem::take(&mut self.named) {
            match named.requirement {
                Requirement::NotRequired => self.report.not_kept += 1,
                Requirement::Omitted => self.report.left_out += 1,
                Requirement::Stored => self.problem(Problem::NoContent {
                    digest,
                    sequence: named.sequence,
                }),
            }
        }
    }

    /// Checks the snapshot. The fold of a compacted session starts from it.
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
                    // Without compaction, an unreadable snapshot is not a problem, because the full log is available.
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
