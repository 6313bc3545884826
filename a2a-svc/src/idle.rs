//! Closes idle contexts, so that they do not keep their threads open.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::sleep;
use troupe_proto::supervisor::v1::{CloseSessionRequest, Session, StatusKind};

use crate::{gateway::Gateway, push::CLEAN_EVERY, upstream::brief};

/// Interval at which contexts are checked.
const EVERY: Duration = Duration::from_secs(60);

/// Closes idle contexts, until the future is dropped.
pub(crate) async fn close_idle(gateway: Arc<Gateway>) {
    loop {
        sleep(EVERY.min(gateway.config.close_idle_after)).await;
        let sessions = match gateway.open_contexts().await {
            Ok(sessions) => sessions,
            Err(error) => {
                tracing::warn!(message = error.message, "idle contexts are not closed");
                continue;
            }
        };
        for session in sessions {
            if !is_idle(&session, SystemTime::now(), gateway.config.close_idle_after) {
                continue;
            }
            let request = CloseSessionRequest {
                session_id: session.session_id.clone(),
                ..CloseSessionRequest::default()
            };
            match gateway.supervisor().clone().close_session(brief(request)).await {
                Ok(_) => tracing::info!(session = session.session_id, "idle context closed"),
                Err(status) => tracing::warn!(
                    session = session.session_id,
                    message = status.message(),
                    "an idle context is not closed"
                ),
            }
        }
    }
}

/// Removes the push notification configurations of deleted contexts, until the future is dropped.
pub(crate) async fn clean_push(gateway: Arc<Gateway>) {
    loop {
        sleep(CLEAN_EVERY).await;
        gateway.push().clean().await;
    }
}

/// Returns whether a session has had no event for that time and none of its threads works.
fn is_idle(session: &Session, now: SystemTime, after: Duration) -> bool {
    let updated = session.update_time.and_then(|time| SystemTime::try_from(time).ok());
    let is_old = updated.is_some_and(|updated| now.duration_since(updated).is_ok_and(|age| age >= after));
    let threads = session.roll_up.iter().flat_map(|roll_up| &roll_up.threads);
    let works = |kind: StatusKind| {
        matches!(
            kind,
            StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::PendingInit | StatusKind::Running
        )
    };
    is_old && !threads.into_iter().any(|count| count.count > 0 && works(count.kind()))
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{RollUp, StatusCount};

    use super::*;

    #[test]
    fn working_sessions_are_not_idle() {
        let now = SystemTime::now();
        let session = |kind: StatusKind| Session {
            update_time: Some((now - Duration::from_secs(100)).into()),
            roll_up: Some(RollUp {
                threads: vec![StatusCount {
                    kind: kind.into(),
                    count: 1,
                }],
                usage: None,
            }),
            ..Session::default()
        };
        let after = Duration::from_secs(60);
        assert!(is_idle(&session(StatusKind::Completed), now, after));
        assert!(!is_idle(&session(StatusKind::Running), now, after));
        assert!(!is_idle(&session(StatusKind::Completed), now, Duration::from_secs(101)));
    }
}
