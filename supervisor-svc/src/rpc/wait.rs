//! Waits for threads to settle and for subtrees to close. A wait checks the durable state after each append.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use svc_kit::deadline::{self, Deadline};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{call::Call, parse, results::DOCUMENTS_BYTES, service::SupervisorService};
use crate::{
    convert::{
        self,
        status::{draining, refused},
    },
    domain::{
        event::ConditionKind,
        ids::ThreadId,
        principal::Caller,
        rejection::Rejection,
        rules::{authority, cascade::CASCADE_DEADLINE},
        state::{session::Session, wait::Wait},
    },
    engine::{Failure, Handle, Waiting},
    results::ResultReader,
    runners::RunnerHub,
};

/// Time that WaitAgents waits if the request specifies none.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(5 * 60);
/// Maximum time that WaitAgents waits.
pub const MAX_WAIT: Duration = Duration::from_secs(30 * 60);
/// Maximum number of threads for which one call waits.
pub(crate) const MAX_WAITED: usize = 1_000;

/// Time by which a waiting call returns before its caller's deadline, so that the response arrives.
const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// Returns how long a call with the given timeout and deadline waits.
pub(super) fn wait_time(given: Option<prost_types::Duration>, deadline: Option<Deadline>) -> Result<Duration, Status> {
    let zero = || parse::bad("timeout", "timeout_ms must be greater than zero");
    let asked = match given {
        None => DEFAULT_WAIT,
        Some(span) => match Duration::try_from(span) {
            Ok(span) if !span.is_zero() => span.min(MAX_WAIT),
            Ok(_) | Err(_) => return Err(zero()),
        },
    };
    Ok(wait_limit(deadline, asked))
}

pub(super) async fn wait_agents(
    call: Call<'_>,
    request: pb::WaitAgentsRequest,
) -> Result<pb::WaitAgentsResponse, Status> {
    if request.thread_ids.is_empty() {
        return Err(parse::bad("thread_ids", "ids must be non-empty"));
    }
    if request.thread_ids.len() > MAX_WAITED {
        return Err(parse::bad(
            "thread_ids",
            format!("at most {MAX_WAITED} ids are allowed"),
        ));
    }
    let ids: Vec<ThreadId> = request
        .thread_ids
        .iter()
        .map(|id| parse::id("thread_ids", id))
        .collect::<Result<_, _>>()?;
    let needs_all = match pb::WaitMode::try_from(request.mode) {
        Ok(pb::WaitMode::Unspecified | pb::WaitMode::Any) => false,
        Ok(pb::WaitMode::All) => true,
        Err(_) => return Err(parse::bad("mode", format!("mode {} is unknown", request.mode))),
    };
    wait_time(request.timeout, call.deadline)?;
    let names_session = call.token.is_some() || !request.session_id.is_empty();
    let one = if names_session {
        None
    } else {
        call.service.first_existing(&ids).await?.or(ids.first().copied())
    };
    let handle = match call.session_for(&request.session_id, one).await {
        Ok(handle) => handle,
        // The operator named no session, and no session has any of the threads.
        Err(status) if status.code() == Code::NotFound && request.session_id.is_empty() => {
            return Ok(pb::WaitAgentsResponse {
                not_found_ids: request.thread_ids,
                ..pb::WaitAgentsResponse::default()
            });
        }
        Err(status) => return Err(status),
    };
    let state = handle.state();
    let mut known = BTreeSet::new();
    let mut not_found_ids = Vec::new();
    for id in ids {
        match authority::authorize(&state, &call.caller, call.method, id) {
            Ok(_) => {
                known.insert(id);
            }
            Err(Rejection::ThreadNotFound(id)) => not_found_ids.push(id),
            Err(rejection) => return Err(refused(rejection)),
        }
    }
    let settled_in = |session: &Session, id: &ThreadId| {
        session
            .thread(*id)
            .is_some_and(|thread| thread.status.kind().is_settled())
    };
    let is_over = |session: &Session| {
        if needs_all {
            known.iter().all(|id| settled_in(session, id))
        } else {
            known.iter().any(|id| settled_in(session, id))
        }
    };
    if known.is_empty() {
        return Ok(pb::WaitAgentsResponse {
            not_found_ids,
            ..pb::WaitAgentsResponse::default()
        });
    }
    let asked = call.approval_request(&handle, &request, || json!({"ids": request.thread_ids}));
    call.await_approval(&handle, asked).await?;
    // The time starts now, because the operator's approval may have taken a while.
    let until = Instant::now() + wait_time(request.timeout, call.deadline)?;
    // A calling thread counts as waiting until the call ends.
    let _waiting = match &call.caller {
        Caller::Thread { id, generation } => {
            let wait = Wait::new(*id, *generation, Arc::new(known.clone()));
            let waiting = handle.waiting(call.service.clock().new_id(), wait).await?;
            Some(ThreadWait {
                _waiting: waiting,
                handle: handle.clone(),
                runners: call.service.runners.clone(),
                thread: *id,
            })
        }
        Caller::Operator { .. } => None,
    };
    let waited = call.service.until_at(&handle, until, is_over).await?;
    let session = waited.unwrap_or_else(|| handle.state());
    let mut statuses = Vec::new();
    let mut reader = ResultReader::new(call.service.directory.store().as_ref(), session.id, DOCUMENTS_BYTES);
    for thread in known.iter().filter_map(|id| session.thread(*id)) {
        if thread.status.kind().is_settled() {
            let question = thread.conditions.get(&ConditionKind::AwaitingInput);
            statuses.push(pb::ThreadStatus {
                thread_id: thread.id.to_string(),
                status: Some(convert::thread::status(&thread.status, thread.since)),
                result: match &thread.result {
                    Some(result) => Some(reader.read(result).await?),
                    None => None,
                },
                question: question.map(|(_, question)| question.clone()).unwrap_or_default(),
            });
        }
    }
    Ok(pb::WaitAgentsResponse {
        timed_out: !is_over(&session),
        statuses,
        not_found_ids,
    })
}

impl SupervisorService {
    /// Returns the first of the threads that exists. That thread identifies the session of a call that names no
    /// session.
    async fn first_existing(&self, ids: &[ThreadId]) -> Result<Option<ThreadId>, Status> {
        for id in ids {
            let session = self.directory.store().session_of(*id).await;
            if session.map_err(Failure::from)?.is_some() {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// Waits for an operator: at most `wanted`, until shortly before the caller's deadline, or until the service
    /// drains.
    pub(super) async fn wait_for_operator(&self, deadline: Option<Deadline>, wanted: Duration) {
        tokio::select! {
            () = sleep(wait_limit(deadline, wanted)) => {}
            () = self.draining.cancelled() => {}
        }
    }

    /// Waits for a durable state that satisfies `holds`. The caller's deadline and the maximum duration of a cascade
    /// bound the wait.
    pub(super) async fn until(
        &self,
        handle: &Handle,
        deadline: Option<Deadline>,
        holds: impl Fn(&Session) -> bool,
    ) -> Result<Arc<Session>, Status> {
        let longest = CASCADE_DEADLINE * 2;
        let at = Instant::now() + deadline::within(deadline, longest);
        self.until_at(handle, at, holds).await?.ok_or_else(|| {
            Fault::new(
                Code::DeadlineExceeded,
                Reason::DeadlineExceeded,
                "the subtree is not closed yet; it continues to close",
            )
            .into()
        })
    }

    /// Waits for a durable state that satisfies `holds`. Returns `None` when the time is over. Fails with UNAVAILABLE
    /// when the service drains.
    pub(super) async fn until_at(
        &self,
        handle: &Handle,
        at: Instant,
        holds: impl Fn(&Session) -> bool,
    ) -> Result<Option<Arc<Session>>, Status> {
        let mut states = handle.states();
        tokio::select! {
            waited = timeout_at(at, states.wait_for(|session| holds(session))) => match waited {
                Ok(Ok(session)) => Ok(Some(Arc::clone(&session))),
                Ok(Err(_)) => Err(Failure::moved(handle.id()).into()),
                Err(_) => Ok(None),
            },
            () = self.draining.cancelled() => Err(draining("wait again")),
        }
    }
}

/// Marks a thread as waiting until this value is dropped. The thread's silence is measured from the end of the wait.
struct ThreadWait {
    // Dropped before the handle, so that the session is in memory when the wait ends.
    _waiting: Waiting,
    handle: Handle,
    runners: RunnerHub,
    thread: ThreadId,
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        if let Some(thread) = self.handle.state().thread(self.thread)
            && let Some(runner) = thread.holder()
        {
            self.runners.record_activity(runner, thread.id, thread.generation);
        }
    }
}

/// Returns how long a call may wait: at most `wanted`, and short enough to return before the caller's deadline.
fn wait_limit(deadline: Option<Deadline>, wanted: Duration) -> Duration {
    deadline.map_or(wanted, |deadline| {
        deadline.remaining().saturating_sub(ANSWER_MARGIN).min(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_time_has_default_maximum_and_deadline() {
        let span = |seconds| prost_types::Duration { seconds, nanos: 0 };
        for (given, left, waits) in [
            (None, None, 5 * 60_000),
            (Some(span(90)), None, 90_000),
            (Some(span(30 * 60)), None, 30 * 60_000),
            (Some(span(31 * 60)), None, 30 * 60_000),
            (None, Some(10), 9_900),
            (Some(span(5)), Some(10), 5_000),
            (Some(span(60 * 60)), Some(60 * 60), 30 * 60_000),
            (None, Some(0), 0),
        ] {
            let deadline = left.map(|seconds| Deadline {
                at: Instant::now() + Duration::from_secs(seconds),
            });
            let time = wait_time(given, deadline).unwrap();
            assert_eq!(time, Duration::from_millis(waits), "{given:?} with {left:?} s left");
        }
        for seconds in [0, -1] {
            let status = wait_time(Some(span(seconds)), None).unwrap_err();
            assert_eq!(status.message(), "timeout_ms must be greater than zero");
        }
    }
}
