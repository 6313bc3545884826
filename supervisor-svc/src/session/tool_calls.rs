//! Deciding tool calls for whoever asks: an agent's program, its runner, an operator, or a call of the service's own. An
//! allowed call touches memory only; a refused one is recorded beside the answer, and one that needs an operator is recorded
//! before it.

use std::{future::Future, sync::Arc};

use sha2::{Digest as _, Sha256};
use svc_kit::logging::AUDIT;
use tool_policy::NativeTools;
use uuid::Builder;

use super::{denials::Denials, failure::Failure, handle::Handle, message::Origin};
use crate::domain::{
    approval::tool_subject,
    authorize::{self, ToolCall, ToolVerdict},
    command::Command,
    ids::{ApprovalId, Digest, ThreadId},
    session::Session,
    thread::Thread,
};

/// A tool call as it was asked about.
#[derive(Clone, Debug)]
pub struct AskedCall {
    /// The tool's canonical name, or the program's own.
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// The whole request, encoded, where the call is one of the service's own, of which the arguments are what people see.
    pub request: Option<Vec<u8>>,
    /// The kind of runner that executes it; empty: not known.
    pub runner_kind: String,
    /// What it would write; empty: not known.
    pub paths: Vec<String>,
    /// Whether the runner confines what it executes.
    pub confined: bool,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Whether it may run.
    pub answer: Answer,
    /// The approval that it waits for or rests on.
    pub approval: Option<ApprovalId>,
}

/// Whether a call may run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Allowed,
    /// It may not; why, for the agent.
    Refused(String),
    /// An operator has not decided yet, and patience is over.
    Waits,
}

impl Answer {
    /// Why the call may not run now; `None`: it may.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Allowed => None,
            Self::Refused(reason) => Some(reason),
            Self::Waits => Some(String::from("the call waits for an operator's approval")),
        }
    }
}

/// Decides a call. Where an operator must agree, it waits for that until `patience` is over.
///
/// # Errors
/// What recording the request for an approval met.
pub async fn decide(
    denials: &Denials,
    handle: &Handle,
    id: ThreadId,
    call: &AskedCall,
    origin: Origin,
    patience: impl Future<Output = ()>,
) -> Result<Decided, Failure> {
    let state = handle.state();
    let Some(thread) = state.thread(id) else {
        return Ok(refused(String::from("the thread is gone"), None));
    };
    let approval = approval_of(thread, call);
    match verdict(&state, thread, call, approval) {
        ToolVerdict::Allowed => {
            let rests_on = state.approvals.contains_key(&approval).then_some(approval);
            Ok(allowed(&state, thread, call, &origin, rests_on))
        }
        ToolVerdict::Denied(reason) => {
            denials.note(handle, id, &call.tool, &reason);
            Ok(refused(reason, None))
        }
        ToolVerdict::NeedsApproval => {
            let command = Command::RequestToolApproval {
                thread: id,
                approval,
                subject: tool_subject(&call.tool, &call.arguments),
            };
            handle.execute(command, origin.clone(), None, Vec::new()).await?;
            wait(denials, handle, id, call, &origin, approval, patience).await
        }
        ToolVerdict::Waiting => wait(denials, handle, id, call, &origin, approval, patience).await,
    }
}

async fn wait(
    denials: &Denials,
    handle: &Handle,
    id: ThreadId,
    call: &AskedCall,
    origin: &Origin,
    approval: ApprovalId,
    patience: impl Future<Output = ()>,
) -> Result<Decided, Failure> {
    let still_waits = |state: &Session| {
        state
            .approvals
            .get(&approval)
            .is_some_and(|approval| approval.verdict.is_none())
    };
    let mut states = handle.states();
    let decided: Option<Arc<Session>> = tokio::select! {
        biased;
        state = states.wait_for(|state| !still_waits(state)) => Some(Arc::clone(&*state.map_err(|_| Failure::Gone)?)),
        () = patience => None,
    };
    let Some(state) = decided else {
        return Ok(Decided {
            answer: Answer::Waits,
            approval: Some(approval),
        });
    };
    // The whole decision again: policy and mode may have changed while it waited.
    let verdict = state
        .thread(id)
        .map(|thread| (thread, verdict(&state, thread, call, approval)));
    match verdict {
        Some((thread, ToolVerdict::Allowed)) => Ok(allowed(&state, thread, call, origin, Some(approval))),
        Some((_, ToolVerdict::Denied(reason))) => {
            denials.note(handle, id, &call.tool, &reason);
            Ok(refused(reason, Some(approval)))
        }
        Some((_, ToolVerdict::NeedsApproval | ToolVerdict::Waiting)) | None => Ok(refused(
            String::from("the thread has no turn that could use the tool"),
            None,
        )),
    }
}

fn verdict(state: &Session, thread: &Thread, call: &AskedCall, approval: ApprovalId) -> ToolVerdict {
    let call = ToolCall {
        tool: &call.tool,
        native: NativeTools::of_kind(&call.runner_kind).unwrap_or(NativeTools::UNKNOWN),
        paths: &call.paths,
        confined: call.confined,
        approval,
    };
    authorize::decide(state, thread, &call)
}

/// The approval of a call is named by the call: asking again for the same one within a turn finds it, and it can serve for
/// no other.
fn approval_of(thread: &Thread, call: &AskedCall) -> ApprovalId {
    let mut hash = Sha256::new();
    hash.update(thread.id.as_uuid().as_bytes());
    hash.update(thread.generation.get().to_be_bytes());
    hash.update(thread.turn.number().get().to_be_bytes());
    let texts = [&call.tool, &call.runner_kind, &call.arguments].map(String::as_bytes);
    for part in texts.into_iter().chain(call.request.as_deref()) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    ApprovalId::from_uuid(Builder::from_custom_bytes(bytes).into_uuid())
}

/// Told in the audit log: the session's log has refusals only, since allowed calls are too many for it.
fn allowed(
    state: &Session,
    thread: &Thread,
    call: &AskedCall,
    origin: &Origin,
    approval: Option<ApprovalId>,
) -> Decided {
    tracing::info!(
        target: AUDIT,
        session_id = %state.id,
        thread_id = %thread.id,
        generation = thread.generation.get(),
        turn = thread.turn.number().get(),
        tool = call.tool,
        runner_kind = call.runner_kind,
        arguments_sha256 = %Digest::of(call.arguments.as_bytes()),
        asked_by = %origin.actor,
        approval_id = approval.map(tracing::field::display),
        "tool call allowed"
    );
    Decided {
        answer: Answer::Allowed,
        approval,
    }
}

const fn refused(reason: String, approval: Option<ApprovalId>) -> Decided {
    Decided {
        answer: Answer::Refused(reason),
        approval,
    }
}
