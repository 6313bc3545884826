//! Transcripts of threads, stored next to the log and not in it.

use crate::ids::{Generation, SessionId, ThreadId};

/// The kind of a transcript entry. The numbers are stored: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TranscriptKind {
    /// Input that the thread received.
    Input = 1,
    /// A message of the agent.
    Message = 2,
    /// A summary of the agent's reasoning.
    Reasoning = 3,
    /// A call of a tool.
    ToolCall = 4,
    /// The result of a call.
    ToolResult = 5,
    /// The agent's plan.
    Plan = 6,
    /// A file that a turn changed.
    FileChange = 7,
    /// The error that ended a turn.
    Error = 8,
    /// A note about the attempt.
    Notice = 9,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptKinds(u32);

impl TranscriptKinds {
    /// Every kind, and kinds of newer releases.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the set as bits: bit 1 is the kind with the number 1.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set contains the kind with this number.
    #[must_use]
    pub const fn contains(self, number: u8) -> bool {
        number < 32 && self.0 & (1 << number) != 0
    }
}

impl FromIterator<TranscriptKind> for TranscriptKinds {
    fn from_iter<I: IntoIterator<Item = TranscriptKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }
}

/// The attempt whose transcript a batch of entries continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptSource {
    /// The session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// The attempt. A batch is ignored if its attempt is earlier than the attempt of the last stored batch.
    pub generation: Generation,
    /// The number of the batch in the attempt. A batch whose number is not higher than the attempt's last stored number
    /// is ignored.
    pub batch: u64,
}
