//! One who follows all sessions: those that match at first, then each that changes, as it is by then. A session is told at
//! most once a second, so a slow watcher gets fewer messages and nobody a queue.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::draining;
use crate::{
    domain::ids::SessionId,
    session::{Directory, Filter},
    wire::Sight,
};

/// How often a session is told at most.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// A watch about to run.
pub struct SessionsWatch {
    /// Where sessions are found.
    pub directory: Directory,
    /// Which of them it shows.
    pub filter: Filter,
    /// How much of them.
    pub sight: Sight,
    /// How long it lives; jittered by the caller so that streams do not end together.
    pub lifetime: Duration,
    /// How long it waits at its end for its reader to take why it ends.
    pub last_word: Duration,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
}

type Outbox = mpsc::Sender<Result<pb::WatchSessionsResponse, Status>>;

/// What the watcher was told: the sequence of each session that it was shown and that was not removed.
type Told = BTreeMap<SessionId, u64>;

/// Why a watch cannot go on.
enum End {
    /// The client is gone.
    Gone,
    /// With this error.
    Failed(Status),
}

impl SessionsWatch {
    /// Runs the watch until it ends.
    pub async fn run(self, outbox: Outbox) {
        let end = tokio::select! {
            biased;
            () = self.draining.cancelled() => Some(End::Failed(draining("watch the sessions again"))),
            () = outbox.closed() => None,
            // As planned: the client watches anew.
            () = sleep(self.lifetime) => None,
            ended = self.follow(&outbox) => ended.err(),
        };
        if let Some(End::Failed(status)) = end {
            let _ = timeout(self.last_word, outbox.send(Err(status))).await;
        }
    }

    async fn follow(&self, outbox: &Outbox) -> Result<Infallible, End> {
        // Before the first look, so that nothing falls between the two.
        let follower = self.directory.context().news.follow();
        let mut told = Told::new();
        let mut before = None;
        loop {
            let (sessions, next) = self
                .directory
                .sessions_before(before)
                .await
                .map_err(|failure| End::Failed(failure.into()))?;
            for (id, session) in sessions {
                self.tell(outbox, &mut told, id, Some(session)).await?;
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
                match self.directory.session_now(id).await {
                    Ok(session) => self.tell(outbox, &mut told, id, session).await?,
                    Err(failure) => tracing::error!(session = %id, %failure, "a session cannot be followed"),
                }
            }
            sleep_until(next).await;
            follower.changed().await;
        }
    }

    /// Tells how a session stands now; `None`: it is deleted.
    async fn tell(
        &self,
        outbox: &Outbox,
        told: &mut Told,
        id: SessionId,
        session: Option<pb::Session>,
    ) -> Result<(), End> {
        let (session, removed) = match session {
            Some(session) if self.filter.shows(&session) => {
                if told.insert(id, session.sequence) == Some(session.sequence) {
                    return Ok(());
                }
                (session, false)
            }
            hidden => {
                if told.remove(&id).is_none() {
                    return Ok(());
                }
                let deleted = || pb::Session {
                    session_id: id.to_string(),
                    ..pb::Session::default()
                };
                (hidden.unwrap_or_else(deleted), true)
            }
        };
        let news = pb::WatchSessionsResponse {
            session: Some(self.sight.session(session)),
            removed,
            synced: false,
        };
        send(outbox, news).await
    }
}

async fn send(outbox: &Outbox, message: pb::WatchSessionsResponse) -> Result<(), End> {
    outbox.send(Ok(message)).await.map_err(|_| End::Gone)
}
