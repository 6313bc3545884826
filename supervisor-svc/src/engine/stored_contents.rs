//! Contents that a session's store already has. Most spawns have the same content as an earlier spawn of the same role.
//! Such content need not be sent to the store again.

use std::collections::VecDeque;

use crate::domain::ids::Digest;

/// The number of remembered contents: more than the roles in concurrent use, with one input each.
const REMEMBERED: usize = 64;

/// The most recently referenced durable contents. Content lives as long as its session, so an entry never becomes
/// invalid.
#[derive(Debug, Default)]
pub(super) struct StoredContents(VecDeque<Digest>);

impl StoredContents {
    /// Returns whether the content is certainly in the store.
    pub fn has(&self, digest: Digest) -> bool {
        self.0.contains(&digest)
    }

    /// Adds durable contents.
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
    fn recent_contents_are_remembered() {
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
