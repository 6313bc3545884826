//! Activation of passive sessions when they are due: for a deadline, or for deletion at the end of their retention.
//! Sessions in memory need no activation: their actors check deadlines and retention.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use supervisor_log::store::{Due, limits::MAX_PAGE};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{append::DUE_AT_ONCE, directory::Directory, error::Failure};
use crate::domain::{ids::SessionId, time::UnixMillis};

/// The maximum sleep. The clock may be changed, and failed activations are retried.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The minimum sleep, however many sessions are passivated.
const SHORTEST_SLEEP: Duration = Duration::from_millis(100);

/// A session id that sorts after all sessions due at the same time.
const LAST: SessionId = SessionId::from_uuid(Uuid::max());

/// The position after the sessions that are always due, because they are active or have webhooks.
const ALWAYS_DUE: Due = Due {
    at: DUE_AT_ONCE,
    session: LAST,
};

/// The maximum number of sessions that are activated concurrently.
const ACTIVATIONS_AT_ONCE: usize = 16;

/// The result of activating due sessions.
#[derive(Default)]
struct Round {
    activated: usize,
    failed: usize,
}

impl Round {
    fn count(&mut self, session: SessionId, failure: Option<Failure>) {
        match failure {
            None => self.activated += 1,
            // The session was deleted in the meantime, or another supervisor was faster.
            Some(Failure::SessionNotFound(_) | Failure::Elsewhere { .. }) => {}
            Some(failure) => {
                self.failed += 1;
                tracing::error!(session = %session, %failure, "a session cannot be activated");
            }
        }
    }
}

impl Directory {
    /// Activates the sessions that were active when the service stopped, and after that each session that becomes due,
    /// until `ended`.
    pub async fn activate_due_sessions(&self, ended: CancellationToken) {
        // The first round includes the sessions that are always due. After that round, all active sessions are in
        // memory, and a session is passivated only when all its webhook notifications are delivered.
        let mut after = None;
        loop {
            let now = self.clock().now();
            match self.activate_due(after, now).await {
                Ok(Round { activated, failed }) => {
                    if after.is_none() || activated > 0 {
                        tracing::info!(sessions = activated, "due sessions activated");
                    }
                    self.shared().not_activated.record(failed as u64, &[]);
                    if failed == 0 {
                        after = Some(ALWAYS_DUE);
                    }
                }
                Err(failure) => tracing::error!(%failure, "sessions that are due cannot be found"),
            }
            let next = self.until_next(now).await;
            let sleeps = async {
                sleep(SHORTEST_SLEEP).await;
                // A session that is passivated during the sleep may be due earlier.
                let _ = timeout(next, self.shared().due.notified()).await;
            };
            tokio::select! {
                () = ended.cancelled() => return,
                // The sessions that a removed member had in memory now need another owner.
                () = self.shared().orphans.notified() => after = None,
                () = sleeps => {}
            }
        }
    }

    /// Activates every session that is due by `now` and sorts after `after`. Failures are logged and skipped.
    async fn activate_due(&self, mut after: Option<Due>, now: UnixMillis) -> Result<Round, Failure> {
        let mut round = Round::default();
        loop {
            let page = self.store().due_before(now, after, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(round) };
            after = Some(*last);
            let mut passive: Vec<SessionId> = page.iter().map(|due| due.session).collect();
            passive.retain(|session| self.peek(*session).is_none());
            self.order_for_member(&mut passive);
            let activations = stream::iter(passive).map(|session| async move {
                let failure = self.session(session).await.err();
                (session, failure)
            });
            let mut activations = activations.buffer_unordered(ACTIVATIONS_AT_ONCE);
            while let Some((session, failure)) = activations.next().await {
                round.count(session, failure);
            }
        }
    }

    /// Sorts the sessions in an order that differs between supervisors, so that two of them rarely claim the same
    /// session at the same time.
    fn order_for_member(&self, sessions: &mut [SessionId]) {
        let store = self.store();
        if store.is_shared() {
            let member = store.member();
            sessions.sort_by_cached_key(|session| {
                let mut hasher = DefaultHasher::new();
                (member, session).hash(&mut hasher);
                hasher.finish()
            });
        }
    }

    /// Returns the time until the next session becomes due after `now`.
    async fn until_next(&self, now: UnixMillis) -> Duration {
        let after = Due { at: now, session: LAST };
        let next = self.store().due_before(UnixMillis::new(u64::MAX), Some(after), 1).await;
        next.ok()
            .and_then(|next| next.first().map(|due| due.at.since(self.clock().now())))
            .map_or(LONGEST_SLEEP, |until| until.min(LONGEST_SLEEP))
    }
}
