//! The writer: a thread that runs the lanes.

use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

use futures::future::{join_all, try_join_all};
use supervisor_core::ids::SessionId;
use tokio::{runtime, sync::oneshot};

use super::{
    change::{Change, Changed},
    job::{BatchWrite, EntriesWrite, Job, Task},
    lane::{Lane, Shared},
    options::PostgresOptions,
};
use crate::store::{
    batch::{Created, CreationKey},
    error::{Invalid, OpenError, PostgresError, WriteError},
    limits::WRITER_LANES,
    member::MemberId,
    queue::{self, Outcome, Queue},
};

/// The handle of the lanes. Dropping it makes accepted writes durable and joins the thread.
///
/// The lanes run on a separate thread, so that the store can be dropped on any thread, and so that other work of the
/// process does not delay commits.
pub(super) struct Writer {
    queues: Vec<Queue<Job>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Writer {
    /// Starts the thread and connects the lanes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) async fn start(options: Arc<PostgresOptions>, member: MemberId) -> Result<Self, OpenError> {
        let (shared, capacity) = (Arc::<Shared>::default(), queue::capacity());
        let (queues, inboxes): (Vec<_>, Vec<_>) =
            (0..WRITER_LANES).map(|_| queue::channel(Arc::clone(&capacity))).unzip();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (opened, is_open) = oneshot::channel::<Result<(), PostgresError>>();
        let of_lanes = Arc::clone(&shared);
        let work = async move {
            let open = |inbox| Lane::open(Arc::clone(&options), member, inbox, Arc::clone(&of_lanes));
            match try_join_all(inboxes.into_iter().map(open)).await {
                Ok(lanes) => {
                    // The caller may have dropped its receiver. In this case, the queues are closed.
                    let _ = opened.send(Ok(()));
                    join_all(lanes.into_iter().map(Lane::run)).await;
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            }
        };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || runtime.block_on(work))?;
        let writer = Self {
            queues,
            thread: Some(thread),
            shared,
        };
        let gone = |_| PostgresError::Engine(String::from("the writer's thread has ended"));
        is_open.await.map_err(gone)??;
        Ok(writer)
    }

    /// Queues a batch.
    ///
    /// # Errors
    /// See [`Queue::enqueue`].
    pub(super) async fn batch(&self, weight: usize, work: BatchWrite) -> Result<Outcome<Created>, WriteError> {
        let lane = lane_of_batch(&work);
        let job = |reply| Job::Batch(Box::new(Task::new(work, reply)));
        self.queue(lane)?.enqueue(weight, job).await
    }

    /// Queues entries. `weight` is their size in bytes, or the error of invalid entries.
    ///
    /// # Errors
    /// [`WriteError::Invalid`], and the errors of [`Queue::enqueue`].
    pub(super) async fn entries(
        &self,
        weight: Result<usize, Invalid>,
        work: EntriesWrite,
    ) -> Result<Outcome<Option<u64>>, WriteError> {
        let lane = lane_of_session(work.source.session);
        let job = |reply| Job::Entries(Task::new(work, reply));
        self.queue(lane)?.enqueue(weight?, job).await
    }

    /// Queues a change and waits until it is durable.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub(super) async fn change(&self, weight: usize, work: Change) -> Result<Changed, WriteError> {
        let lane = work.session().map_or(0, lane_of_session);
        let job = |reply| Job::Change(Task::new(work, reply));
        queue::outcome(self.queue(lane)?.enqueue(weight, job).await?).await
    }

    /// Makes all accepted writes durable and ends the lanes.
    pub(super) async fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Release);
        join_all(self.queues.iter().map(Queue::close)).await;
    }

    fn queue(&self, lane: usize) -> Result<&Queue<Job>, WriteError> {
        self.queues.get(lane).ok_or(WriteError::Stopped)
    }
}

/// Returns the lane of a session. All writes of a session use the same lane, so that their order is kept.
fn lane_of_session(session: SessionId) -> usize {
    // The last bytes of an id are random.
    let [.., last] = session.as_uuid().into_bytes();
    usize::from(last) % WRITER_LANES
}

/// Returns the lane of a batch. Creations with the same key have the same lane, so that they do not wait for each other
/// in the database. The lane of the session does not matter, because a new session has no other writes yet.
fn lane_of_batch(write: &BatchWrite) -> usize {
    match write.key() {
        Some(CreationKey {
            creator, request_id, ..
        }) => {
            let hash = crc32fast::hash(request_id.as_bytes()) ^ crc32fast::hash(creator.as_bytes());
            usize::from(hash.to_le_bytes()[0]) % WRITER_LANES
        }
        None => lane_of_session(write.batch.session),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.queues.clear();
        if let Some(thread) = self.thread.take() {
            // A panic of a lane was already reported, and the callers received `Unknown`.
            let _ = thread.join();
        }
    }
}
