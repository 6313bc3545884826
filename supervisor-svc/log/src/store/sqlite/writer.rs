//! The writer thread. It takes all queued writes, commits them as one group, and then replies to their callers.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use opentelemetry::metrics::Histogram;
use rusqlite::Connection;

use super::{
    checkpointer::{Checkpointer, Duty, LogLength, checkpoint, is_fatal},
    group::{self, Failure, Job, Task},
    reserve::Reserve,
};
use crate::store::{
    error::{Invalid, Refusal, WriteError},
    queue::{self, Ending, Inbox, Outcome, Queue, outcome},
};

/// The handle of the writer's thread. Dropping it makes accepted writes durable and joins the thread.
pub(super) struct Writer {
    /// `None` only while the writer is dropped.
    queue: Option<Queue<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread, which owns the connection and its checkpoints from then on.
    ///
    /// # Errors
    /// The operating system's error if the thread cannot be started.
    pub(super) fn start(
        connection: Connection,
        checkpointer: Checkpointer,
        reserve: Arc<Reserve>,
    ) -> std::io::Result<Self> {
        let (queue, inbox) = queue::channel(queue::capacity());
        let worker = Worker {
            connection,
            checkpointer,
            finished: 0,
            inbox,
            reserve,
            commits: queue::commit_durations(),
        };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Runs the work inside a commit group and waits until it is durable. Waits for queue capacity first. `weight` is
    /// the size of the write in bytes, or the error of an invalid write.
    ///
    /// # Errors
    /// The errors of the work, or [`WriteError::Invalid`], [`WriteError::Refused`], [`WriteError::Stopped`] or
    /// [`WriteError::Unknown`].
    pub(super) async fn submit<T, F>(&self, weight: Result<usize, Invalid>, work: F) -> Result<T, WriteError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        outcome(self.enqueue(weight, work).await?).await
    }

    /// Does the same as [`submit`](Self::submit), but completes when the work is queued. See [`outcome`].
    ///
    /// # Errors
    /// [`WriteError::Invalid`], [`WriteError::Refused`] or [`WriteError::Stopped`].
    pub(super) async fn enqueue<T, F>(&self, weight: Result<usize, Invalid>, work: F) -> Result<Outcome<T>, WriteError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let Some(queue) = &self.queue else {
            return Err(WriteError::Stopped);
        };
        let job = |reply| -> Box<dyn Job> { Box::new(Task::new(work, reply)) };
        queue.enqueue(weight?, job).await
    }

    /// Makes all accepted writes durable and ends the thread.
    pub(super) async fn close(&self) {
        if let Some(queue) = &self.queue {
            queue.close().await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was already reported, and the callers received `Unknown`.
            let _ = thread.join();
        }
    }
}

struct Worker {
    connection: Connection,
    checkpointer: Checkpointer,
    /// Length of the log at the last [`Duty::Finish`]. Zero once the log has restarted.
    finished: i64,
    inbox: Inbox<Box<dyn Job>>,
    reserve: Arc<Reserve>,
    /// Duration of commits.
    commits: Histogram<f64>,
}

impl Worker {
    fn run(mut self) {
        while let Some(first) = self.inbox.blocking_receive() {
            let mut jobs = self.inbox.gather(first);
            if let Some(error) = self.commit(&mut jobs).or_else(|| self.checkpoint_if_due()) {
                tracing::error!(%error, "the store stopped writing; the process must exit and replay the log");
                self.inbox.blocking_refuse_rest(&Ending::Stop(WriteError::Stopped));
                return;
            }
        }
        self.inbox.blocking_refuse_rest(&Ending::Refused(Refusal::Closed));
        self.finish();
    }

    /// Commits and answers a group. Returns an error if the writer must stop.
    fn commit(&self, jobs: &mut Vec<Box<dyn Job>>) -> Option<WriteError> {
        if jobs.is_empty() {
            return None;
        }
        if let Some(error) = self.checkpointer.failure() {
            for job in jobs.drain(..) {
                job.answer(&Ending::Stop(WriteError::Stopped));
            }
            return Some(error);
        }
        self.reserve.restore();
        let begun = Instant::now();
        let ending = group::commit(&self.connection, jobs);
        self.commits.record(begun.elapsed().as_secs_f64(), &[]);
        if ending == Ending::Refused(Refusal::DiskFull) {
            // The reserve is released before the replies, so that a caller that retries has the space.
            self.reserve.release();
        }
        for job in jobs.drain(..) {
            job.answer(&ending);
        }
        match ending {
            Ending::Committed => None,
            Ending::Refused(refusal) => {
                tracing::warn!(%refusal, "a commit group was refused");
                None
            }
            Ending::Stop(error) => Some(error),
        }
    }

    /// Checkpoints the write-ahead log once it is long enough. The engine's automatic checkpoints hide a failed fsync,
    /// after which the log must not be reused.
    fn checkpoint_if_due(&mut self) -> Option<WriteError> {
        match LogLength::of(&self.connection) {
            Ok(length) => {
                if length.total < self.finished {
                    self.finished = 0;
                }
                let duty = length.duty(self.finished);
                self.checkpointer.perform(duty);
                if duty == Duty::Finish {
                    self.finished = length.total;
                }
            }
            Err(error) if is_fatal(&error) => return Some(WriteError::Unknown(error.to_string())),
            Err(error) => tracing::warn!(%error, "the length of the log could not be read"),
        }
        self.checkpointer.failure()
    }

    /// Truncates the log, so that the next start is quick. The durability of acknowledged writes does not depend on
    /// it.
    fn finish(self) {
        let ended = self.checkpointer.end().map_err(|error| error.to_string());
        let truncate =
            |()| checkpoint(&self.connection, "PRAGMA wal_checkpoint(TRUNCATE)").map_err(|error| error.to_string());
        if let Err(error) = ended.and_then(truncate) {
            tracing::warn!(error, "the last checkpoint failed");
        }
        self.inbox.confirm();
    }
}
