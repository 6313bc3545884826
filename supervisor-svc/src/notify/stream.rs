//! One stream of notifications: what the client missed, then what comes. How far it has come is written down once the
//! transport has taken what was sent, so that nothing is lost with a stream that breaks; at worst it is told again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::clients::Client;
use crate::{
    domain::{event::Recorded, ids::Sequence, notify::Notification, session::Session},
    session::{Failure, Handle},
    store::EventStore,
    watch::{RESUME, Tail, draining},
    wire,
};

/// How many notifications a client may leave unread before its stream waits for it.
pub const OUTBOX: usize = 64;

/// How often a stream's position is written down at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);

type Outbox = mpsc::Sender<Result<pb::WatchNotificationsResponse, Status>>;

/// A stream about to run.
pub struct NotificationStream {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// The session.
    pub handle: Handle,
    /// Who watches.
    pub client: Arc<Client>,
    /// Where it begins.
    pub after: Sequence,
    /// Whether it shows what agents and callers wrote.
    pub details: bool,
    /// How long it lives.
    pub lifetime: Duration,
    /// How long it waits at its end for the client to take what was sent.
    pub last_word: Duration,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
}

/// How far a stream has come.
struct Progress {
    /// The last event that was looked at, and told if there was something to tell.
    position: Sequence,
    /// The position before the first message that the transport may not have taken yet.
    unread_after: Option<Sequence>,
}

impl Progress {
    /// The position up to which the client needs no telling any more.
    fn safe(&self) -> Sequence {
        self.unread_after.unwrap_or(self.position)
    }
}

/// Why a stream ended.
enum End {
    /// The client is gone.
    Gone,
    /// As planned; the client watches again.
    Planned,
    /// With this error.
    Failed(Status),
}

impl NotificationStream {
    /// Runs the stream until it ends.
    pub async fn run(self, outbox: Outbox) {
        let mut progress = Progress {
            position: self.after,
            unread_after: None,
        };
        // Whatever ends a stream ends it while it waits for its client, too.
        let end = tokio::select! {
            biased;
            () = self.draining.cancelled() => End::Failed(draining(RESUME)),
            () = outbox.closed() => End::Gone,
            () = sleep(self.lifetime) => End::Planned,
            ended = self.follow(&outbox, &mut progress) => match ended {
                Ok(never) => match never {},
                Err(end) => end,
            },
        };
        let is_open = !matches!(end, End::Gone);
        if is_open && timeout(self.last_word, all_taken(&outbox)).await.unwrap_or_default() {
            progress.unread_after = None;
        }
        self.save(&progress).await;
        if let End::Failed(status) = end {
            // Who took everything has room for it; who takes nothing is left without it.
            let _ = outbox.try_send(Err(status));
        }
    }

    async fn follow(&self, outbox: &Outbox, progress: &mut Progress) -> Result<Infallible, End> {
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
                    Err(Failure::Gone) => return Err(End::Planned),
                    Err(failure) => return Err(End::Failed(failure.into())),
                },
            }
        }
    }

    async fn send(&self, outbox: &Outbox, events: &[Recorded], progress: &mut Progress) -> Result<(), End> {
        let session = self.handle.state();
        for recorded in events {
            if let Some(message) = self.message(&session, recorded).await {
                outbox.send(Ok(message)).await.map_err(|_| End::Gone)?;
                // What was sent and what is known of it change together: nothing is awaited between them.
                progress.unread_after.get_or_insert(progress.position);
            }
            progress.position = recorded.sequence;
        }
        Ok(())
    }

    /// What the client is told of an event, if it wants to be told.
    async fn message(&self, session: &Session, recorded: &Recorded) -> Option<pb::WatchNotificationsResponse> {
        let notification = Notification::of(session, recorded)?;
        let kinds = self.client.attention().await.kinds_of(&notification)?;
        let notification = wire::notify::notification_to_pb(session.id, &notification, &kinds, self.details);
        Some(pb::WatchNotificationsResponse {
            notification: Some(notification),
        })
    }

    /// Writes down how far the client has come. A position that cannot be written costs a repetition.
    async fn save(&self, progress: &Progress) {
        let safe = progress.safe();
        let saved = self
            .client
            .update(safe, |kept| kept.sequence = kept.sequence.max(safe))
            .await;
        if let Err(failure) = saved {
            tracing::warn!(session = %self.handle.id(), %failure, "a client's position was not written down");
        }
    }
}

/// Waits until the transport has taken everything that was sent; false if the client is gone.
async fn all_taken(outbox: &Outbox) -> bool {
    outbox.reserve_many(outbox.max_capacity()).await.is_ok()
}
