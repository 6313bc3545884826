//! The writes that a lane commits.

use supervisor_core::transcript::TranscriptSource;

use super::change::{Change, Changed};
use crate::store::{
    batch::{Batch, Created, CreationKey},
    error::WriteError,
    queue::{Ending, Queued, Reply},
    transcript::NewEntry,
};

/// A write, and its outcome once the work is done.
pub(super) struct Task<W, T> {
    pub(super) work: W,
    pub(super) outcome: Option<Result<T, WriteError>>,
    reply: Reply<T>,
}

impl<W, T> Task<W, T> {
    pub(super) fn new(work: W, reply: Reply<T>) -> Self {
        Self {
            work,
            outcome: None,
            reply,
        }
    }
}

/// A batch to write.
pub(super) struct BatchWrite {
    pub(super) kind: BatchKind,
    pub(super) batch: Batch,
}

/// Whether a batch creates or continues its session.
pub(super) enum BatchKind {
    /// The batch creates the session, unless the key is already stored.
    Create(Option<CreationKey>),
    /// The batch is appended to the session.
    Append,
}

impl BatchWrite {
    pub(super) fn is_append(&self) -> bool {
        matches!(self.kind, BatchKind::Append)
    }

    pub(super) fn key(&self) -> Option<&CreationKey> {
        match &self.kind {
            BatchKind::Create(key) => key.as_ref(),
            BatchKind::Append => None,
        }
    }
}

/// Transcript entries to write.
pub(super) struct EntriesWrite {
    pub(super) source: TranscriptSource,
    pub(super) entries: Vec<NewEntry>,
    pub(super) session_bytes: u64,
}

pub(super) type BatchTask = Task<BatchWrite, Created>;
pub(super) type EntriesTask = Task<EntriesWrite, Option<u64>>;
pub(super) type ChangeTask = Task<Change, Changed>;

/// A write of a group.
pub(super) enum Job {
    Batch(Box<BatchTask>),
    Entries(EntriesTask),
    Change(ChangeTask),
}

impl Queued for Job {
    fn weight(&self) -> usize {
        match self {
            Self::Batch(task) => task.reply.weight(),
            Self::Entries(task) => task.reply.weight(),
            Self::Change(task) => task.reply.weight(),
        }
    }

    fn answer(self, ending: &Ending) {
        match self {
            Self::Batch(task) => task.reply.send(task.outcome, ending),
            Self::Entries(task) => task.reply.send(task.outcome, ending),
            Self::Change(task) => task.reply.send(task.outcome, ending),
        }
    }
}

/// The state of a group's transaction after its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Commit it. Every job has its outcome.
    Keep,
    /// Roll it back: a job was rejected after it had changed something. That job has its outcome.
    Undo,
    /// Roll it back: the database lacks earlier commits of this lane.
    Behind,
}
