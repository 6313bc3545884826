//! Content that a session's store has already. Most spawns bring what an earlier one of the same role brought: it need not
//! be sent to the store again, where it would change nothing.

use std::collections::VecDeque;

use crate::domain::ids::Digest;

/// How many contents are remembered: more than the roles that are spawned by turns.
const REMEMBERED: usize = 64;

/// The latest contents that are durable. Content lives as long as its session, so what is here is never wrong.
#[derive(Debug, Default)]
pub(super) struct StoredContents(VecDeque<Digest>);

impl StoredContents {
    /// Whether the store has it for certain.
    pub fn has(&self, digest: Digest) -> bool {
        self.0.contains(&digest)
    }

    /// These were made durable.
    pub fn add(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            if self.has(digest) {
                continue;
            }
            if self.0.len() == REMEMBERED {
                self.0.pop_front();
            }
            self.0.push_back(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_each_once() {
        let digests: Vec<Digest> = (0..=REMEMBERED)
            .map(|number| Digest::of(&number.to_be_bytes()))
            .collect();
        let mut stored = StoredContents::default();
        stored.add(digests.iter().copied().chain(digests[1..].iter().copied()));
        assert_eq!(stored.0.len(), REMEMBERED);
        assert!(!stored.has(digests[0]) && stored.has(digests[1]) && stored.has(digests[REMEMBERED]));
    }
}
