//! Content that a session's store has already. Most spawns bring what an earlier one of the same role brought: it need not
//! be sent to the store again, where it would change nothing.

use std::collections::VecDeque;

use crate::domain::ids::Digest;

/// How many contents are remembered: more than the roles that are spawned by turns, with an input for each.
const REMEMBERED: usize = 64;

/// The contents that were referred to last and are durable. Content lives as long as its session, so what is here is never wrong.
#[derive(Debug, Default)]
pub(super) struct StoredContents(VecDeque<Digest>);

impl StoredContents {
    /// Whether the store has it for certain.
    pub fn has(&self, digest: Digest) -> bool {
        self.0.contains(&digest)
    }

    /// These are durable.
    pub fn add(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            if let Some(place) = self.0.iter().position(|known| *known == digest) {
                self.0.remove(place);
            } else if self.0.len() == REMEMBERED {
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
    fn what_was_used_last_is_remembered() {
        let digests: Vec<Digest> = (0..=REMEMBERED)
            .map(|number| Digest::of(&number.to_be_bytes()))
            .collect();
        let mut stored = StoredContents::default();
        stored.add(digests[..REMEMBERED].iter().copied());
        stored.add([digests[0], digests[REMEMBERED]]);
        assert_eq!(stored.0.len(), REMEMBERED);
        assert!(stored.has(digests[0]) && !stored.has(digests[1]) && stored.has(digests[REMEMBERED]));
    }
}
