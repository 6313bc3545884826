//! A watch of one session: a snapshot or a position, then the log until the watcher has caught up, then new events. A
//! watcher that lags reads from the log again, so it loses no events and does not slow others.

use std::{collections::BTreeSet, convert::Infallible, future::pending, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use supervisor_log::{codec::event::group as event_group, store::EventStore};
use svc_kit::{auth::unauthenticated, identity::ThreadPrincipal};
use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use super::{
    encoded,
    snapshot::{Shown, Snapshots},
};
use crate::{
    convert::{
        Redaction,
        status::{RESUME, fault},
    },
    domain::{
        event::{Event, Recorded, ThreadEvent},
        ids::{Generation, Sequence, ThreadId},
        principal::Caller,
        rejection::Rejection,
        rules::authority,
        state::session::Session,
    },
    engine::{Failure, Handle, read_log},
    projections::{metrics::Metrics, stream_end::StreamEnd, thread_view::ThreadView},
    runners::{OutputBoard, TelemetryBoard},
};

/// Minimum time between two telemetry messages to a watcher.
pub(crate) const TELEMETRY_EVERY: Duration = Duration::from_millis(250);

/// Minimum time between two output messages to a watcher.
pub(crate) const OUTPUT_EVERY: Duration = Duration::from_millis(50);

/// The time limits of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Maximum silence of a stream before it sends a bookmark.
    pub bookmark_every: Duration,
    /// Maximum lifetime of a stream. The caller adds jitter so that streams do not end together.
    pub lifetime: Duration,
    /// How long a stream that ends waits for its reader to take the final status.
    pub flush_timeout: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            bookmark_every: Duration::from_secs(15),
            lifetime: Duration::from_secs(20 * 60),
            // Longer than a drain, so that this limit does not cut off a slow reader before the drain does.
            flush_timeout: Duration::from_secs(10),
        }
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The watch begins with a snapshot.
    Snapshot {
        /// Whether closed threads are included.
        include_closed: bool,
    },
    /// The watch begins with the event after this one.
    After(Sequence),
}

/// The scope of a watch.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The top of the subtree; `None` selects the whole session.
    pub top: Option<ThreadId>,
    /// The kinds of events; empty means all.
    pub kinds: BTreeSet<pb::EventKind>,
    /// The watching thread, if the watcher is a thread. The stream ends when the thread's token becomes stale.
    pub watcher: Option<ThreadPrincipal>,
    /// Which texts are visible.
    pub redaction: Redaction,
    /// Whether the watch includes the output of threads.
    pub output: bool,
}

/// The sources of all watches.
pub struct WatchSources {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// Counts watchers and their delays.
    pub metrics: Arc<Metrics>,
    /// The latest telemetry of running threads.
    pub telemetry: TelemetryBoard,
    /// The output of running threads.
    pub output: OutputBoard,
    /// Threads as clients see them.
    pub view: ThreadView,
    /// Snapshots that watchers share.
    pub snapshots: Snapshots,
}

/// A watch about to run.
pub struct ThreadWatch {
    /// The sources of its messages.
    pub sources: Arc<WatchSources>,
    /// The session.
    pub handle: Handle,
    /// The start position.
    pub position: Position,
    /// Which threads and events are visible.
    pub scope: Scope,
    /// The time limits of the watch.
    pub limits: WatchLimits,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
}

type Outbox = mpsc::Sender<Result<Bytes, Status>>;

impl ThreadWatch {
    /// Runs the watch until it ends.
    pub async fn run(self, outbox: Outbox) {
        let _counted = self.sources.metrics.watching();
        // The watcher's position, once it has one. A part of a snapshot is not a position.
        let mut position = match self.position {
            Position::Snapshot { .. } => None,
            Position::After(after) => Some(after),
        };
        let end = {
            let following = pin!(async {
                tokio::select! {
                    biased;
                    ended = self.follow(&outbox, &mut position) => ended,
                    () = self.overdue() => Err(StreamEnd::Failed(unauthenticated())),
                }
            });
            StreamEnd::of(following, &outbox, self.limits.lifetime, &self.draining).await
        };
        let position = match end {
            StreamEnd::Gone => return,
            StreamEnd::Failed(_) => None,
            StreamEnd::Planned | StreamEnd::Draining => position,
        };
        let flush = async {
            if let Some(position) = position {
                let _ = send(&outbox, position, bookmark(true)).await;
            }
            if let Some(status) = end.status(RESUME) {
                let _ = outbox.send(Err(status)).await;
            }
        };
        // A reader that does not read misses the final status.
        let _ = timeout(self.limits.flush_timeout, flush).await;
    }

    /// Sends the available events, then new ones. Cancel safe: the watcher has received every visible event up to
    /// `position` and none after it.
    async fn follow(&self, outbox: &Outbox, position: &mut Option<Sequence>) -> Result<Infallible, StreamEnd> {
        // Subscribes before the state is read, so that no event is missed between the two.
        let mut feed = self.handle.follow();
        let mut telemetry_seen = 0;
        let position = position.insert(self.begin(outbox).await?);
        self.catch_up(outbox, position).await?;

        let mut idle = interval(self.limits.bookmark_every);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        idle.reset();
        let mut telemetry = self.sources.telemetry.changes(self.handle.id());
        telemetry.mark_changed();
        let mut telemetry_at = Instant::now();
        let mut output_seen = 0;
        let mut output = self.sources.output.changes(self.handle.id());
        output.mark_changed();
        let mut output_at = Instant::now();
        let mut sent_up_to = *position;
        loop {
            tokio::select! {
                biased;
                commit = feed.recv() => {
                    match commit {
                        Ok(commit) => {
                            self.sources.metrics.delivered(commit.published.elapsed());
                            let messages = encoded::events(&commit, self.handle.id(), self.scope.redaction);
                            let before = sent_up_to;
                            self.send_events(outbox, commit.events.iter().zip(messages.iter().cloned()), position, &mut sent_up_to)
                                .await?;
                            // Only sent messages count as activity. Events outside the scope do not.
                            if sent_up_to > before {
                                idle.reset();
                            }
                        }
                        Err(RecvError::Lagged(_)) => {
                            self.sources.metrics.lagged();
                            self.catch_up(outbox, position).await?;
                        }
                        // The actor ended. The client locates the session again.
                        Err(RecvError::Closed) => return Err(StreamEnd::Planned),
                    }
                    self.check_watcher()?;
                }
                () = changed_at(&mut telemetry, telemetry_at) => {
                    self.send_telemetry(outbox, &mut telemetry_seen).await?;
                    telemetry_at = Instant::now() + TELEMETRY_EVERY;
                }
                () = changed_at(&mut output, output_at), if self.scope.output => {
                    self.send_output(outbox, &mut output_seen).await?;
                    output_at = Instant::now() + OUTPUT_EVERY;
                }
                _ = idle.tick() => send(outbox, *position, bookmark(false)).await?,
            }
        }
    }

    /// Sends the start of the watch and returns the watcher's position after it.
    async fn begin(&self, outbox: &Outbox) -> Result<Sequence, StreamEnd> {
        match self.position {
            Position::Snapshot { include_closed } => {
                let (sequence, parts) = self.snapshot(include_closed);
                for part in parts.iter() {
                    outbox.send(Ok(part.clone())).await.map_err(|_| StreamEnd::Gone)?;
                }
                Ok(sequence)
            }
            Position::After(after) => {
                let head = self.handle.state().sequence;
                if after <= head {
                    return Ok(after);
                }
                let log = self.sources.store.head(self.handle.id()).await;
                let log = log.map_err(Failure::from)?;
                let ahead = Rejection::AheadOfHead {
                    after,
                    oldest: log.map_or(Sequence::ZERO, |log| log.oldest),
                    head,
                };
                Err(StreamEnd::Failed(fault(&ahead).into()))
            }
        }
    }

    /// Sends the log from the position to its end.
    async fn catch_up(&self, outbox: &Outbox, position: &mut Sequence) -> Result<(), StreamEnd> {
        let store = &self.sources.store;
        // Read only published records. A record may be durable shortly before it is published.
        let until = self.handle.state().sequence;
        let mut sent_up_to = *position;
        loop {
            let events = read_log(store.as_ref(), self.handle.id(), *position, until).await?;
            if events.is_empty() {
                break;
            }
            let messages = events
                .iter()
                .map(|recorded| encoded::event(self.handle.id(), recorded, self.scope.redaction));
            self.send_events(outbox, events.iter().zip(messages), position, &mut sent_up_to)
                .await?;
        }
        if sent_up_to < *position {
            send(outbox, *position, bookmark(false)).await?;
        }
        Ok(())
    }

    async fn send_events<'e>(
        &self,
        outbox: &Outbox,
        events: impl Iterator<Item = (&'e Recorded, Bytes)>,
        position: &mut Sequence,
        sent_up_to: &mut Sequence,
    ) -> Result<(), StreamEnd> {
        for (recorded, message) in events {
            if recorded.sequence <= *position {
                continue;
            }
            if self.shows(&recorded.event) {
                outbox.send(Ok(message)).await.map_err(|_| StreamEnd::Gone)?;
                *sent_up_to = recorded.sequence;
            }
            *position = recorded.sequence;
        }
        Ok(())
    }

    /// Returns whether an event is in the scope. A subtree's watcher also learns that an ancestor is fenced or
    /// interrupted.
    fn shows(&self, event: &Event) -> bool {
        let wanted = self.scope.kinds.is_empty() || self.scope.kinds.contains(&event_group(event));
        let Some(top) = self.scope.top else { return wanted };
        let within = match event {
            Event::Session(_) => true,
            Event::Thread(id, event) => {
                let session = self.handle.state();
                let reaches_down = matches!(
                    event,
                    ThreadEvent::CloseRequested(_) | ThreadEvent::InterruptRequested { .. }
                );
                session.is_within(*id, top) || (reaches_down && session.is_within(top, *id))
            }
        };
        wanted && within
    }

    /// Returns a snapshot and the sequence number of the last event that it includes. The underlying state is not
    /// retained while the snapshot is sent.
    fn snapshot(&self, include_closed: bool) -> (Sequence, Arc<[Bytes]>) {
        let state = self.handle.state();
        let shown = Shown {
            top: self.scope.top,
            include_closed,
            redaction: self.scope.redaction,
        };
        let log_id = self.sources.store.log_id().to_string();
        let parts = self.sources.snapshots.of(&log_id, &self.sources.view, &state, shown);
        (state.sequence, parts)
    }

    /// Returns whether a thread is in the scope.
    fn covers(&self, thread: ThreadId) -> bool {
        let top = self.scope.top;
        top.is_none_or(|top| self.handle.state().is_within(thread, top))
    }

    async fn send_telemetry(&self, outbox: &Outbox, seen: &mut u64) -> Result<(), StreamEnd> {
        let (newest, changed) = self.sources.telemetry.since(self.handle.id(), *seen);
        *seen = newest;
        for (thread, values) in changed {
            if self.covers(thread) {
                let mut values = pb::Telemetry::clone(&values);
                self.scope.redaction.tool_use(&mut values.last_tool);
                send(outbox, Sequence::ZERO, Message::Telemetry(values)).await?;
            }
        }
        Ok(())
    }

    async fn send_output(&self, outbox: &Outbox, seen: &mut u64) -> Result<(), StreamEnd> {
        let (newest, pieces) = self.sources.output.since(self.handle.id(), *seen);
        *seen = newest;
        for piece in pieces {
            if self.covers(piece.thread) {
                let chunk = pb::ThreadOutputChunk {
                    thread_id: piece.thread.to_string(),
                    generation: piece.generation.get(),
                    text: piece.text.to_string(),
                };
                send(outbox, Sequence::ZERO, Message::Output(chunk)).await?;
            }
        }
        Ok(())
    }

    /// Fails if a watching thread's token is stale: a thread's stream must not outlive its token.
    fn check_watcher(&self) -> Result<(), StreamEnd> {
        match &self.scope.watcher {
            Some(watcher) if is_stale(watcher, &self.handle.state()) => Err(StreamEnd::Failed(unauthenticated())),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until a watching thread's token is stale, and then for the time that a reader may need to take the events
    /// that report this. A reader that keeps up receives these events, and [`Self::check_watcher`] ends its stream.
    async fn overdue(&self) {
        let Some(watcher) = &self.scope.watcher else {
            return pending().await;
        };
        let mut states = self.handle.states();
        if states.wait_for(|session| is_stale(watcher, session)).await.is_err() {
            // The actor has ended, and so has the feed. The stream ends as planned.
            pending::<()>().await;
        }
        sleep(self.limits.flush_timeout).await;
    }
}

/// Returns whether the identity under which the thread's stream began is no longer valid.
fn is_stale(watcher: &ThreadPrincipal, session: &Session) -> bool {
    let caller = Caller::Thread {
        id: ThreadId::from_uuid(watcher.thread),
        generation: Generation::new(watcher.generation),
    };
    authority::fresh(session, &caller).is_err()
}

/// Waits for a change, and then until the given time.
async fn changed_at(changes: &mut tokio::sync::watch::Receiver<()>, at: Instant) {
    match changes.has_changed() {
        Ok(true) => {}
        Ok(false) if changes.changed().await.is_ok() => {
            // This wait may be cancelled by another event, so the change stays marked until it is sent.
            changes.mark_changed();
        }
        // The session's values were removed. The stream ends for another reason.
        Ok(false) | Err(_) => pending().await,
    }
    sleep_until(at).await;
    changes.mark_unchanged();
}

async fn send(outbox: &Outbox, sequence: Sequence, message: Message) -> Result<(), StreamEnd> {
    let message = encoded::encode(sequence, message);
    outbox.send(Ok(message)).await.map_err(|_| StreamEnd::Gone)
}

const fn bookmark(ending: bool) -> Message {
    Message::Bookmark(pb::Bookmark { ending })
}
