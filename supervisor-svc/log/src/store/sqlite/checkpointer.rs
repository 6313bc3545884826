//! Checkpoints the write-ahead log into the database in a thread separate from the writer, which would otherwise
//! block.
//!
//! One thread makes every checkpoint except the last. The engine reuses the log once all frames are moved and the
//! database is flushed. A successful flush after a failed flush does not prove that the data is on the disk, so no
//! checkpoint follows a failed checkpoint.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, ErrorCode};

use crate::store::{
    error::WriteError,
    limits::{CHECKPOINT_FRAMES, FEW_FRAMES, LONG_LOG_FRAMES},
};

/// The length of the log, in frames of one page each.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLength {
    /// All frames.
    pub total: i64,
    /// Frames that are not in the database yet.
    pub unmoved: i64,
}

/// The required action for a log of a given length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing.
    None,
    /// Move frames while the writer continues.
    Move,
    /// Move the remaining frames while the writer is paused, so that the log restarts. A log that grows never restarts.
    Finish,
}

impl LogLength {
    /// Reads the length without moving frames.
    ///
    /// # Errors
    /// Errors of the database engine.
    pub(super) fn of(connection: &Connection) -> Result<Self, rusqlite::Error> {
        checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")
    }

    /// Returns the required action. `finished` is the length of the log when it was last finished. A reader can
    /// prevent the log from restarting. In that case, another attempt is useless until the log has grown by some
    /// frames.
    pub(super) const fn duty(self, finished: i64) -> Duty {
        let was_tried = finished <= self.total && self.total < finished + CHECKPOINT_FRAMES;
        let is_long = self.total >= LONG_LOG_FRAMES && !was_tried;
        if is_long && (self.unmoved <= FEW_FRAMES || self.total >= 2 * LONG_LOG_FRAMES) {
            Duty::Finish
        } else if is_long || self.unmoved >= CHECKPOINT_FRAMES {
            Duty::Move
        } else {
            Duty::None
        }
    }
}

/// Runs the statement and returns the length of the log that it reports.
pub(super) fn checkpoint(connection: &Connection, sql: &str) -> Result<LogLength, rusqlite::Error> {
    connection.prepare_cached(sql)?.query_row([], |row| {
        let (total, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(LogLength {
            total,
            unmoved: total - moved,
        })
    })
}

/// The sender that reports the end of a checkpoint. `None` if the writer does not wait for that end.
type Waiter = Option<SyncSender<()>>;

/// The handle of the checkpoint thread, which ends when the handle is dropped.
pub(super) struct Checkpointer {
    requests: SyncSender<Waiter>,
    thread: JoinHandle<()>,
    failed: Arc<OnceLock<WriteError>>,
}

impl Checkpointer {
    /// Starts the thread, which owns the connection from then on.
    ///
    /// # Errors
    /// The operating system's error if the thread cannot be started.
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let (requests, inbox) = mpsc::sync_channel(1);
        let failed = Arc::new(OnceLock::new());
        let verdict = Arc::clone(&failed);
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&connection, &inbox, &verdict))?;
        Ok(Self {
            requests,
            thread,
            failed,
        })
    }

    /// Performs the required action. Waits until it is done only for [`Duty::Finish`].
    pub(super) fn perform(&self, duty: Duty) {
        match duty {
            Duty::None => {}
            // If the channel is full, a checkpoint is already requested.
            Duty::Move => drop(self.requests.try_send(None)),
            Duty::Finish => {
                let (done, ended) = mpsc::sync_channel(1);
                if self.requests.send(Some(done)).is_ok() {
                    // An error means that the checkpoint failed. The verdict reports it.
                    let _ = ended.recv();
                }
            }
        }
    }

    /// Returns the fatal error of a checkpoint, if any. After such an error, no checkpoint is made and the writer must
    /// stop.
    pub(super) fn failure(&self) -> Option<WriteError> {
        let ended = || self.thread.is_finished().then(broken);
        self.failed.get().cloned().or_else(ended)
    }

    /// Ends the thread and waits for it.
    ///
    /// # Errors
    /// See [`Self::failure`]. After an error, there must be no other checkpoint.
    pub(super) fn end(self) -> Result<(), WriteError> {
        let Self {
            requests,
            thread,
            failed,
        } = self;
        drop(requests);
        thread.join().map_err(|_| broken())?;
        failed.get().cloned().map_or(Ok(()), Err)
    }
}

/// The error for a panicked thread. The panic was reported where it happened.
fn broken() -> WriteError {
    WriteError::Unknown("the thread that makes checkpoints has ended".to_owned())
}

fn run(connection: &Connection, inbox: &Receiver<Waiter>, verdict: &OnceLock<WriteError>) {
    while let Ok(waiter) = inbox.recv() {
        if let Err(error) = checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)") {
            if is_fatal(&error) {
                // Only this thread sets the verdict.
                let _ = verdict.set(WriteError::Unknown(error.to_string()));
                return;
            }
            tracing::warn!(%error, "a checkpoint failed and will be retried");
        }
        if let Some(waiter) = waiter {
            // The receiver waits for this message.
            let _ = waiter.send(());
        }
    }
}

/// Returns whether an error of a checkpoint is fatal. After an I/O error it is unknown which parts of the database are
/// on the disk. A checkpoint with any other error can be retried.
pub(super) fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_next_to_writer_restarts_log() {
        for (total, unmoved, finished, expected) in [
            (0, 0, 0, Duty::None),
            (CHECKPOINT_FRAMES, CHECKPOINT_FRAMES - 1, 0, Duty::None),
            (CHECKPOINT_FRAMES, CHECKPOINT_FRAMES, 0, Duty::Move),
            (LONG_LOG_FRAMES, FEW_FRAMES + 1, 0, Duty::Move),
            (LONG_LOG_FRAMES, FEW_FRAMES, 0, Duty::Finish),
            (2 * LONG_LOG_FRAMES, LONG_LOG_FRAMES, 0, Duty::Finish),
            // The log grows faster than its frames are moved.
            (20 * LONG_LOG_FRAMES, 10 * LONG_LOG_FRAMES, 0, Duty::Finish),
            // A reader was active when the log was finished.
            (LONG_LOG_FRAMES + 1, 1, LONG_LOG_FRAMES, Duty::None),
            (
                LONG_LOG_FRAMES + CHECKPOINT_FRAMES,
                FEW_FRAMES,
                LONG_LOG_FRAMES,
                Duty::Finish,
            ),
            // The log has restarted since then.
            (LONG_LOG_FRAMES, FEW_FRAMES, 2 * LONG_LOG_FRAMES, Duty::Finish),
        ] {
            let duty = LogLength { total, unmoved }.duty(finished);
            assert_eq!(duty, expected, "{unmoved} of {total}, finished at {finished}");
        }
    }
}
