//! The cost of a durable commit with SQLite alone, on the disk with a supervisor's log.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use prost::Message;
use rusqlite::{Connection, params};
use troupe_tests::tree::Tree;

use crate::samples::Samples;

/// Maximum number of events in one append.
pub(crate) const APPEND: usize = 256;

/// A separate database next to the log, as durable as the log.
#[derive(Debug)]
pub(crate) struct Commits(Connection);

impl Commits {
    pub(crate) fn beside_log(data: &Path) -> Self {
        let connection = Connection::open(data.join("commits.db")).unwrap();
        let mode: String = connection
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        connection
            .execute_batch(
                "PRAGMA synchronous = FULL;
                 PRAGMA fullfsync = ON;
                 PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE rows (bytes BLOB NOT NULL) STRICT;",
            )
            .unwrap();
        Self(connection)
    }

    /// Commits a row of each of these sizes, one after the other, and returns the duration of each commit. Blocks the
    /// thread.
    pub(crate) fn make(&self, sizes: impl IntoIterator<Item = usize>) -> Samples {
        let mut insert = self.0.prepare_cached("INSERT INTO rows (bytes) VALUES (?1)").unwrap();
        let times = sizes.into_iter().map(|size| {
            let row = vec![b'x'; size];
            let start = Instant::now();
            insert.execute(params![row]).unwrap();
            start.elapsed()
        });
        Samples(times.collect())
    }

    /// Commits the bytes of the session's events after a sequence, [`APPEND`] events at a time, and returns the
    /// duration.
    pub(crate) async fn of_events(&self, tree: &Tree, after: u64) -> Duration {
        let events = tree.watch_after(after).await.up_to(tree.head().await).await;
        let appends = events
            .chunks(APPEND)
            .map(|events| events.iter().map(Message::encoded_len).sum::<usize>());
        self.make(appends).0.iter().sum()
    }

    /// Inserts `rows` rows of `size` bytes, `in_commit` rows in each commit, and returns the duration. Blocks the
    /// thread.
    pub(crate) fn insert(&self, rows: usize, size: usize, in_commit: usize) -> Duration {
        let mut insert = self.0.prepare_cached("INSERT INTO rows (bytes) VALUES (?1)").unwrap();
        let row = vec![b'x'; size];
        let start = Instant::now();
        for first in (0..rows).step_by(in_commit) {
            let commit = self.0.unchecked_transaction().unwrap();
            for _ in first..rows.min(first + in_commit) {
                insert.execute(params![row]).unwrap();
            }
            commit.commit().unwrap();
        }
        start.elapsed()
    }
}
