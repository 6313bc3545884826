//! Live output of running threads: the newest 64 KiB of each thread, held in memory and never in the log. Watchers
//! read the output that is new since their last read. A slow watcher misses the oldest output, and there is no queue
//! per watcher.

use std::{collections::VecDeque, sync::Arc};

use super::board::Board;
use crate::domain::ids::{Generation, SessionId, ThreadId};

/// Maximum output buffered per thread, in bytes.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Maximum number of pieces per thread.
pub(crate) const MAX_PIECES: usize = 1_024;

/// Maximum number of threads with buffered output. Beyond that, the output of the least recently active thread is
/// dropped.
pub(crate) const MAX_THREADS: usize = 1_024;

/// A piece of a thread's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The thread.
    pub thread: ThreadId,
    /// The attempt that wrote the text.
    pub generation: Generation,
    /// The text.
    pub text: Arc<str>,
    version: u64,
}

/// The newest output of every thread in this process.
pub type OutputBoard = Board<Ring>;

/// The newest output of one thread.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    bytes: usize,
    pieces: VecDeque<Piece>,
}

impl OutputBoard {
    /// Appends a piece of output. If a piece exceeds the buffer of a thread, only its end is kept.
    pub fn put(&self, session: SessionId, thread: ThreadId, generation: Generation, text: &str) {
        let text = end_of(text);
        if text.is_empty() {
            return;
        }
        let text = Arc::from(text);
        let count = self.change(session, |rings, version| {
            rings.entry(thread).or_default().push(Piece {
                thread,
                generation,
                text,
                version,
            });
        });
        if count > MAX_THREADS {
            self.forget_least(Ring::newest);
        }
    }

    /// Returns the pieces of a session that are newer than `seen`, in order of arrival, and their newest version. Zero
    /// precedes the first version.
    #[must_use]
    pub fn since(&self, session: SessionId, seen: u64) -> (u64, Vec<Piece>) {
        let pieces = self.read(session, |rings| {
            let newer = rings
                .values()
                .flat_map(|ring| ring.pieces.iter().rev().take_while(|piece| piece.version > seen));
            newer.cloned().collect::<Vec<_>>()
        });
        let mut pieces = pieces.unwrap_or_default();
        pieces.sort_by_key(|piece| piece.version);
        let newest = pieces.last().map_or(seen, |piece| piece.version);
        (newest, pieces)
    }
}

impl Ring {
    fn push(&mut self, piece: Piece) {
        self.bytes += piece.text.len();
        self.pieces.push_back(piece);
        while self.bytes > MAX_BYTES || self.pieces.len() > MAX_PIECES {
            let Some(oldest) = self.pieces.pop_front() else { return };
            self.bytes -= oldest.text.len();
        }
    }

    fn newest(&self) -> u64 {
        self.pieces.back().map_or(0, |piece| piece.version)
    }
}

fn end_of(text: &str) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES));
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use uuid::Uuid;

    use super::*;

    const FIRST: Generation = Generation::new(1);

    fn session(number: u128) -> SessionId {
        SessionId::from_uuid(Uuid::from_u128(number))
    }

    fn thread(number: u128) -> ThreadId {
        ThreadId::from_uuid(Uuid::from_u128(number))
    }

    fn texts(pieces: &[Piece]) -> Vec<&str> {
        pieces.iter().map(|piece| &*piece.text).collect()
    }

    #[test]
    fn each_piece_is_returned_once_in_order() {
        let board = OutputBoard::default();
        board.put(session(1), thread(1), FIRST, "a");
        board.put(session(1), thread(2), FIRST, "b");
        board.put(session(2), thread(3), FIRST, "of another session");
        let (seen, pieces) = board.since(session(1), 0);
        assert_eq!(texts(&pieces), ["a", "b"]);
        assert_eq!(board.since(session(1), seen), (seen, Vec::new()));
        board.put(session(1), thread(1), FIRST.next(), "c");
        let (_, pieces) = board.since(session(1), seen);
        assert_eq!(texts(&pieces), ["c"]);
        assert_eq!((pieces[0].thread, pieces[0].generation), (thread(1), FIRST.next()));
    }

    #[test]
    fn full_ring_drops_the_oldest_piece() {
        let board = OutputBoard::default();
        for text in ["a", "b", "c"] {
            board.put(session(1), thread(1), FIRST, &text.repeat(MAX_BYTES / 2));
        }
        let (_, pieces) = board.since(session(1), 0);
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].text.starts_with('b') && pieces[1].text.starts_with('c'));

        for _ in 0..2 * MAX_PIECES {
            board.put(session(1), thread(1), FIRST, "x");
        }
        assert_eq!(board.since(session(1), 0).1.len(), MAX_PIECES);
    }

    #[test]
    fn long_piece_keeps_its_end() {
        let board = OutputBoard::default();
        board.put(session(1), thread(1), FIRST, &format!("é{}", "x".repeat(MAX_BYTES - 1)));
        let (_, pieces) = board.since(session(1), 0);
        assert_eq!(pieces[0].text.len(), MAX_BYTES - 1, "no character is cut in two");
    }

    #[test]
    fn output_of_closed_and_oldest_threads_is_dropped() {
        let board = OutputBoard::default();
        board.put(session(1), thread(0), FIRST, "closed");
        board.forget(session(1), thread(0));
        assert_eq!(board.since(session(1), 0).1, []);
        for number in 1..=MAX_THREADS as u128 + 1 {
            board.put(session(1), thread(number), FIRST, "x");
        }
        let (_, pieces) = board.since(session(1), 0);
        assert_eq!(pieces.len(), MAX_THREADS);
        assert_eq!(pieces[0].thread, thread(2));
    }
}
