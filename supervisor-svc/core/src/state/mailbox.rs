//! A thread's unacknowledged mail. The mailbox holds at most two letters about each child, the last outcome and the
//! close, so its size does not depend on the number of the child's turns.

use std::sync::Arc;

use imbl::OrdMap;

use crate::{
    event::Handoff,
    group::GroupOutcome,
    ids::{ArtifactId, GroupId, Sequence, ThreadId},
    status::Status,
    time::UnixMillis,
};

/// One piece of mail.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// The event that sent the letter.
    pub sequence: Sequence,
    /// The time of that event.
    pub time: UnixMillis,
    /// The content.
    pub body: Body,
}

/// The content of a letter.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Another thread handed over work or results.
    Handoff(Arc<Handoff>),
    /// A child settled or was closed.
    Settled {
        /// The child.
        child: ThreadId,
        /// The child's status at that time.
        status: Status,
    },
    /// A group ended.
    GroupEnded {
        /// The group.
        group: GroupId,
        /// The outcome.
        outcome: GroupOutcome,
        /// The reason.
        reason: String,
        /// The artifact with the table of the results.
        table: ArtifactId,
    },
}

/// A thread's letters, by the sequence of the event that sent each letter.
///
/// Invariant: for each child, `settled` contains the sequence of the letter about its last outcome, and `closed` that
/// of the letter about its close, if `letters` contains such a letter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mailbox {
    letters: OrdMap<Sequence, Arc<Letter>>,
    settled: OrdMap<ThreadId, Sequence>,
    closed: OrdMap<ThreadId, Sequence>,
}

impl Mailbox {
    /// Returns whether the mailbox has no letters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Returns the number of letters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// Returns the number of letters that are not about a child: handoffs and ends of groups.
    #[must_use]
    pub fn handoffs(&self) -> usize {
        self.letters.len() - self.settled.len() - self.closed.len()
    }

    /// Returns the letters, oldest first.
    pub fn letters(&self) -> impl Iterator<Item = &Arc<Letter>> {
        self.letters.values()
    }

    /// Returns the letters with a higher number, oldest first.
    pub fn after(&self, sequence: Sequence) -> impl Iterator<Item = &Arc<Letter>> {
        self.letters.range(sequence.next()..).map(|(_, letter)| letter)
    }

    /// Returns the number of the oldest letter.
    #[must_use]
    pub fn oldest(&self) -> Option<Sequence> {
        self.letters.get_min().map(|(sequence, _)| *sequence)
    }

    /// Returns the number of the newest letter.
    #[must_use]
    pub fn newest(&self) -> Option<Sequence> {
        self.letters.get_max().map(|(sequence, _)| *sequence)
    }

    /// Returns whether the mailbox contains the letter with this number.
    #[must_use]
    pub fn holds(&self, sequence: Sequence) -> bool {
        self.letters.contains_key(&sequence)
    }

    /// Returns whether the mailbox contains a letter about the child: its outcome or its close.
    #[must_use]
    pub fn has_outcome_of(&self, child: ThreadId) -> bool {
        self.settled.contains_key(&child) || self.closed.contains_key(&child)
    }

    /// Adds a letter. A child's outcome replaces all earlier letters about the child. A close does not replace the
    /// outcome.
    pub(crate) fn put(&mut self, letter: Letter) {
        let earlier = match &letter.body {
            Body::Settled { child, status } => match status {
                Status::Shutdown { .. } => [self.closed.insert(*child, letter.sequence), None],
                Status::Settled(_)
                | Status::Queued
                | Status::AwaitingApproval
                | Status::PendingInit
                | Status::Running => [self.settled.insert(*child, letter.sequence), self.closed.remove(child)],
            },
            Body::Handoff(_) | Body::GroupEnded { .. } => [None, None],
        };
        for earlier in earlier.into_iter().flatten() {
            self.letters.remove(&earlier);
        }
        self.letters.insert(letter.sequence, Arc::new(letter));
    }

    /// Removes the letters up to and including this number.
    pub(crate) fn acknowledge(&mut self, up_to: Sequence) {
        let (read, acknowledged, waiting) = self.letters.split_lookup(&up_to);
        for letter in read.values().chain(&acknowledged) {
            if let Body::Settled { child, .. } = letter.body {
                for named in [&mut self.settled, &mut self.closed] {
                    if named.get(&child) == Some(&letter.sequence) {
                        named.remove(&child);
                    }
                }
            }
        }
        self.letters = waiting;
    }
}

impl FromIterator<Letter> for Mailbox {
    fn from_iter<I: IntoIterator<Item = Letter>>(letters: I) -> Self {
        let mut mailbox = Self::default();
        for letter in letters {
            mailbox.put(letter);
        }
        mailbox
    }
}
