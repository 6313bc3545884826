//! The contexts in memory. Each one follows the events of its session while it has readers. The cache can be lost at
//! any time: it is computed from the supervisor's log.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use svc_kit::outgoing::Backoff;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};
use tonic::Code;
use troupe_proto::{
    fault,
    reason::Reason,
    supervisor::v1::{Session, WatchThreadsRequest, watch_threads_response::Message},
};

use crate::{
    error::{Error, Kind, Result},
    fold::Fold,
    upstream::Supervisor,
};

/// Number of contexts in memory at which contexts without readers are removed.
const MAX_IDLE: usize = 2_000;
/// Time for which a context is followed after its last reader was dropped.
const LINGER: Duration = Duration::from_secs(5);
/// Maximum time until the events of a session have been read.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(20);
/// Maximum number of streams on a connection to the supervisor, which accepts 1,024.
const STREAMS_PER_CONNECTION: usize = 900;
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// All contexts in memory.
pub(crate) struct Contexts {
    /// One client for each connection. A connection has a maximum number of streams.
    supervisors: Vec<Supervisor>,
    followers: Arc<Semaphore>,
    table: Mutex<HashMap<String, Arc<Context>>>,
    uses: AtomicU64,
}

/// A context in memory.
pub(crate) struct Context {
    session: String,
    root: String,
    state: watch::Sender<View>,
    /// Whether a task follows the session.
    is_followed: Mutex<bool>,
    used: AtomicU64,
}

/// The state of a context for its readers.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub(crate) fold: Arc<Fold>,
    /// Whether the session was deleted.
    pub(crate) is_gone: bool,
}

impl Contexts {
    pub(crate) fn new(supervisors: Vec<Supervisor>) -> Self {
        Self {
            followers: Arc::new(Semaphore::new(supervisors.len() * STREAMS_PER_CONNECTION)),
            supervisors,
            table: Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    fn context(&self, session: &Session) -> Arc<Context> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let use_number = self.uses.fetch_add(1, Ordering::Relaxed);
        if table.len() >= MAX_IDLE && !table.contains_key(&session.session_id) {
            evict(&mut table);
        }
        let context = table.entry(session.session_id.clone()).or_insert_with(|| {
            Arc::new(Context {
                session: session.session_id.clone(),
                root: session.root_thread_id.clone(),
                state: watch::Sender::new(View {
                    fold: Arc::new(Fold::new(&session.root_thread_id)),
                    is_gone: false,
                }),
                is_followed: Mutex::new(false),
                used: AtomicU64::new(use_number),
            })
        });
        context.used.store(use_number, Ordering::Relaxed);
        Arc::clone(context)
    }

    /// Returns a reader that sees at least the events up to `sequence`.
    ///
    /// # Errors
    ///
    /// The session was deleted, the supervisor cannot be reached, or too many sessions are followed.
    pub(crate) async fn read(&self, session: &Session, sequence: u64) -> Result<Reader> {
        let context = self.context(session);
        let mut reader = Reader {
            view: context.state.subscribe(),
        };
        if reader.fold().sequence >= sequence && !reader.view.borrow().is_gone {
            return Ok(reader);
        }
        self.follow(&context)?;
        let reached = reader
            .view
            .wait_for(|view| view.fold.sequence >= sequence || view.is_gone);
        match timeout(CATCH_UP_WITHIN, reached).await {
            Ok(Ok(view)) if !view.is_gone => {}
            Ok(_) => return Err(Error::new(Kind::TaskNotFound, "the context was deleted")),
            Err(_) => {
                return Err(Error::new(
                    Kind::Unavailable,
                    "the supervisor does not answer; try again",
                ));
            }
        }
        Ok(reader)
    }

    /// Returns a reader that receives every change.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub(crate) async fn watch(&self, session: &Session, sequence: u64) -> Result<Reader> {
        let context = self.context(session);
        let reader = self.read(session, sequence).await?;
        // Call `follow` after the subscription, so that the follower sees the reader.
        self.follow(&context)?;
        Ok(reader)
    }

    fn follow(&self, context: &Arc<Context>) -> Result<()> {
        let mut is_followed = context.is_followed.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_followed {
            return Ok(());
        }
        let full = || Error::new(Kind::Overloaded, "too many tasks are watched; try again later");
        let permit = Arc::clone(&self.followers).try_acquire_owned().map_err(|_| full())?;
        let place = self.followers.available_permits() % self.supervisors.len().max(1);
        let supervisor = self.supervisors.get(place).cloned().ok_or_else(full)?;
        *is_followed = true;
        let context = Arc::clone(context);
        tokio::spawn(async move {
            follow(supervisor, context).await;
            drop(permit);
        });
        Ok(())
    }
}

/// Removes the least recently used contexts without readers, at most a tenth of [`MAX_IDLE`].
fn evict(table: &mut HashMap<String, Arc<Context>>) {
    let mut idle: Vec<_> = table
        .values()
        .filter(|context| context.state.receiver_count() == 0)
        .map(|context| (context.used.load(Ordering::Relaxed), context.session.clone()))
        .collect();
    idle.sort_unstable();
    for (_, session) in idle.into_iter().take(MAX_IDLE / 10) {
        table.remove(&session);
    }
}

/// Reads the state of a context.
#[derive(Clone)]
pub(crate) struct Reader {
    view: watch::Receiver<View>,
}

impl Reader {
    pub(crate) fn fold(&self) -> Arc<Fold> {
        Arc::clone(&self.view.borrow().fold)
    }

    /// Waits until the context changes.
    ///
    /// # Errors
    ///
    /// The context was deleted.
    pub(crate) async fn changed(&mut self) -> Result<Arc<Fold>> {
        let gone = || Error::new(Kind::TaskNotFound, "the context was deleted");
        self.view.changed().await.map_err(|_| gone())?;
        let view = self.view.borrow_and_update();
        match view.is_gone {
            true => Err(gone()),
            false => Ok(Arc::clone(&view.fold)),
        }
    }

    /// Marks the current state as seen and returns it.
    pub(crate) fn see(&mut self) -> Arc<Fold> {
        Arc::clone(&self.view.borrow_and_update().fold)
    }
}

/// Follows a session until its context has no readers.
async fn follow(supervisor: Supervisor, context: Arc<Context>) {
    let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    let mut is_broken = false;
    loop {
        let began = Instant::now();
        let ended = tokio::select! {
            ended = stream(&supervisor, &context) => ended,
            () = unread(&context) => {
                let mut is_followed = context.is_followed.lock().unwrap_or_else(PoisonError::into_inner);
                // A reader that came in the meantime relies on this task.
                if context.state.receiver_count() == 0 {
                    *is_followed = false;
                    return;
                }
                continue;
            }
        };
        match ended {
            Ok(()) => {
                backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
                is_broken = false;
            }
            Err(Ended::Gone) => {
                context.state.send_modify(|view| view.is_gone = true);
                let mut is_followed = context.is_followed.lock().unwrap_or_else(PoisonError::into_inner);
                *is_followed = false;
                return;
            }
            Err(Ended::Broken(status)) => {
                if began.elapsed() > LONGEST_RETRY {
                    backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
                    is_broken = false;
                }
                // Log one line for a failure, not one for each attempt.
                if !is_broken {
                    tracing::warn!(session = context.session, code = ?status.code(), message = status.message(), "a context is not up to date");
                }
                is_broken = true;
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Waits until the context has had no reader for a while.
async fn unread(context: &Context) {
    loop {
        context.state.closed().await;
        sleep(LINGER).await;
        if context.state.receiver_count() == 0 {
            return;
        }
    }
}

enum Ended {
    /// The session does not exist.
    Gone,
    Broken(tonic::Status),
}

/// Reads one stream of events. Returns when the server ends it.
async fn stream(supervisor: &Supervisor, context: &Context) -> std::result::Result<(), Ended> {
    let after = context.state.borrow().fold.sequence;
    let request = WatchThreadsRequest {
        session_id: context.session.clone(),
        after_sequence: Some(after),
        ..WatchThreadsRequest::default()
    };
    let broken = |status: tonic::Status| match status.code() {
        Code::NotFound => Ended::Gone,
        Code::OutOfRange => {
            // Tasks before the oldest position were compacted and can no longer be found. A log that is shorter than
            // the position is a different log, for example one restored from a backup, and is read from the start.
            let is_compacted = fault::reason_of(&status) == Some(Reason::HistoryCompacted);
            let oldest = fault::metadata_of(&status)
                .get("oldest")
                .and_then(|text| text.parse().ok());
            let resume = oldest.filter(|_| is_compacted).unwrap_or(0);
            context.state.send_modify(|view| {
                let mut fold = Fold::new(&context.root);
                fold.reach(resume);
                view.fold = Arc::new(fold);
            });
            Ended::Broken(status)
        }
        _ => Ended::Broken(status),
    };
    let mut messages = supervisor
        .clone()
        .watch_threads(request)
        .await
        .map_err(broken)?
        .into_inner();
    while let Some(response) = messages.message().await.map_err(broken)? {
        match response.message {
            Some(Message::Event(event)) => context
                .state
                .send_modify(|view| Arc::make_mut(&mut view.fold).apply(&event)),
            Some(Message::Bookmark(_)) => {
                let sequence = response.sequence;
                context.state.send_if_modified(|view| {
                    let is_news = view.fold.sequence < sequence;
                    if is_news {
                        Arc::make_mut(&mut view.fold).reach(sequence);
                    }
                    is_news
                });
            }
            Some(Message::Reset(_)) => context
                .state
                .send_modify(|view| view.fold = Arc::new(Fold::new(&context.root))),
            Some(Message::Telemetry(_) | Message::Output(_) | Message::Snapshot(_)) | None => {}
        }
    }
    Ok(())
}
