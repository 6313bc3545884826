//! Moves the write-ahead log into the database beside the writer, which would stand still meanwhile if it did so itself.
//!
//! One thread makes every checkpoint but the last. The engine reuses the log once all of it was moved and the database was
//! flushed, and a flush that follows a failed one proves nothing: so after a failure there is no other one.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, ErrorCode};

use super::{
    error::WriteError,
    limits::{CHECKPOINT_FRAMES, FEW_FRAMES, LONG_LOG_FRAMES},
};

/// How long the log is, in frames of a page each.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLength {
    /// All that it holds.
    pub total: i64,
    /// What of it is not in the database yet.
    pub unmoved: i64,
}

/// What is to be done about a log of some length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing.
    None,
    /// Move it beside the writer.
    Move,
    /// Move the rest while nothing is written, so that the log begins anew: it never does while it grows.
    Finish,
}

impl LogLength {
    /// Reads it, and moves nothing.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn of(connection: &Connection) -> Result<Self, rusqlite::Error> {
        checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")
    }

    /// What is due now. `finished` is how long the log was when it was finished last: whoever reads keeps it from beginning
    /// anew, and until it has grown by some there is no use in trying again.
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

/// Runs the statement and returns what it says of the log.
pub(super) fn checkpoint(connection: &Connection, sql: &str) -> Result<LogLength, rusqlite::Error> {
    connection.prepare_cached(sql)?.query_row([], |row| {
        let (total, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(LogLength {
            total,
            unmoved: total - moved,
        })
    })
}

/// Who waits for the end of a checkpoint; nobody where it is made beside the writer.
type Waiter = Option<SyncSender<()>>;

/// The way to the thread, which ends when this is dropped.
pub(super) struct Checkpointer {
    asks: SyncSender<Waiter>,
    thread: JoinHandle<()>,
    failed: Arc<OnceLock<WriteError>>,
}

impl Checkpointer {
    /// Starts the thread, which owns the connection from then on.
    ///
    /// # Errors
    /// The operating system's, if it starts no thread.
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let (asks, inbox) = mpsc::sync_channel(1);
        let failed = Arc::new(OnceLock::new());
        let verdict = Arc::clone(&failed);
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&connection, &inbox, &verdict))?;
        Ok(Self { asks, thread, failed })
    }

    /// Does what is due, and waits for it only where that is what is due.
    pub(super) fn perform(&self, duty: Duty) {
        match duty {
            Duty::None => {}
            // Without room for it one is asked for already.
            Duty::Move => drop(self.asks.try_send(None)),
            Duty::Finish => {
                let (done, ended) = mpsc::sync_channel(1);
                if self.asks.send(Some(done)).is_ok() {
                    // An error means that it failed, which its verdict says.
                    let _ = ended.recv();
                }
            }
        }
    }

    /// Why there will be no further checkpoint, if there will be none: the writer must stop then.
    pub(super) fn failure(&self) -> Option<WriteError> {
        let ended = || self.thread.is_finished().then(broken);
        self.failed.get().cloned().or_else(ended)
    }

    /// Ends the thread, and waits for it.
    ///
    /// # Errors
    /// See [`Self::failure`]: then there must be no other checkpoint.
    pub(super) fn end(self) -> Result<(), WriteError> {
        let Self { asks, thread, failed } = self;
        drop(asks);
        thread.join().map_err(|_| broken())?;
        failed.get().cloned().map_or(Ok(()), Err)
    }
}

/// It panicked, which was reported where it happened.
fn broken() -> WriteError {
    WriteError::Unknown("the thread that makes checkpoints has ended".to_owned())
}

fn run(connection: &Connection, inbox: &Receiver<Waiter>, verdict: &OnceLock<WriteError>) {
    while let Ok(waiter) = inbox.recv() {
        if let Err(error) = checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)") {
            if is_fatal(&error) {
                // It is the only one to say so.
                let _ = verdict.set(WriteError::Unknown(error.to_string()));
                return;
            }
            tracing::warn!(%error, "a checkpoint failed and is tried again");
        }
        if let Some(waiter) = waiter {
            // It waits for this.
            let _ = waiter.send(());
        }
    }
}

/// An I/O error of a checkpoint leaves in doubt what of the database is on the disk. Anything else can be tried again.
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
    fn a_log_is_moved_beside_the_writer_and_begun_anew_when_that_takes_little() {
        for (total, unmoved, finished, expected) in [
            (0, 0, 0, Duty::None),
            (CHECKPOINT_FRAMES, CHECKPOINT_FRAMES - 1, 0, Duty::None),
            (CHECKPOINT_FRAMES, CHECKPOINT_FRAMES, 0, Duty::Move),
            (LONG_LOG_FRAMES, FEW_FRAMES + 1, 0, Duty::Move),
            (LONG_LOG_FRAMES, FEW_FRAMES, 0, Duty::Finish),
            (2 * LONG_LOG_FRAMES, LONG_LOG_FRAMES, 0, Duty::Finish),
            // It grows faster than it is moved.
            (20 * LONG_LOG_FRAMES, 10 * LONG_LOG_FRAMES, 0, Duty::Finish),
            // Somebody read it when it was finished.
            (LONG_LOG_FRAMES + 1, 1, LONG_LOG_FRAMES, Duty::None),
            (
                LONG_LOG_FRAMES + CHECKPOINT_FRAMES,
                FEW_FRAMES,
                LONG_LOG_FRAMES,
                Duty::Finish,
            ),
            // It has begun anew since then.
            (LONG_LOG_FRAMES, FEW_FRAMES, 2 * LONG_LOG_FRAMES, Duty::Finish),
        ] {
            let duty = LogLength { total, unmoved }.duty(finished);
            assert_eq!(duty, expected, "{unmoved} of {total}, finished at {finished}");
        }
    }
}
