//! The writer thread: it takes the ready writes, commits them as one group, and then answers them all.
//!
//! There is no timer. While one group is committed, the next one accumulates, so a slow disk leads to larger groups.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use opentelemetry::metrics::Histogram;
use rusqlite::Connection;
use svc_kit::instruments::meter;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    checkpointer::{Checkpointer, Duty, LogLength, checkpoint, is_fatal},
    group::{self, Ending, Failure, Job, Task},
    reserve::Reserve,
};
use crate::store::{
    error::{Refusal, WriteError},
    limits::{MAX_GROUP_BYTES, MAX_GROUP_JOBS, MAX_QUEUE_BYTES, MAX_QUEUE_JOBS},
};

enum Message {
    Work(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// The way to the writer's thread. Dropping it makes durable what was accepted and joins the thread.
pub(super) struct Writer {
    /// `None` only while the writer is dropped.
    messages: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    room: Arc<Semaphore>,
    closed: Arc<AtomicBool>,
}

impl Writer {
    /// Starts the thread, which owns the connection and its checkpoints from then on.
    ///
    /// # Errors
    /// The operating system's, if it starts no thread.
    pub(super) fn start(
        connection: Connection,
        checkpointer: Checkpointer,
        reserve: Arc<Reserve>,
    ) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel(MAX_QUEUE_JOBS);
        let closed = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            connection,
            checkpointer,
            finished: 0,
            inbox,
            closed: Arc::clone(&closed),
            reserve,
            commits: meter()
                .f64_histogram("troupe.log.commit.duration")
                .with_unit("s")
                .with_description("How long commits of the log take, their flush included")
                .build(),
        };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || worker.run())?;
        let room = Arc::new(Semaphore::new(MAX_QUEUE_BYTES));
        Ok(Self {
            messages: Some(messages),
            thread: Some(thread),
            room,
            closed,
        })
    }

    /// Runs the work inside a commit group and waits until it is durable. Waits for queue capacity first.
    ///
    /// # Errors
    /// The work's own, or [`WriteError::Refused`], [`WriteError::Stopped`] or [`WriteError::Unknown`].
    pub(super) async fn submit<T, E, F>(&self, weight: usize, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<WriteError> + Send + 'static,
        F: Fn(&Connection) -> Result<T, Failure<E>> + Send + 'static,
    {
        outcome(self.enqueue(weight, work).await?).await
    }

    /// Does the same as [`submit`](Self::submit), but completes when the work has its place in the queue. See
    /// [`outcome`].
    ///
    /// # Errors
    /// [`WriteError::Refused`] or [`WriteError::Stopped`].
    pub(super) async fn enqueue<T, E, F>(&self, weight: usize, work: F) -> Result<oneshot::Receiver<Result<T, E>>, E>
    where
        T: Send + 'static,
        E: From<WriteError> + Send + 'static,
        F: Fn(&Connection) -> Result<T, Failure<E>> + Send + 'static,
    {
        let room = u32::try_from(weight.clamp(1, MAX_QUEUE_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(room).await else {
            return Err(E::from(self.why_gone()));
        };
        let Some(messages) = &self.messages else {
            return Err(E::from(self.why_gone()));
        };
        let (reply, answer) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Task::new(work, weight, reply, room));
        if messages.send(Message::Work(job)).await.is_err() {
            return Err(E::from(self.why_gone()));
        }
        Ok(answer)
    }

    /// Makes all accepted writes durable and ends the thread.
    pub(super) async fn close(&self) {
        let Some(messages) = &self.messages else { return };
        let (done, closed) = oneshot::channel();
        if messages.send(Message::Close(done)).await.is_ok() {
            // An error means that the thread has ended in another way, which is as good.
            let _ = closed.await;
        }
    }

    fn why_gone(&self) -> WriteError {
        if self.closed.load(Ordering::Acquire) {
            WriteError::Refused(Refusal::Closed)
        } else {
            WriteError::Stopped
        }
    }
}

/// Waits until queued work is durable.
///
/// # Errors
/// The work's own, or [`WriteError::Unknown`].
pub(super) async fn outcome<T, E: From<WriteError>>(queued: oneshot::Receiver<Result<T, E>>) -> Result<T, E> {
    match queued.await {
        Ok(result) => result,
        Err(_) => Err(E::from(WriteError::Unknown(
            "the writer ended without an answer".to_owned(),
        ))),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.messages.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was reported where it happened; the callers got `Unknown`.
            let _ = thread.join();
        }
    }
}

struct Worker {
    connection: Connection,
    checkpointer: Checkpointer,
    /// Length of the log when it was last finished. Zero once the log has restarted.
    finished: i64,
    inbox: mpsc::Receiver<Message>,
    /// Tells an orderly end from a stop after a failure.
    closed: Arc<AtomicBool>,
    reserve: Arc<Reserve>,
    /// Duration of commits.
    commits: Histogram<f64>,
}

impl Worker {
    fn run(mut self) {
        let mut closers = Vec::new();
        while closers.is_empty() {
            let Some(first) = self.inbox.blocking_recv() else { break };
            let mut jobs = self.gather(first, &mut closers);
            if let Some(error) = self.commit(&mut jobs).or_else(|| self.checkpoint_if_due()) {
                tracing::error!(%error, "the store stops writing; the process must end and replay");
                self.refuse_rest(&Ending::Stop(WriteError::Stopped), &mut closers);
                return;
            }
        }
        self.closed.store(true, Ordering::Release);
        self.refuse_rest(&Ending::Refused(Refusal::Closed), &mut closers);
        self.finish();
        for closer in closers {
            // The caller may have dropped its receiver.
            let _ = closer.send(());
        }
    }

    /// Returns the first message's job and the jobs that are ready after it, up to the limits of a group or a close
    /// request.
    fn gather(&mut self, first: Message, closers: &mut Vec<oneshot::Sender<()>>) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        let mut bytes = 0_usize;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Work(job) => {
                    bytes = bytes.saturating_add(job.weight());
                    jobs.push(job);
                }
                Message::Close(closer) => {
                    closers.push(closer);
                    break;
                }
            }
            if jobs.len() >= MAX_GROUP_JOBS || bytes >= MAX_GROUP_BYTES {
                break;
            }
            next = self.inbox.try_recv().ok();
        }
        jobs
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
            // Before the replies, so that a caller that retries finds the space.
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

    /// Accepts no more jobs and rejects the queued ones. None of them has run.
    fn refuse_rest(&mut self, ending: &Ending, closers: &mut Vec<oneshot::Sender<()>>) {
        self.inbox.close();
        while let Some(message) = self.inbox.blocking_recv() {
            match message {
                Message::Work(job) => job.answer(ending),
                Message::Close(closer) => closers.push(closer),
            }
        }
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
    }
}
