//! Activation of passive sessions when they are due: for a deadline, or for deletion at the end of their retention.
//! Sessions in memory do this themselves.

use std::time::Duration;

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
const AT_WORK: Due = Due {
    at: DUE_AT_ONCE,
    session: LAST,
};

/// The result of activating due sessions.
#[derive(Default)]
struct Round {
    activated: usize,
    failed: usize,
}

impl Directory {
    /// Activates the sessions that were active when the service stopped, and after that each session that becomes due,
    /// until `ended`.
    pub async fn activate_due_sessions(&self, ended: CancellationToken) {
        // After this round all active sessions are in memory. Passivated sessions have delivered all webhook
        // notifications.
        let mut after = None;
        loop {
            let now = self.clock().now();
            match self.activate_due(after, now).await {
                Ok(Round { activated, failed }) => {
                    if after.is_none() || activated > 0 {
                        tracing::info!(sessions = activated, "sessions that were due are awake");
                    }
                    if failed == 0 {
                        after = Some(AT_WORK);
                    }
                }
                Err(failure) => tracing::error!(%failure, "sessions that are due cannot be found"),
            }
            let next = self.until_next(now).await;
            let sleeps = async {
                sleep(SHORTEST_SLEEP).await;
                // A session that was passivated in the meantime may be due earlier.
                let _ = timeout(next, self.shared().due.notified()).await;
            };
            tokio::select! {
                () = ended.cancelled() => return,
                () = sleeps => {}
            }
        }
    }

    /// Activates every session that is due at `now` and was not due up to `after`. Failures are logged and skipped.
    async fn activate_due(&self, mut after: Option<Due>, now: UnixMillis) -> Result<Round, Failure> {
        let mut round = Round::default();
        loop {
            let page = self.store().due_before(now, after, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(round) };
            after = Some(*last);
            for due in page {
                if self.peek(due.session).is_some() {
                    continue;
                }
                match self.session(due.session).await {
                    Ok(_) => round.activated += 1,
                    // The session was deleted in the meantime.
                    Err(Failure::SessionNotFound(_)) => {}
                    Err(failure) => {
                        round.failed += 1;
                        tracing::error!(session = %due.session, %failure, "a session cannot be activated");
                    }
                }
            }
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
