//! Waking sessions that were put away when their time has come: for a deadline, or to be deleted when they were kept long
//! enough. Sessions in memory see to that themselves.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{batch::DUE_AT_ONCE, directory::Directory, failure::Failure};
use crate::{
    domain::{ids::SessionId, time::UnixMillis},
    store::{Due, limits::MAX_PAGE},
};

/// How long it sleeps at most: the clock may be set, and a session that could not be woken is tried again.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// How long it sleeps at least, however many sessions are put away.
const SHORTEST_SLEEP: Duration = Duration::from_millis(100);

/// Behind every session that may be due at a time.
const LAST: SessionId = SessionId::from_uuid(Uuid::max());

/// Behind the sessions that are due at once, because they are at work or have webhooks.
const AT_WORK: Due = Due {
    at: DUE_AT_ONCE,
    session: LAST,
};

/// What came of waking those that were due.
#[derive(Default)]
struct Round {
    woken: usize,
    failed: usize,
}

impl Directory {
    /// Brings back the sessions that were at work when the service stopped, and from then on each that is due, until
    /// `ended`.
    pub async fn keep_awake(&self, ended: CancellationToken) {
        // Who is at work is in memory, once everybody was woken, and who was put away has told its webhooks everything.
        let mut after = None;
        loop {
            let now = self.context().clock.now();
            match self.wake(after, now).await {
                Ok(Round { woken, failed }) => {
                    if after.is_none() || woken > 0 {
                        tracing::info!(sessions = woken, "sessions that were due are awake");
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
                // What was put away meanwhile may be due earlier.
                let _ = timeout(next, self.context().due.notified()).await;
            };
            tokio::select! {
                () = ended.cancelled() => return,
                () = sleeps => {}
            }
        }
    }

    /// Wakes every session that is due at `now` and was not due up to `after`. The ones that cannot be woken are logged and
    /// passed over.
    async fn wake(&self, mut after: Option<Due>, now: UnixMillis) -> Result<Round, Failure> {
        let mut round = Round::default();
        loop {
            let page = self.context().store.due_before(now, after, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(round) };
            after = Some(*last);
            for due in page {
                if self.peek(due.session).is_some() {
                    continue;
                }
                match self.session(due.session).await {
                    Ok(_) => round.woken += 1,
                    // It was deleted meanwhile.
                    Err(Failure::SessionNotFound(_)) => {}
                    Err(failure) => {
                        round.failed += 1;
                        tracing::error!(session = %due.session, %failure, "a session cannot be woken");
                    }
                }
            }
        }
    }

    /// How long until the next session is due that is not due yet at `now`.
    async fn until_next(&self, now: UnixMillis) -> Duration {
        let after = Due { at: now, session: LAST };
        let next = self
            .context()
            .store
            .due_before(UnixMillis::new(u64::MAX), Some(after), 1)
            .await;
        next.ok()
            .and_then(|next| next.first().map(|due| due.at.since(self.context().clock.now())))
            .map_or(LONGEST_SLEEP, |until| until.min(LONGEST_SLEEP))
    }
}
