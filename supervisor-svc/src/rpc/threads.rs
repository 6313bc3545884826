//! The verbs on threads: input, interrupt, close, resume, notes.

use std::sync::Arc;

use serde_json::json;
use supervisor_log::codec::{WireEnum as _, parts::settled_to_pb};
use tonic::{Request, Status};
use troupe_proto::supervisor::v1::{self as pb, input_item::Item};

use super::{SupervisorService, agreement::asked, call::Call, parse, sessions::cascade_time, status::refused};
use crate::{convert::{self, View}, domain::{command::Command, event::CloseCause, ids::{InputNumber, ThreadId, Turn}, rejection::{GuardedVerb, Refusal}, rules::authority, settings::{OnLimit, Urgency}, state::{session::Session, thread::Thread}, status::{self, StatusKind}}, engine::Handle};

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
        let urgency = urgency(&request)?;
        let asked = asked(
            &call,
            &handle,
            "SendInput",
            &request_id,
            &request,
            || json!({"id": request.thread_id, "interrupt": request.interrupt, "message": words(&request)}),
        );
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
            urgency,
            on_limit: check::choice("on_limit", request.on_limit)?,
        };
        self.agreed(&call, &handle, asked).await?;
        let done = handle
            .execute(command, call.origin(&request_id), remember, vec![content])
            .await?;
        let shown = self.show(&done.session, target)?;
        Ok(pb::SendInputResponse {
            input_number: done.outcome.input.map(InputNumber::get).unwrap_or_default(),
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
        let asked = asked(
            &call,
            &handle,
            "InterruptAgent",
            &request_id,
            &request,
            || json!({"id": request.thread_id, "interrupt": true}),
        );
        self.agreed(&call, &handle, asked).await?;
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
        Ok(pb::InterruptAgentResponse {
            thread: Some(self.show(&done.session, target)?),
            interrupted_thread_ids: done.outcome.stopped.iter().map(ToString::to_string).collect(),
        })
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
        let asked = asked(
            &call,
            &handle,
            "CloseAgent",
            &request_id,
            &request,
            || json!({"id": request.thread_id}),
        );
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
        self.agreed(&call, &handle, asked).await?;
        let before = handle.state();
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
        // A thread is reopened in a settled state, without a turn that could wait in the queue. Both values therefore
        // reject.
        check::choice::<OnLimit>("on_limit", request.on_limit)?;
        let asked = asked(
            &call,
            &handle,
            "ResumeAgent",
            &request_id,
            &request,
            || json!({"id": request.thread_id}),
        );
        self.agreed(&call, &handle, asked).await?;
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
        let asked = asked(
            &call,
            &handle,
            "SetThreadNote",
            &request_id,
            &request,
            || json!({"id": request.thread_id, "note": request.thread_note}),
        );
        self.agreed(&call, &handle, asked).await?;
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

    /// Returns the session and the thread that a call names, if the caller may act on the thread.
    pub(super) async fn target(
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
        authority::authorize(&handle.state(), &call.caller, method, target).map_err(refused)?;
        Ok((handle, target))
    }

    pub(super) fn show(&self, session: &Session, id: ThreadId) -> Result<pb::Thread, Status> {
        let thread = session
            .thread(id)
            .ok_or_else(|| Refusal::ThreadNotFound(id.to_string()))
            .map_err(refused)?;
        Ok(self.directory.context().show(session, thread, View::default()))
    }

    /// Like [`Self::show`], restricted to the data visible to the caller.
    pub(super) fn show_to(&self, call: &Call, session: &Session, id: ThreadId) -> Result<pb::Thread, Status> {
        let thread = session
            .thread(id)
            .ok_or_else(|| Refusal::ThreadNotFound(id.to_string()))
            .map_err(refused)?;
        let view = View {
            sight: call.sight,
            ..View::default()
        };
        Ok(self.directory.context().show(session, thread, view))
    }
}

/// The first text of an input.
fn words(request: &pb::SendInputRequest) -> &str {
    let texts = request.items.iter().find_map(|item| match &item.item {
        Some(Item::Text(text)) => Some(text.as_str()),
        Some(Item::LocalImage(_) | Item::Skill(_) | Item::Mention(_)) | None => None,
    });
    request.message.as_deref().or(texts).unwrap_or_default()
}

fn urgency(request: &pb::SendInputRequest) -> Result<Urgency, Status> {
    if request.steer && !request.r#override.is_empty() {
        return Err(check::bad(
            "steer",
            "give steer or override, not both: a last word is for a turn that begins",
        ));
    }
    match (request.steer, request.interrupt) {
        (false, false) => Ok(Urgency::Wait),
        (true, false) => Ok(Urgency::Steer),
        (false, true) => Ok(Urgency::Interrupt),
        (true, true) => Err(check::bad(
            "steer",
            "give steer or interrupt, not both: a turn that is stopped takes no more input",
        )),
    }
}

/// Returns the status for the response of a close: the status before the call, with its message if the thread had
/// settled. The thread may have settled after the caller read it and may be closed by now. A closed thread retains its
/// settled status.
fn status_before(before: &Session, after: &Session, target: ThreadId, remembered: Option<StatusKind>) -> pb::Status {
    let shown = |thread: &Arc<Thread>| wire::thread::status(&thread.status, thread.since);
    let after = after.thread(target);
    let settled = after.and_then(|thread| match &thread.status {
        status::Status::Shutdown { before, .. } => before.as_deref(),
        _ => None,
    });
    after
        .map(shown)
        .into_iter()
        .chain(settled.map(|settled| settled_to_pb(settled, None)))
        .chain(before.thread(target).map(shown))
        .find(|status| remembered.is_none_or(|kind| status.kind == kind.number()))
        .unwrap_or_else(|| pb::Status {
            kind: remembered.map(|kind| kind.number()).unwrap_or_default(),
            ..pb::Status::default()
        })
}
