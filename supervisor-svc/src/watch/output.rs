//! What running threads write, for those who look on: the newest 64 KiB of each, in memory, never in the log. Watchers take
//! what came since they last looked; one that is slow misses the oldest pieces, and nobody gets a queue.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::domain::ids::{Generation, SessionId, ThreadId};

/// How many bytes of a thread's output are kept.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// In how many pieces at most.
pub(super) const MAX_PIECES: usize = 1_024;

/// How many threads' output is kept; beyond that, the thread that wrote least lately loses its own.
pub(super) const MAX_THREADS: usize = 1_024;

/// A piece of a thread's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The thread.
    pub thread: ThreadId,
    /// The attempt that wrote it.
    pub generation: Generation,
    /// The text.
    pub text: Arc<str>,
    version: u64,
}

/// The newest output of every thread in this process.
#[derive(Clone, Debug)]
pub struct OutputBoard {
    // Held for one look-up or one change, never across an await.
    rings: Arc<Mutex<HashMap<ThreadId, Ring>>>,
    version: Arc<watch::Sender<u64>>,
}

/// The newest output of one thread.
#[derive(Debug)]
struct Ring {
    session: SessionId,
    bytes: usize,
    pieces: VecDeque<Piece>,
}

impl Default for OutputBoard {
    fn default() -> Self {
        Self {
            rings: Arc::default(),
            version: Arc::new(watch::channel(0).0),
        }
    }
}

impl OutputBoard {
    /// Takes a piece of output; of one that is longer than what is kept of a thread, the end.
    pub fn put(&self, session: SessionId, thread: ThreadId, generation: Generation, text: &str) {
        let text = end_of(text);
        if text.is_empty() {
            return;
        }
        self.version.send_modify(|version| {
            *version += 1;
            let piece = Piece {
                thread,
                generation,
                text: Arc::from(text),
                version: *version,
            };
            let mut rings = self.lock();
            let ring = rings.entry(thread).or_insert_with(|| Ring {
                session,
                bytes: 0,
                pieces: VecDeque::new(),
            });
            ring.push(piece);
            if rings.len() > MAX_THREADS {
                forget_stalest(&mut rings);
            }
        });
    }

    /// Forgets a thread that is closed.
    pub fn forget(&self, thread: ThreadId) {
        self.lock().remove(&thread);
    }

    /// Changes with every new piece.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The pieces of a session that are newer than `seen`, in the order in which they came, and the version up to which
    /// that is. Zero is before the first.
    #[must_use]
    pub fn since(&self, session: SessionId, seen: u64) -> (u64, Vec<Piece>) {
        let rings = self.lock();
        let mut pieces: Vec<Piece> = rings
            .values()
            .filter(|ring| ring.session == session)
            .flat_map(|ring| ring.pieces.iter().rev().take_while(|piece| piece.version > seen))
            .cloned()
            .collect();
        drop(rings);
        pieces.sort_by_key(|piece| piece.version);
        let newest = pieces.last().map_or(seen, |piece| piece.version);
        (newest, pieces)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Ring>> {
        // Every change to the map is whole, so a panic elsewhere leaves it usable.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
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

fn forget_stalest(rings: &mut HashMap<ThreadId, Ring>) {
    let stalest = rings
        .iter()
        .min_by_key(|(_, ring)| ring.newest())
        .map(|(thread, _)| *thread);
    if let Some(stalest) = stalest {
        rings.remove(&stalest);
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
    fn a_watcher_gets_each_piece_once_and_in_order() {
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
    fn the_oldest_goes_when_the_ring_is_full() {
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
    fn of_a_piece_that_is_too_long_the_end_is_kept() {
        let board = OutputBoard::default();
        board.put(session(1), thread(1), FIRST, &format!("é{}", "x".repeat(MAX_BYTES - 1)));
        let (_, pieces) = board.since(session(1), 0);
        assert_eq!(pieces[0].text.len(), MAX_BYTES - 1, "no character is cut in two");
    }

    #[test]
    fn closed_threads_and_those_that_were_silent_longest_are_forgotten() {
        let board = OutputBoard::default();
        board.put(session(1), thread(0), FIRST, "closed");
        board.forget(thread(0));
        assert_eq!(board.since(session(1), 0).1, []);
        for number in 1..=MAX_THREADS as u128 + 1 {
            board.put(session(1), thread(number), FIRST, "x");
        }
        let (_, pieces) = board.since(session(1), 0);
        assert_eq!(pieces.len(), MAX_THREADS);
        assert_eq!(pieces[0].thread, thread(2));
    }
}
