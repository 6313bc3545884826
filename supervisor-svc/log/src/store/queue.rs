//! The queue of writes for an engine's writer, and the replies to their callers.
//!
//! There is no timer. While one group is committed, the next one accumulates, so a slow disk leads to larger groups.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use opentelemetry::metrics::Histogram;
use svc_kit::instruments::meter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    error::{Refusal, WriteError},
    limits::{MAX_GROUP_BYTES, MAX_GROUP_JOBS, MAX_QUEUE_BYTES, MAX_QUEUE_JOBS},
};

/// A message to a writer.
pub(super) enum Message<J> {
    /// A write.
    Work(J),
    /// A request to the writer to make accepted writes durable and to stop.
    Close(oneshot::Sender<()>),
}

/// The result of a commit group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The group is durable. Every write gets its own result.
    Committed,
    /// The group had no effect. Every write gets this refusal.
    Refused(Refusal),
    /// Every write gets this error, and the writer must stop: the state of the database is unknown.
    Stop(WriteError),
}

/// A queued write. It is answered exactly once, after its group has ended, so that a crash cannot undo the reason for
/// a rejection.
pub(super) trait Queued {
    /// Returns the size of the write in bytes.
    fn weight(&self) -> usize;

    /// Sends the result to the caller.
    fn answer(self, ending: &Ending);
}

/// The reply to a queued write.
pub(super) struct Reply<T> {
    weight: usize,
    sender: oneshot::Sender<Result<T, WriteError>>,
    /// Queue capacity, released when the write is answered.
    _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    /// Creates a reply, and the receiver of its result.
    pub(super) fn new(weight: usize, permit: OwnedSemaphorePermit) -> (Self, Outcome<T>) {
        let (sender, outcome) = oneshot::channel();
        let reply = Self {
            weight,
            sender,
            _permit: permit,
        };
        (reply, outcome)
    }

    /// Returns the size of the write in bytes.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Sends the result to the caller: `outcome` if the group was committed, otherwise the group's error.
    pub(super) fn send(self, outcome: Option<Result<T, WriteError>>, ending: &Ending) {
        let result = match ending {
            Ending::Committed => match outcome {
                Some(outcome) => outcome,
                None => Err(WriteError::Unknown("the write was not processed".to_owned())),
            },
            Ending::Refused(refusal) => Err(WriteError::Refused(refusal.clone())),
            Ending::Stop(error) => Err(error.clone()),
        };
        // The caller may have dropped its receiver.
        let _ = self.sender.send(result);
    }
}

/// The receiver of a write's result.
pub(super) type Outcome<T> = oneshot::Receiver<Result<T, WriteError>>;

/// The sending end of a writer's queue.
pub(super) struct Queue<J> {
    messages: mpsc::Sender<Message<J>>,
    capacity: Arc<Semaphore>,
    closed: Arc<AtomicBool>,
}

/// The receiving end of a writer's queue.
pub(super) struct Inbox<J> {
    messages: mpsc::Receiver<Message<J>>,
    closers: Vec<oneshot::Sender<()>>,
    /// Whether the queue was closed in an orderly way, not by a failure of the writer.
    closed: Arc<AtomicBool>,
}

/// Returns the capacity of a store's queues, in bytes.
pub(super) fn capacity() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_QUEUE_BYTES))
}

/// Creates a queue. The queues of one store share their capacity.
pub(super) fn channel<J>(capacity: Arc<Semaphore>) -> (Queue<J>, Inbox<J>) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUE_JOBS);
    let closed = Arc::new(AtomicBool::new(false));
    let queue = Queue {
        messages: sender,
        capacity,
        closed: Arc::clone(&closed),
    };
    let inbox = Inbox {
        messages: receiver,
        closers: Vec::new(),
        closed,
    };
    (queue, inbox)
}

impl<J> Queue<J> {
    /// Queues a write as soon as there is capacity. The order of the writes is then fixed.
    ///
    /// # Errors
    /// [`WriteError::Refused`] or [`WriteError::Stopped`].
    pub(super) async fn enqueue<T>(
        &self,
        weight: usize,
        job: impl FnOnce(Reply<T>) -> J,
    ) -> Result<Outcome<T>, WriteError> {
        let permits = u32::try_from(weight.clamp(1, MAX_QUEUE_BYTES)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.capacity).acquire_many_owned(permits).await else {
            return Err(self.closed_error());
        };
        let (reply, outcome) = Reply::new(weight, permit);
        if self.messages.send(Message::Work(job(reply))).await.is_err() {
            return Err(self.closed_error());
        }
        Ok(outcome)
    }

    /// Makes all accepted writes durable and ends the writer.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.messages.send(Message::Close(done)).await.is_ok() {
            // An error means that the writer has already stopped.
            let _ = closed.await;
        }
    }

    fn closed_error(&self) -> WriteError {
        if self.closed.load(Ordering::Acquire) {
            WriteError::Refused(Refusal::Closed)
        } else {
            WriteError::Stopped
        }
    }
}

impl<J: Queued> Inbox<J> {
    /// Waits for a message. Returns `None` when the queue is closed or its sending end is gone.
    pub(super) async fn receive(&mut self) -> Option<Message<J>> {
        if self.closers.is_empty() {
            self.messages.recv().await
        } else {
            None
        }
    }

    /// Does the same as [`receive`](Self::receive), but blocks the thread.
    pub(super) fn blocking_receive(&mut self) -> Option<Message<J>> {
        if self.closers.is_empty() {
            self.messages.blocking_recv()
        } else {
            None
        }
    }

    /// Returns the first message's job and the jobs that are ready after it, up to the limits of a group or a close
    /// request.
    pub(super) fn gather(&mut self, first: Message<J>) -> Vec<J> {
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
                    self.closers.push(closer);
                    break;
                }
            }
            if jobs.len() >= MAX_GROUP_JOBS || bytes >= MAX_GROUP_BYTES {
                break;
            }
            next = self.messages.try_recv().ok();
        }
        jobs
    }

    /// Accepts no more jobs and rejects the queued ones. None of them has run.
    pub(super) async fn refuse_rest(&mut self, ending: &Ending) {
        self.shut(ending);
        while let Some(message) = self.messages.recv().await {
            self.refuse(message, ending);
        }
    }

    /// Does the same as [`refuse_rest`](Self::refuse_rest), but blocks the thread.
    pub(super) fn blocking_refuse_rest(&mut self, ending: &Ending) {
        self.shut(ending);
        while let Some(message) = self.messages.blocking_recv() {
            self.refuse(message, ending);
        }
    }

    fn shut(&mut self, ending: &Ending) {
        if *ending == Ending::Refused(Refusal::Closed) {
            self.closed.store(true, Ordering::Release);
        }
        self.messages.close();
    }

    fn refuse(&mut self, message: Message<J>, ending: &Ending) {
        match message {
            Message::Work(job) => job.answer(ending),
            Message::Close(closer) => self.closers.push(closer),
        }
    }

    /// Completes the calls of [`Queue::close`].
    pub(super) fn confirm(self) {
        for closer in self.closers {
            // The caller may have dropped its receiver.
            let _ = closer.send(());
        }
    }
}

/// Waits until queued work is durable.
///
/// # Errors
/// The errors of the work, or [`WriteError::Unknown`].
pub(super) async fn outcome<T>(queued: Outcome<T>) -> Result<T, WriteError> {
    match queued.await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Unknown("the writer ended without an answer".to_owned())),
    }
}

/// Returns the histogram of the duration of commits.
pub(super) fn commit_durations() -> Histogram<f64> {
    meter()
        .f64_histogram("troupe.log.commit.duration")
        .with_unit("s")
        .with_description("Duration of commits of the log, including the flush")
        .build()
}
