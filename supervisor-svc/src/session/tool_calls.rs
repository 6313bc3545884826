//! Deciding tool calls for whoever asks: an agent's program, its runner, an operator, or a call of the service's own. An
//! allowed call touches memory only; a refused one is recorded beside the answer, and one that needs an operator is recorded
//! before it.

use std::{future::Future, sync::Arc};

use prost::bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use svc_kit::logging::AUDIT;
use tool_policy::NativeTools;
use uuid::Builder;

use super::{directory::Context, failure::Failure, handle::Handle, heard::HeardDecisions, message::Origin};
use crate::domain::{
    approval::{Again, Approval, MAX_DECIDED, tool_subject},
    authorize::{self, ToolCall, ToolVerdict, UNDECIDED},
    command::Command,
    event::CallDetails,
    ids::{ApprovalId, Digest, ThreadId},
    session::Session,
    thread::{LatestTurn, Thread},
    time::UnixMillis,
};
use crate::store::Content;

/// The largest arguments of a tool call, in bytes.
pub const ARGUMENTS_BYTES: usize = 64 * 1_024;

/// The text for a call whose like has used up what an operator decided.
const HEARD: &str = "the operator's decision was for another call that says the same; call again to ask for this one";

/// By what a call that comes again is known to be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// An id that its caller gave it.
    Id,
    /// What it says.
    Content,
}

/// A tool call as it was asked about.
#[derive(Clone, Debug)]
pub struct AskedCall {
    /// The tool's canonical name, or the program's own.
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// The whole request, encoded, where the call is one of the service's own, of which the arguments are what people see.
    pub request: Option<Vec<u8>>,
    /// By what it is known when it comes again.
    pub known_by: KnownBy,
    /// What the runner says identifies the call before it redacted the arguments; `None`: the other fields do.
    pub unredacted: Option<Digest>,
    /// The size of arguments that were too large to be sent; 0: they were sent.
    pub omitted_bytes: u64,
    /// The kind of runner that executes it; empty: not known.
    pub runner_kind: String,
    /// What it would write; empty: not known.
    pub paths: Vec<String>,
    /// Whether the runner confines what it executes.
    pub confined: bool,
}

impl AskedCall {
    /// Identifies the call: its tool, unredacted arguments and resolved paths, and the request where it is one of the
    /// service's own.
    fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let texts = [&self.tool, &self.runner_kind, &self.arguments].map(String::as_bytes);
        let unredacted = self.unredacted.as_ref().map(Digest::as_bytes);
        let others = [unredacted.map(<[u8; 32]>::as_slice), self.request.as_deref()];
        let parts = texts
            .into_iter()
            .chain(others.map(Option::unwrap_or_default))
            .chain(self.paths.iter().map(String::as_bytes));
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Digest::from_bytes(hash.finalize().into())
    }

    /// Everything that an approval of the call covers, as an operator reads it.
    fn content(&self) -> Content {
        let arguments = serde_json::from_str(&self.arguments).unwrap_or_else(|_| Value::String(self.arguments.clone()));
        let shown = json!({
            "tool": self.tool,
            "runner_kind": self.runner_kind,
            "arguments": arguments,
            "resolved_paths": self.paths,
        });
        Content::new(Bytes::from(shown.to_string()))
    }
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
    context: &Context,
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
    let approval = approval_of(&context.heard, &state, thread, call, handle.now());
    match verdict(&state, thread, call, approval) {
        ToolVerdict::Allowed => {
            if !claim(&context.heard, &state, thread, call, approval) {
                return Ok(refused(String::from(HEARD), None));
            }
            let rests_on = state.approvals.contains_key(&approval).then_some(approval);
            Ok(allowed(&state, thread, call, &origin, rests_on))
        }
        ToolVerdict::Denied(reason) => {
            claim(&context.heard, &state, thread, call, approval);
            context.denials.note(handle, id, &call.tool, &reason);
            Ok(refused(reason, None))
        }
        ToolVerdict::NeedsApproval if call.omitted_bytes > 0 => {
            let reason = format!(
                "the call needs an operator's approval and has {} bytes of arguments; an operator can be shown at most {} \
                 KiB: make several smaller calls",
                call.omitted_bytes,
                ARGUMENTS_BYTES / 1_024
            );
            context.denials.note(handle, id, &call.tool, &reason);
            Ok(refused(reason, None))
        }
        ToolVerdict::NeedsApproval => {
            let content = call.content();
            let command = Command::RequestToolApproval {
                thread: id,
                approval,
                subject: tool_subject(&call.tool, &call.arguments),
                call: CallDetails {
                    digest: call.digest(),
                    content: content.reference(String::new()),
                },
            };
            handle.execute(command, origin.clone(), None, vec![content]).await?;
            wait(context, handle, id, call, &origin, approval, patience).await
        }
        ToolVerdict::Waiting => wait(context, handle, id, call, &origin, approval, patience).await,
    }
}

/// Records a call of a tool that the program did not offer to its model, and returns why it is refused.
pub fn refuse_unoffered(context: &Context, handle: &Handle, id: ThreadId, call: &AskedCall) -> String {
    let state = handle.state();
    let Some(thread) = state.thread(id) else {
        return String::from("the thread is gone");
    };
    let reason = authorize::why_unoffered(
        &state,
        thread,
        &described(call, ApprovalId::from_uuid(uuid::Uuid::nil())),
    );
    context.denials.note(handle, id, &call.tool, &reason);
    reason
}

async fn wait(
    context: &Context,
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
        // Whether its end is recorded already is not to make a difference: nobody can be asked to go on waiting for it.
        let now = handle.now();
        let is_overdue = |approval: &Arc<Approval>| approval.is_overdue(now);
        if handle.state().approvals.get(&approval).is_some_and(is_overdue) {
            context.denials.note(handle, id, &call.tool, UNDECIDED);
            return Ok(refused(String::from(UNDECIDED), Some(approval)));
        }
        return Ok(Decided {
            answer: Answer::Waits,
            approval: Some(approval),
        });
    };
    // The whole decision again: policy and mode may have changed while it waited.
    let verdict = state.thread(id).map(|thread| {
        let is_first = claim(&context.heard, &state, thread, call, approval);
        (thread, verdict(&state, thread, call, approval), is_first)
    });
    match verdict {
        Some((thread, ToolVerdict::Allowed, true)) => Ok(allowed(&state, thread, call, origin, Some(approval))),
        Some((_, ToolVerdict::Allowed, false)) => Ok(refused(String::from(HEARD), None)),
        Some((_, ToolVerdict::Denied(reason), _)) => {
            context.denials.note(handle, id, &call.tool, &reason);
            Ok(refused(reason, Some(approval)))
        }
        Some((_, ToolVerdict::NeedsApproval | ToolVerdict::Waiting, _)) | None => Ok(refused(
            String::from("the thread has no turn that could use the tool"),
            None,
        )),
    }
}

fn verdict(state: &Session, thread: &Thread, call: &AskedCall, approval: ApprovalId) -> ToolVerdict {
    authorize::decide(state, thread, &described(call, approval))
}

fn described(call: &AskedCall, approval: ApprovalId) -> ToolCall<'_> {
    ToolCall {
        tool: &call.tool,
        native: NativeTools::of_kind(&call.runner_kind).unwrap_or(NativeTools::UNKNOWN),
        paths: &call.paths,
        confined: call.confined,
        approval,
    }
}

/// Takes what was decided for this call; false: another one has it. In a thread without turns a decision is for the first call
/// that hears it. Of the others that say the same and waited beside it, nobody has agreed to any.
fn claim(heard: &HeardDecisions, state: &Session, thread: &Thread, call: &AskedCall, approval: ApprovalId) -> bool {
    let is_told_from_others = match call.known_by {
        KnownBy::Id => true,
        KnownBy::Content => !matches!(thread.turn, LatestTurn::None),
    };
    let decided = state
        .approvals
        .get(&approval)
        .filter(|approval| approval.verdict.is_some());
    is_told_from_others || decided.is_none_or(|decided| heard.claim(decided))
}

/// The approval of a call. Within a turn a call has one. In a thread without turns it is the first that answers the call, or
/// that was not asked for yet.
fn approval_of(
    heard: &HeardDecisions,
    state: &Session,
    thread: &Thread,
    call: &AskedCall,
    now: UnixMillis,
) -> ApprovalId {
    let named = hash_of(thread, call);
    let first = name(named.clone());
    if !matches!(thread.turn, LatestTurn::None) {
        return first;
    }
    let answers = |id: ApprovalId| {
        state.approvals.get(&id).is_none_or(|approval| {
            let again = match call.known_by {
                KnownBy::Id => Again::ById,
                KnownBy::Content if heard.has(approval) => Again::Heard,
                KnownBy::Content => Again::Unheard,
            };
            approval.answers(again, now)
        })
    };
    // So many at most are decided and remembered; the next one is free.
    let later = (1..=MAX_DECIDED as u64).map(|number| {
        let mut hash = named.clone();
        hash.update(number.to_be_bytes());
        name(hash)
    });
    std::iter::once(first)
        .chain(later)
        .find(|id| answers(*id))
        .unwrap_or(first)
}

/// What the approvals of a call are named by: asking again for the same one finds them, and they can serve for no other.
fn hash_of(thread: &Thread, call: &AskedCall) -> Sha256 {
    let mut hash = Sha256::new();
    hash.update(thread.id.as_uuid().as_bytes());
    hash.update(thread.generation.get().to_be_bytes());
    hash.update(thread.turn.number().get().to_be_bytes());
    hash.update(call.digest().as_bytes());
    hash
}

fn name(hash: Sha256) -> ApprovalId {
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
        call_sha256 = %call.digest(),
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
