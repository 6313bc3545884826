//! Threads: input, interrupt, close, resume, note, budget, and reads.

use std::sync::Arc;

use serde_json::json;
use supervisor_log::codec::{WireEnum as _, parts::settled_to_pb};
use tonic::Status;
use troupe_proto::supervisor::{v1 as pb, v1::input_item::Item};

use super::{
    call::Call, page::Page, parse, results::DOCUMENTS_BYTES, service::SupervisorService, sessions::cascade_time,
};
use crate::{
    convert::{self, View, status::refused},
    domain::{
        command::Command,
        event::CloseCause,
        ids::{InputNumber, ThreadId, Turn},
        rejection::Rejection,
        rules::{
            authority,
            list::{Listing, list},
        },
        settings::{OnLimit, Urgency},
        state::{session::Session, thread::Thread},
        status::StatusKind,
    },
    results::ResultReader,
};

pub(super) async fn send_input(
    call: Call<'_>,
    mut request: pb::SendInputRequest,
) -> Result<pb::SendInputResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    parse::text("override", &request.r#override, parse::PROSE_BYTES)?;
    call.operators_only("override", !request.r#override.is_empty())?;
    let urgency = urgency(&request)?;
    let shown = || json!({"id": request.thread_id, "interrupt": request.interrupt, "message": first_text(&request)});
    let asked = call.approval_request(&handle, &request, shown);
    let result_repairs = parse::result_request(&request.result_schema, request.result_repairs)?;
    let result_schema = std::mem::take(&mut request.result_schema);
    let override_text = std::mem::take(&mut request.r#override);
    let (input, content) = parse::input(request.message.take(), std::mem::take(&mut request.items), |items| {
        pb::Input {
            items,
            r#override: override_text,
            result_schema,
            ..pb::Input::default()
        }
    })?;
    let command = Command::SendInput {
        caller: call.caller.clone(),
        target,
        input,
        urgency,
        on_limit: parse::choice("on_limit", request.on_limit)?,
        result_repairs,
    };
    call.await_approval(&handle, asked).await?;
    let done = call.execute(&handle, command, vec![content]).await?;
    let shown = call.service.show(&done.session, target)?;
    Ok(pb::SendInputResponse {
        input_number: done.outcome.input.map(InputNumber::get).unwrap_or_default(),
        queue_position: shown.queue_position,
        thread: Some(shown),
    })
}

pub(super) async fn interrupt_agent(
    call: Call<'_>,
    request: pb::InterruptAgentRequest,
) -> Result<pb::InterruptAgentResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    let reason = parse::reason(&request.reason, "interrupted")?;
    let asked = call.approval_request(
        &handle,
        &request,
        || json!({"id": request.thread_id, "interrupt": true}),
    );
    call.await_approval(&handle, asked).await?;
    let command = Command::Interrupt {
        caller: call.caller.clone(),
        target,
        turn: request.turn.map(Turn::new),
        only_this: request.only_this,
        reason,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::InterruptAgentResponse {
        thread: Some(call.service.show(&done.session, target)?),
        interrupted_thread_ids: done.outcome.stopped.iter().map(ToString::to_string).collect(),
    })
}

pub(super) async fn close_agent(
    call: Call<'_>,
    request: pb::CloseAgentRequest,
) -> Result<pb::CloseAgentResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    let reason = parse::reason(&request.reason, "closed")?;
    let asked = call.approval_request(&handle, &request, || json!({"id": request.thread_id}));
    let command = Command::Close {
        caller: call.caller.clone(),
        target,
        reason,
        cause: CloseCause::Close,
        within: cascade_time(request.deadline)?,
        policy: parse::given("close_policy", request.close_policy)?,
    };
    call.await_approval(&handle, asked).await?;
    let before = handle.state();
    let done = call.execute(&handle, command, Vec::new()).await?;
    let status_before = status_before(&before, &done.session, target, done.outcome.status_before);
    let state = if request.wait {
        let is_down = |session: &Session| {
            session
                .thread(target)
                .is_none_or(|thread| !thread.status.kind().is_open())
        };
        call.service.until(&handle, call.deadline, is_down).await?
    } else {
        done.session
    };
    Ok(pb::CloseAgentResponse {
        status_before: Some(status_before),
        thread: Some(call.service.show(&state, target)?),
    })
}

pub(super) async fn resume_agent(
    call: Call<'_>,
    request: pb::ResumeAgentRequest,
) -> Result<pb::ResumeAgentResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    // A thread is reopened in a settled state, without a turn that could wait in the queue. Both values of on_limit
    // therefore reject a resume that exceeds a limit.
    parse::choice::<OnLimit>("on_limit", request.on_limit)?;
    let asked = call.approval_request(&handle, &request, || json!({"id": request.thread_id}));
    call.await_approval(&handle, asked).await?;
    let command = Command::Resume {
        caller: call.caller.clone(),
        target,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::ResumeAgentResponse {
        thread: Some(call.service.show(&done.session, target)?),
        thread_token: done
            .session
            .thread(target)
            .and_then(|thread| call.token_for(thread, &handle))
            .unwrap_or_default(),
    })
}

pub(super) async fn set_thread_note(
    call: Call<'_>,
    request: pb::SetThreadNoteRequest,
) -> Result<pb::SetThreadNoteResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    parse::text("thread_note", &request.thread_note, parse::NOTE_BYTES)?;
    let shown = || json!({"id": request.thread_id, "note": request.thread_note});
    let asked = call.approval_request(&handle, &request, shown);
    call.await_approval(&handle, asked).await?;
    let command = Command::SetNote {
        caller: call.caller.clone(),
        target,
        note: request.thread_note,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::SetThreadNoteResponse {
        thread: Some(call.service.show(&done.session, target)?),
    })
}

impl SupervisorService {
    pub(super) fn show(&self, session: &Session, id: ThreadId) -> Result<pb::Thread, Status> {
        let thread = session
            .thread(id)
            .ok_or_else(|| Rejection::ThreadNotFound(id.to_string()))
            .map_err(refused)?;
        Ok(self.watches.view.show(session, thread, View::default()))
    }
}

/// Returns the first text of an input.
fn first_text(request: &pb::SendInputRequest) -> &str {
    let texts = request.items.iter().find_map(|item| match &item.item {
        Some(Item::Text(text)) => Some(text.as_str()),
        Some(Item::LocalImage(_) | Item::Skill(_) | Item::Mention(_)) | None => None,
    });
    request.message.as_deref().or(texts).unwrap_or_default()
}

fn urgency(request: &pb::SendInputRequest) -> Result<Urgency, Status> {
    if request.steer && !request.r#override.is_empty() {
        return Err(parse::bad(
            "steer",
            "give steer or override, not both: an override applies to a turn that begins",
        ));
    }
    if request.steer && !request.result_schema.is_empty() {
        return Err(parse::bad(
            "steer",
            "give steer or result_schema, not both: the requested result of a running turn cannot change",
        ));
    }
    match (request.steer, request.interrupt) {
        (false, false) => Ok(Urgency::Wait),
        (true, false) => Ok(Urgency::Steer),
        (false, true) => Ok(Urgency::Interrupt),
        (true, true) => Err(parse::bad(
            "steer",
            "give steer or interrupt, not both: a turn that is stopped takes no more input",
        )),
    }
}

/// Returns the status for the response of a close: the status before the call, with its message if the thread had
/// settled. The thread may have settled after the caller read it and may be closed by now. A closed thread retains its
/// settled status.
fn status_before(before: &Session, after: &Session, target: ThreadId, remembered: Option<StatusKind>) -> pb::Status {
    let shown = |thread: &Arc<Thread>| convert::thread::status(&thread.status, thread.since);
    let after = after.thread(target);
    let settled = after.and_then(|thread| thread.status.settled());
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

pub(super) async fn update_thread_budget(
    call: Call<'_>,
    request: pb::UpdateThreadBudgetRequest,
) -> Result<pb::UpdateThreadBudgetResponse, Status> {
    let (handle, target) = call.named_thread(&request.session_id, &request.thread_id).await?;
    if request.budget.is_none() {
        return Err(parse::bad(
            "budget",
            "budget is required; an empty one is without bound",
        ));
    }
    let command = Command::UpdateBudget {
        caller: call.caller.clone(),
        target,
        budget: parse::budget(request.budget)?,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::UpdateThreadBudgetResponse {
        thread: Some(call.service.show(&done.session, target)?),
    })
}

pub(super) async fn get_thread(call: Call<'_>, request: pb::GetThreadRequest) -> Result<pb::GetThreadResponse, Status> {
    // The default of a thread is itself. An operator must name a thread.
    let thread_id = match call.caller.thread() {
        Some(own) if request.thread_id.is_empty() => own.to_string(),
        _ => request.thread_id,
    };
    let (handle, target) = call.named_thread(&request.session_id, &thread_id).await?;
    let state = handle.state();
    let thread = authority::authorize(&state, &call.caller, call.method, target).map_err(refused)?;
    let view = View {
        redaction: call.redaction,
        ..View::default()
    };
    let mut shown = call.service.watches.view.show(&state, thread, view);
    if let Some(result) = &thread.result {
        let mut reader = ResultReader::new(call.service.directory.store().as_ref(), state.id, DOCUMENTS_BYTES);
        shown.result = Some(call.redaction.result(reader.read(result).await?));
    }
    Ok(pb::GetThreadResponse {
        thread: Some(shown),
        roll_up: Some(convert::thread::roll_up_of(&state, thread)),
    })
}

pub(super) async fn list_active_agents(
    call: Call<'_>,
    mut request: pb::ListActiveAgentsRequest,
) -> Result<pb::ListActiveAgentsResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    let (handle, around) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let asked = call.approval_request(&handle, &request, || json!({}));
    call.await_approval(&handle, asked).await?;
    let state = handle.state();
    let listing = Listing {
        around,
        visible: call.caller.thread().or(state.root_id()).unwrap_or(around),
        scope: parse::choice("scope", request.scope)?,
        include_closed: request.include_closed,
        include_self: request.include_self,
        statuses: request
            .statuses
            .iter()
            .map(|kind| parse::choice("statuses", *kind))
            .collect::<Result<_, _>>()?,
    };
    let found = list(&state, &listing);
    let view = View {
        tree: request.include_tree,
        redaction: call.redaction,
    };
    let entries = found.iter().map(|thread| (thread.spawn_sequence, thread));
    let show = |thread: &Arc<Thread>| call.service.watches.view.show(&state, thread, view);
    let (threads, next_page_token) = page.cut(entries, show, None);
    Ok(pb::ListActiveAgentsResponse {
        threads,
        next_page_token,
    })
}

pub(super) async fn get_quota(call: Call<'_>, request: pb::GetQuotaRequest) -> Result<pb::GetQuotaResponse, Status> {
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let state = handle.state();
    let thread = authority::authorize(&state, &call.caller, call.method, target).map_err(refused)?;
    Ok(pb::GetQuotaResponse {
        quota: Some(convert::thread::quota(&state, thread)),
    })
}
