//! A thread's mail that is not acknowledged yet. Of each child it holds one letter at most: the latest word counts, so it
//! cannot grow with the turns of children.

use std::sync::Arc;

use imbl::OrdMap;

use super::{
    ids::{Sequence, ThreadId},
    mail::{Body, Letter},
};

/// Letters by the sequence of the event that sent each.
///
/// Invariant: `of_children` names the letter of each child whose settling is among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mailbox {
    letters: OrdMap<Sequence, Arc<Letter>>,
    of_children: OrdMap<ThreadId, Sequence>,
}

impl Mailbox {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// How many letters wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// How many of them are handoffs.
    #[must_use]
    pub fn handoffs(&self) -> usize {
        self.letters.len() - self.of_children.len()
    }

    /// The letters, oldest first.
    pub fn letters(&self) -> impl Iterator<Item = &Arc<Letter>> {
        self.letters.values()
    }

    /// Those after that number, oldest first.
    pub fn after(&self, sequence: Sequence) -> impl Iterator<Item = &Arc<Letter>> {
        self.letters.range(sequence.next()..).map(|(_, letter)| letter)
    }

    /// The number of the oldest letter.
    #[must_use]
    pub fn oldest(&self) -> Option<Sequence> {
        self.letters.get_min().map(|(sequence, _)| *sequence)
    }

    /// The number of the newest letter.
    #[must_use]
    pub fn newest(&self) -> Option<Sequence> {
        self.letters.get_max().map(|(sequence, _)| *sequence)
    }

    /// Whether the letter of that number waits.
    #[must_use]
    pub fn holds(&self, sequence: Sequence) -> bool {
        self.letters.contains_key(&sequence)
    }

    /// Whether a child's settling waits.
    #[must_use]
    pub fn tells_of(&self, child: ThreadId) -> bool {
        self.of_children.contains_key(&child)
    }

    /// A letter arrives, and takes the place of the same child's earlier one.
    pub(super) fn put(&mut self, letter: Letter) {
        let earlier = match letter.body {
            Body::Settled { child, .. } => self.of_children.insert(child, letter.sequence),
            Body::Handoff(_) => None,
        };
        if let Some(earlier) = earlier {
            self.letters.remove(&earlier);
        }
        self.letters.insert(letter.sequence, Arc::new(letter));
    }

    /// Forgets what has a number up to that one.
    pub(super) fn acknowledge(&mut self, up_to: Sequence) {
        let (read, acknowledged, waiting) = self.letters.split_lookup(&up_to);
        for letter in read.values().chain(&acknowledged) {
            if let Body::Settled { child, .. } = letter.body {
                self.of_children.remove(&child);
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
