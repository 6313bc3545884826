//! A watch of all sessions: first all matching sessions, then each session that changes, with its current state. Each
//! session is sent at most once a second. A slow watcher therefore gets fewer messages, and there is no queue per
//! watcher.

use std::{collections::BTreeMap, convert::Infallible, pin::pin, time::Duration};

use futures::StreamExt as _;

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use crate::{
    convert::Redaction,
    domain::ids::SessionId,
    projections::{
        overview::{Filter, Overview},
        stream_end::StreamEnd,
    },
};

/// Minimum time between two messages about the same session.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// A watch about to run.
pub struct SessionsWatch {
    /// The sessions.
    pub overview: Overview,
    /// Selects the sessions of the watch.
    pub filter: Filter,
    /// Which data is visible.
    pub redaction: Redaction,
    /// Maximum lifetime. The caller adds jitter so that streams do not end together.
    pub lifetime: Duration,
    /// Maximum time that an ending stream waits for its reader to take the final status.
    pub flush_timeout: Duration,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
    /// Whether another supervisor made the request, to learn which sessions change here.
    pub is_forwarded: bool,
}

type Outbox = mpsc::Sender<Result<pb::WatchSessionsResponse, Status>>;

/// The last sent sequence of each session that was sent and not removed.
type Sent = BTreeMap<SessionId, u64>;

impl SessionsWatch {
    /// Runs the watch until it ends.
    pub async fn run(self, outbox: Outbox) {
        // The work ends before the final status is sent, because both need room in the outbox.
        let end = {
            let watching = pin!(async {
                if self.is_forwarded {
                    self.report_changes(&outbox).await
                } else {
                    self.follow(&outbox).await
                }
            });
            StreamEnd::of(watching, &outbox, self.lifetime, &self.draining).await
        };
        if let Some(status) = end.status("watch the sessions again") {
            let _ = timeout(self.flush_timeout, outbox.send(Err(status))).await;
        }
    }

    /// Sends the ids of the sessions that change here.
    async fn report_changes(&self, outbox: &Outbox) -> Result<Infallible, StreamEnd> {
        let follower = self.overview.follow();
        loop {
            follower.changed().await;
            for id in follower.take() {
                let session = pb::Session {
                    session_id: id.to_string(),
                    ..pb::Session::default()
                };
                let message = pb::WatchSessionsResponse {
                    session: Some(session),
                    ..pb::WatchSessionsResponse::default()
                };
                send(outbox, message).await?;
            }
            sleep(EVERY).await;
        }
    }

    async fn follow(&self, outbox: &Outbox) -> Result<Infallible, StreamEnd> {
        // Subscribes before the first read, so that no change is missed between the two.
        let follower = self.overview.follow();
        let elsewhere = self.overview.changes_elsewhere().await;
        let mut elsewhere = elsewhere.map_err(StreamEnd::Failed)?;
        let mut sent = Sent::new();
        let mut before = None;
        loop {
            let (sessions, next) = self.overview.sessions_before(before).await?;
            for (id, session) in sessions {
                self.send_state(outbox, &mut sent, id, Some(session)).await?;
            }
            if next.is_none() {
                break;
            }
            before = next;
        }
        let synced = pb::WatchSessionsResponse {
            synced: true,
            ..pb::WatchSessionsResponse::default()
        };
        send(outbox, synced).await?;
        loop {
            let next = Instant::now() + EVERY;
            for id in follower.take() {
                match self.overview.session_now(id).await {
                    Ok(session) => self.send_state(outbox, &mut sent, id, session).await?,
                    Err(failure) => tracing::error!(session = %id, %failure, "a session cannot be followed"),
                }
            }
            sleep_until(next).await;
            // Adds the sessions that changed at other supervisors.
            loop {
                tokio::select! {
                    biased;
                    changed = elsewhere.next() => match changed {
                        Some(id) => follower.put(id),
                        // The client starts a new watch.
                        None => return Err(StreamEnd::Planned),
                    },
                    () = follower.changed() => break,
                }
            }
        }
    }

    /// Sends the current state of a session. `None` means that the session was deleted.
    async fn send_state(
        &self,
        outbox: &Outbox,
        sent: &mut Sent,
        id: SessionId,
        session: Option<pb::Session>,
    ) -> Result<(), StreamEnd> {
        let (session, removed) = match session {
            Some(session) if self.filter.matches(&session) => {
                if sent.insert(id, session.sequence) == Some(session.sequence) {
                    return Ok(());
                }
                (session, false)
            }
            hidden => {
                if sent.remove(&id).is_none() {
                    return Ok(());
                }
                let deleted = || pb::Session {
                    session_id: id.to_string(),
                    ..pb::Session::default()
                };
                (hidden.unwrap_or_else(deleted), true)
            }
        };
        let message = pb::WatchSessionsResponse {
            session: Some(self.redaction.session(session)),
            removed,
            synced: false,
        };
        send(outbox, message).await
    }
}

async fn send(outbox: &Outbox, message: pb::WatchSessionsResponse) -> Result<(), StreamEnd> {
    outbox.send(Ok(message)).await.map_err(|_| StreamEnd::Gone)
}
