//! One notification stream: first the notifications that the client missed, then new ones. The cursor is stored after
//! the transport has taken a message, so a broken stream loses nothing. At worst, a notification is delivered twice.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use supervisor_log::store::EventStore;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::clients::Client;
use crate::{
    convert::{self, status::RESUME},
    domain::{event::Recorded, ids::Sequence, rules::notify::Notification, state::session::Session},
    engine::{Failure, Handle, Tail},
    projections::stream_end::StreamEnd,
};

/// Maximum number of unread notifications before a stream waits for its client.
pub const OUTBOX: usize = 64;

/// Minimum time between two writes of a stream's position.
const SAVE_EVERY: Duration = Duration::from_secs(1);

type Outbox = mpsc::Sender<Result<pb::WatchNotificationsResponse, Status>>;

/// A stream about to run.
pub struct NotificationStream {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// The session.
    pub handle: Handle,
    /// The watching client.
    pub client: Arc<Client>,
    /// The position after which the stream starts.
    pub after: Sequence,
    /// Whether notifications include texts of agents and callers.
    pub details: bool,
    /// Maximum lifetime of the stream.
    pub lifetime: Duration,
    /// Maximum time that an ending stream waits for the client to take the sent messages.
    pub flush_timeout: Duration,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
}

/// The progress of a stream.
struct Progress {
    /// The last event that was processed, and sent if it causes a notification.
    position: Sequence,
    /// The position before the first message that the transport may not have taken yet.
    unread_after: Option<Sequence>,
}

impl Progress {
    /// Returns the position up to which the client has received all notifications.
    fn safe(&self) -> Sequence {
        self.unread_after.unwrap_or(self.position)
    }
}

impl NotificationStream {
    /// Runs the stream until it ends.
    pub async fn run(self, outbox: Outbox) {
        let mut progress = Progress {
            position: self.after,
            unread_after: None,
        };
        let end = {
            let following = pin!(self.follow(&outbox, &mut progress));
            StreamEnd::of(following, &outbox, self.lifetime, &self.draining).await
        };
        let is_open = !matches!(end, StreamEnd::Gone);
        if is_open
            && timeout(self.flush_timeout, all_taken(&outbox))
                .await
                .unwrap_or_default()
        {
            progress.unread_after = None;
        }
        self.save(&progress).await;
        if let Some(status) = end.status(RESUME) {
            // A client that has read everything has room for the status. A client that does not read misses it.
            let _ = outbox.try_send(Err(status));
        }
    }

    async fn follow(&self, outbox: &Outbox, progress: &mut Progress) -> Result<Infallible, StreamEnd> {
        let mut tail = Tail::after(Arc::clone(&self.store), self.handle.clone(), self.after);
        let mut save_at = Instant::now();
        loop {
            let taken = async move {
                sleep_until(save_at).await;
                all_taken(outbox).await
            };
            tokio::select! {
                biased;
                taken = taken, if progress.unread_after.is_some() => {
                    if taken {
                        progress.unread_after = None;
                        self.save(progress).await;
                        save_at = Instant::now() + SAVE_EVERY;
                    }
                }
                events = tail.next() => match events {
                    Ok(events) => self.send(outbox, &events, progress).await?,
                    Err(Failure::Gone | Failure::Elsewhere { .. }) => return Err(StreamEnd::Planned),
                    Err(failure) => return Err(failure.into()),
                },
            }
        }
    }

    async fn send(&self, outbox: &Outbox, events: &[Recorded], progress: &mut Progress) -> Result<(), StreamEnd> {
        let session = self.handle.state();
        for recorded in events {
            if let Some(message) = self.message(&session, recorded).await {
                outbox.send(Ok(message)).await.map_err(|_| StreamEnd::Gone)?;
                // The sent message and the progress change together: there is no await between them.
                progress.unread_after.get_or_insert(progress.position);
            }
            progress.position = recorded.sequence;
        }
        Ok(())
    }

    /// Builds the client's notification for an event. Returns `None` if the event causes no notification or the client
    /// does not want it.
    async fn message(&self, session: &Session, recorded: &Recorded) -> Option<pb::WatchNotificationsResponse> {
        let notification = Notification::of(session, recorded)?;
        let kinds = self.client.attention().await.kinds_of(&notification)?;
        let notification = convert::notify::notification_to_pb(session.id, &notification, &kinds, self.details);
        Some(pb::WatchNotificationsResponse {
            notification: Some(notification),
        })
    }

    /// Stores the client's progress. A failed write only causes a repeated notification.
    async fn save(&self, progress: &Progress) {
        let safe = progress.safe();
        let saved = self
            .client
            .update(safe, |state| state.sequence = state.sequence.max(safe))
            .await;
        if let Err(failure) = saved {
            tracing::warn!(session = %self.handle.id(), %failure, "a client's position was not stored");
        }
    }
}

/// Waits until the transport has taken all sent messages. Returns false if the client disconnected.
async fn all_taken(outbox: &Outbox) -> bool {
    outbox.reserve_many(outbox.max_capacity()).await.is_ok()
}
