//! Waiting for threads to settle, through restarts of the service.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tonic::Request;
use troupe_client::{Supervisor, is_transient};
use troupe_proto::{
    fault,
    supervisor::v1::{ThreadStatus, WaitAgentsRequest, WaitMode},
};

use crate::{
    error::{Error, Result},
    time,
};

/// Maximum wait of one call. Longer waits use several calls.
const LONGEST_CALL: Duration = Duration::from_secs(25 * 60);
/// Additional time for a call beyond its wait.
const GRACE: Duration = Duration::from_secs(30);
/// Delay before a retry if the service requests none.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of a wait.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    /// The settled threads.
    pub(crate) settled: Vec<ThreadStatus>,
    /// Ids of threads that do not exist.
    pub(crate) not_found: Vec<String>,
    /// The threads that are not settled.
    pub(crate) waiting: Vec<String>,
}

impl Waited {
    /// Returns whether the wait timed out.
    pub(crate) const fn timed_out(&self, any: bool) -> bool {
        if any {
            self.settled.is_empty() && !self.waiting.is_empty()
        } else {
            !self.waiting.is_empty()
        }
    }
}

/// Waits until all of the threads, or any of them, are settled.
pub(crate) async fn wait(
    supervisor: &mut Supervisor,
    session: &str,
    ids: Vec<String>,
    timeout: Duration,
    any: bool,
) -> Result<Waited> {
    let mode = if any { WaitMode::Any } else { WaitMode::All };
    let start = Instant::now();
    let mut waited = Waited {
        waiting: ids,
        ..Waited::default()
    };
    while !waited.waiting.is_empty() && (!any || waited.settled.is_empty()) {
        let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            break;
        };
        let span = left.min(LONGEST_CALL);
        let mut request = Request::new(WaitAgentsRequest {
            session_id: session.to_owned(),
            thread_ids: waited.waiting.clone(),
            timeout: Some(time::to_proto(span)),
            mode: mode.into(),
        });
        request.set_timeout(span + GRACE);
        let answer = match supervisor.wait_agents(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if is_transient(&status) => {
                sleep(fault::retry_after(&status).unwrap_or(PAUSE).min(left)).await;
                continue;
            }
            Err(status) => return Err(Error::from(status)),
        };
        let is_done = |id: &String| {
            answer.statuses.iter().any(|status| status.thread_id == *id) || answer.not_found_ids.contains(id)
        };
        waited.waiting.retain(|id| !is_done(id));
        waited.settled.extend(answer.statuses);
        waited.not_found.extend(answer.not_found_ids);
    }
    Ok(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_waits_for_one_thread() {
        let mut waited = Waited {
            waiting: vec!["a".to_owned(), "b".to_owned()],
            ..Waited::default()
        };
        assert!(waited.timed_out(true) && waited.timed_out(false));
        waited.settled.push(ThreadStatus::default());
        assert!(!waited.timed_out(true) && waited.timed_out(false));
        waited.waiting.clear();
        assert!(!waited.timed_out(false));
    }
}
