//! A commit: the events of one durable append.

use std::sync::OnceLock;

use bytes::Bytes;
use tokio::time::Instant;

use crate::domain::event::Recorded;

/// The number of encodings that a commit can hold.
pub const ENCODINGS: usize = 3;

/// The number of commits that a follower may lag behind before it reads the log instead.
pub(super) const CAPACITY: usize = 256;

/// The events of one append, in order. A follower's position is never between two events of a commit.
#[derive(Debug)]
pub struct Commit {
    /// The events.
    pub events: Vec<Recorded>,
    /// When the events became visible.
    pub published: Instant,
    encodings: [OnceLock<Vec<Bytes>>; ENCODINGS],
}

impl Commit {
    pub(super) fn new(events: Vec<Recorded>) -> Self {
        Self {
            events,
            published: Instant::now(),
            encodings: Default::default(),
        }
    }

    /// Returns the encoded events, in the same order. `encode` runs once per encoding, for all followers of the commit.
    pub fn encoded(&self, encoding: usize, encode: impl FnOnce(&[Recorded]) -> Vec<Bytes>) -> &[Bytes] {
        self.encodings
            .get(encoding)
            .map_or(&[], |encoded| encoded.get_or_init(|| encode(&self.events)))
    }
}
