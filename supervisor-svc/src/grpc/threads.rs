//! The verbs on threads: input, interrupt, wait, close, resume, notes, reads.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use svc_kit::deadline::{self, Deadline};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{SupervisorService, call::Call, check, page::Page, sessions::cascade_time};
use crate::{
    domain::{
        authority,
        command::Command,
        event::CloseCause,
        ids::{ThreadId, Turn},
        list::{Listing, list},
        refusal::{GuardedVerb, Refusal},
        session::Session,
    },
    session::{Failure, Handle},
    wire::{self, View, WireEnum as _},
};

/// The most threads that one call waits for.
const MAX_WAITED: usize = 1_000;

/// How much earlier than its caller's deadline a wait answers, so that the answer arrives.
const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// Times of WaitAgents.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// Where the request does not say.
    pub default: Duration,
    /// The longest.
    pub max: Duration,
}

impl SupervisorService {
    pub(super) async fn send(&self, request: Request<pb::SendInputRequest>) -> Result<pb::SendInputResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "SendInput")
            .await?;
        let remember = call.remember("SendInput", &request_id, &request)?;
        check::text("override", &request.r#override, check::PROSE_BYTES)?;
        call.operators_only("override", !request.r#override.is_empty())?;
        let last_word = std::mem::take(&mut request.r#override);
        let (input, content) = check::input(request.message.take(), std::mem::take(&mut request.items), |items| {
            pb::Input {
                items,
                r#override: last_word,
                ..pb::Input::default()
            }
        })?;
        let command = Command::SendInput {
            caller: call.caller.clone(),
            target,
            input,
            interrupt: request.interrupt,
            on_limit: check::choice("on_limit", request.on_limit)?,
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, vec![content])
            .await?;
        let shown = self.show(&done.session, target)?;
        Ok(pb::SendInputResponse {
            input_number: done
                .outcome
                .input
                .map(crate::domain::ids::InputNumber::get)
                .unwrap_or_default(),
            queue_position: shown.queue_position,
            thread: Some(shown),
        })
    }

    pub(super) async fn interrupt(
        &self,
        request: Request<pb::InterruptAgentRequest>,
    ) -> Result<pb::InterruptAgentResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "InterruptAgent")
            .await?;
        let remember = call.remember("InterruptAgent", &request_id, &request)?;
        check::text("reason", &request.reason, check::REASON_BYTES)?;
        let before = handle.state();
        let command = Command::Interrupt {
            caller: call.caller.clone(),
            target,
            turn: request.turn.map(Turn::new),
            only_this: request.only_this,
            reason: if request.reason.is_empty() {
                String::from("interrupted")
            } else {
                request.reason
            },
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        let interrupted_thread_ids = done
            .session
            .subtree(target)
            .into_iter()
            .filter(|thread| {
                let earlier = before.thread(thread.id);
                thread.interrupt.is_some() || earlier.is_some_and(|earlier| earlier.status != thread.status)
            })
            .map(|thread| thread.id.to_string())
            .collect();
        Ok(pb::InterruptAgentResponse {
            thread: Some(self.show(&done.session, target)?),
            interrupted_thread_ids,
        })
    }

    pub(super) async fn wait(&self, request: Request<pb::WaitAgentsRequest>) -> Result<pb::WaitAgentsResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        if request.thread_ids.is_empty() {
            return Err(check::bad("thread_ids", "ids must be non-empty"));
        }
        if request.thread_ids.len() > MAX_WAITED {
            return Err(check::bad(
                "thread_ids",
                format!("at most {MAX_WAITED} ids are allowed"),
            ));
        }
        let ids: Vec<ThreadId> = request
            .thread_ids
            .iter()
            .map(|id| check::id("thread_ids", id))
            .collect::<Result<_, _>>()?;
        let timeout = self.wait_time(request.timeout, call.deadline)?;
        let first = ids.first().copied();
        let handle = match self
            .session_for(&call, &request.session_id, first, GuardedVerb::Act)
            .await
        {
            Ok(handle) => handle,
            // An operator that names no session and only unknown threads: all of them are unknown.
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
            match authority::authorize(&state, &call.caller, "WaitAgents", id) {
                Ok(_) => {
                    known.insert(id);
                }
                Err(Refusal::ThreadNotFound(id)) => not_found_ids.push(id),
                Err(refusal) => return Err(refusal.into()),
            }
        }
        let settled = |session: &Session| -> Vec<pb::ThreadStatus> {
            known
                .iter()
                .filter_map(|id| session.thread(*id))
                .filter(|thread| thread.status.kind().is_settled())
                .map(|thread| pb::ThreadStatus {
                    thread_id: thread.id.to_string(),
                    status: Some(wire::thread::status(&thread.status, thread.since)),
                })
                .collect()
        };
        if known.is_empty() {
            return Ok(pb::WaitAgentsResponse {
                not_found_ids,
                ..pb::WaitAgentsResponse::default()
            });
        }
        let waited = self
            .until_at(&handle, Instant::now() + timeout, |session| {
                !settled(session).is_empty()
            })
            .await?;
        Ok(pb::WaitAgentsResponse {
            timed_out: waited.is_none(),
            statuses: waited.map(|session| settled(&session)).unwrap_or_default(),
            not_found_ids,
        })
    }

    fn wait_time(&self, given: Option<prost_types::Duration>, deadline: Option<Deadline>) -> Result<Duration, Status> {
        let zero = || check::bad("timeout", "timeout_ms must be greater than zero");
        let asked = match given {
            None => self.config.wait.default,
            Some(span) => match Duration::try_from(span) {
                Ok(span) if !span.is_zero() => span.min(self.config.wait.max),
                Ok(_) | Err(_) => return Err(zero()),
            },
        };
        Ok(deadline::within(deadline, asked).saturating_sub(if deadline.is_some() {
            ANSWER_MARGIN
        } else {
            Duration::ZERO
        }))
    }

    pub(super) async fn close(
        &self,
        request: Request<pb::CloseAgentRequest>,
    ) -> Result<pb::CloseAgentResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "CloseAgent")
            .await?;
        let remember = call.remember("CloseAgent", &request_id, &request)?;
        check::text("reason", &request.reason, check::REASON_BYTES)?;
        let before = handle.state();
        let command = Command::Close {
            caller: call.caller.clone(),
            target,
            reason: if request.reason.is_empty() {
                String::from("closed")
            } else {
                request.reason
            },
            cause: CloseCause::Close,
            within: cascade_time(request.deadline)?,
            policy: check::given("close_policy", request.close_policy)?,
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        let status_before = status_before(&before, &done.session, target, done.outcome.status_before);
        let state = if request.wait {
            let is_down = |session: &Session| {
                session
                    .thread(target)
                    .is_none_or(|thread| !thread.status.kind().is_open())
            };
            self.until(&handle, call.deadline, is_down).await?
        } else {
            done.session
        };
        Ok(pb::CloseAgentResponse {
            status_before: Some(status_before),
            thread: Some(self.show(&state, target)?),
        })
    }

    pub(super) async fn resume(
        &self,
        request: Request<pb::ResumeAgentRequest>,
    ) -> Result<pb::ResumeAgentResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "ResumeAgent")
            .await?;
        let remember = call.remember("ResumeAgent", &request_id, &request)?;
        let command = Command::Resume {
            caller: call.caller.clone(),
            target,
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        Ok(pb::ResumeAgentResponse {
            thread: Some(self.show(&done.session, target)?),
            thread_token: done
                .session
                .thread(target)
                .and_then(|thread| self.token_for(&call, thread, &handle))
                .unwrap_or_default(),
        })
    }

    pub(super) async fn set_note(
        &self,
        request: Request<pb::SetThreadNoteRequest>,
    ) -> Result<pb::SetThreadNoteResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "SetThreadNote")
            .await?;
        let remember = call.remember("SetThreadNote", &request_id, &request)?;
        check::text("thread_note", &request.thread_note, check::NOTE_BYTES)?;
        let command = Command::SetNote {
            caller: call.caller.clone(),
            target,
            note: request.thread_note,
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        Ok(pb::SetThreadNoteResponse {
            thread: Some(self.show(&done.session, target)?),
        })
    }

    pub(super) async fn read_thread(
        &self,
        request: Request<pb::GetThreadRequest>,
    ) -> Result<pb::GetThreadResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "GetThread")
            .await?;
        Ok(pb::GetThreadResponse {
            thread: Some(self.show(&handle.state(), target)?),
        })
    }

    pub(super) async fn list(
        &self,
        request: Request<pb::ListActiveAgentsRequest>,
    ) -> Result<pb::ListActiveAgentsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let (size, token) = (request.page_size, std::mem::take(&mut request.page_token));
        request.page_size = 0;
        let page = Page::of(size, &token, &request, &call.scope)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let around = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        authority::authorize(&state, &call.caller, "ListActiveAgents", around)?;
        let listing = Listing {
            around,
            visible: call.caller.thread().or(state.root_id()).unwrap_or(around),
            scope: check::choice("scope", request.scope)?,
            include_closed: request.include_closed,
            include_self: request.include_self,
            statuses: request
                .statuses
                .iter()
                .map(|kind| check::choice("statuses", *kind))
                .collect::<Result<_, _>>()?,
        };
        let found = list(&state, &listing);
        let view = View {
            tree: request.include_tree,
            ..View::default()
        };
        let (threads, next_page_token) = page.cut(&found, |thread| self.directory.context().show(&state, thread, view));
        Ok(pb::ListActiveAgentsResponse {
            threads,
            next_page_token,
        })
    }

    pub(super) async fn authorize(
        &self,
        request: Request<pb::AuthorizeToolRequest>,
    ) -> Result<pb::AuthorizeToolResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        check::text("tool", &request.tool, check::REASON_BYTES)?;
        if request.tool.is_empty() {
            return Err(check::bad("tool", "tool is required"));
        }
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        let thread = authority::authorize(&state, &call.caller, "AuthorizeTool", target)?;
        let decision = match tool_policy::NativeTools::of_kind(&request.runner_kind) {
            Some(table) => thread.effective.decide_native(&table, &request.tool),
            None => thread.effective.decide(&request.tool),
        };
        let allowed = decision.is_allowed();
        Ok(pb::AuthorizeToolResponse {
            allowed,
            reason: if allowed { String::new() } else { decision.to_string() },
            approval_id: String::new(),
        })
    }

    pub(super) async fn quota(&self, request: Request<pb::GetQuotaRequest>) -> Result<pb::GetQuotaResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        let thread = authority::authorize(&state, &call.caller, "GetQuota", target)?;
        Ok(pb::GetQuotaResponse {
            quota: Some(wire::thread::quota(&state, thread)),
        })
    }

    /// The session and the thread that a call names, once the caller may act on it.
    async fn target(
        &self,
        call: &Call,
        session_id: &str,
        thread_id: &str,
        method: &str,
    ) -> Result<(Handle, ThreadId), Status> {
        let verb = if method == "CloseAgent" {
            GuardedVerb::Close
        } else {
            GuardedVerb::Act
        };
        let target: ThreadId = check::id("thread_id", thread_id)?;
        let handle = self.session_for(call, session_id, Some(target), verb).await?;
        authority::authorize(&handle.state(), &call.caller, method, target)?;
        Ok((handle, target))
    }

    fn show(&self, session: &Session, id: ThreadId) -> Result<pb::Thread, Status> {
        let thread = session
            .thread(id)
            .ok_or_else(|| Refusal::ThreadNotFound(id.to_string()))?;
        Ok(self.directory.context().show(session, thread, View::default()))
    }

    /// Waits for a durable state, at most as long as a cascade may take and the caller waits.
    pub(super) async fn until(
        &self,
        handle: &Handle,
        deadline: Option<Deadline>,
        holds: impl Fn(&Session) -> bool,
    ) -> Result<Arc<Session>, Status> {
        let longest = crate::domain::session::CASCADE_DEADLINE * 2;
        let at = Instant::now() + deadline::within(deadline, longest);
        self.until_at(handle, at, holds).await?.ok_or_else(|| {
            Fault::new(
                Code::DeadlineExceeded,
                Reason::DeadlineExceeded,
                "the subtree is not down yet; it goes on closing",
            )
            .into()
        })
    }

    /// Waits for a durable state; `None` when the time is over. A wait ends with UNAVAILABLE when the service drains.
    async fn until_at(
        &self,
        handle: &Handle,
        at: Instant,
        holds: impl Fn(&Session) -> bool,
    ) -> Result<Option<Arc<Session>>, Status> {
        let mut states = handle.states();
        tokio::select! {
            waited = timeout_at(at, states.wait_for(|session| holds(session))) => match waited {
                Ok(Ok(session)) => Ok(Some(Arc::clone(&session))),
                Ok(Err(_)) => Err(Failure::Gone.into()),
                Err(_) => Ok(None),
            },
            () = self.draining.cancelled() => Err(crate::watch::draining()),
        }
    }
}

/// The status that a close answers: that from before the call, with its message where the thread had settled.
fn status_before(
    before: &Session,
    after: &Session,
    target: ThreadId,
    remembered: Option<crate::domain::status::StatusKind>,
) -> pb::Status {
    let earlier = before.thread(target).or_else(|| after.thread(target));
    let mut status = earlier
        .map(|thread| wire::thread::status(&thread.status, thread.since))
        .unwrap_or_default();
    if let Some(kind) = remembered
        && status.kind != kind.number()
    {
        status = pb::Status {
            kind: kind.number(),
            ..pb::Status::default()
        };
    }
    status
}
