//! Decisions on tool calls. An agent's program, its runner, an operator or the service itself asks for a decision. An
//! allowed call touches memory only. A refused call is recorded concurrently with the reply. A call that needs an
//! operator is recorded before the reply.

mod claims;
mod denials;

use std::{future::Future, sync::Arc};

use prost::bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use supervisor_log::store::Content;
use svc_kit::logging::AUDIT;
use tool_policy::NativeTools;
use uuid::Builder;

use self::{claims::ClaimedDecisions, denials::Denials};
use crate::{
    domain::{
        command::Command,
        event::CallDetails,
        ids::{ApprovalId, Digest, ThreadId},
        rules::{
            approval::tool_subject,
            authorize::{self, ToolCall, ToolVerdict, UNDECIDED},
        },
        state::{
            approval::{Approval, MAX_DECIDED, RepeatedCall},
            session::Session,
            thread::{LatestTurn, Thread},
        },
        time::UnixMillis,
    },
    engine::{Failure, Handle, Origin},
};

/// The maximum size of the arguments of a tool call, in bytes.
pub const ARGUMENTS_BYTES: usize = 64 * 1_024;

/// The text for a call if an equal call has received the operator's decision.
const CLAIMED: &str = "the operator's decision was for another call with the same content; call again to request an approval for this one";

/// The property by which a repeated call is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// An id that the caller assigned.
    Id,
    /// The content of the call.
    Content,
}

/// A tool call to decide.
#[derive(Clone, Debug)]
pub struct ToolCallRequest {
    /// The tool's canonical name, or the program's own name for it.
    pub tool: String,
    /// The arguments as JSON.
    pub arguments: String,
    /// The whole encoded request, if the service itself makes the call. Operators see only the arguments.
    pub request: Option<Vec<u8>>,
    /// The property by which a repetition is recognised.
    pub known_by: KnownBy,
    /// The runner's digest of the call before redaction of the arguments. `None` if the other fields identify the call.
    pub unredacted: Option<Digest>,
    /// The size of arguments that were too large to send; 0 if they were sent.
    pub omitted_bytes: u64,
    /// The kind of the executing runner; empty if unknown.
    pub runner_kind: String,
    /// The paths that the call would write; empty if unknown.
    pub paths: Vec<String>,
    /// Whether the runner confines the execution.
    pub confined: bool,
    /// Whether the runner confines the writes of the call to the session's docs/.
    pub docs_only: bool,
}

impl ToolCallRequest {
    /// Returns the digest that identifies the call: its tool, unredacted arguments and resolved paths, and the request
    /// if the service itself makes the call.
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

    /// Returns everything that an approval of the call covers, as an operator reads it.
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

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may run.
    pub outcome: Outcome,
    /// The approval that the call waits for or depends on.
    pub approval: Option<ApprovalId>,
}

/// Whether a call may run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call may run.
    Allowed,
    /// The call may not run, with the reason for the agent.
    Refused(String),
    /// The operator has not decided yet, and `wait_limit` is over.
    Waits,
}

impl Outcome {
    /// Returns why the call may not run now; `None` if it may run.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Allowed => None,
            Self::Refused(reason) => Some(reason),
            Self::Waits => Some(String::from("the call waits for an operator's approval")),
        }
    }
}

/// Decides the tool calls of all sessions. Cheap to clone; all clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct ToolDecisions {
    claims: Arc<ClaimedDecisions>,
    denials: Denials,
}

impl ToolDecisions {
    /// Decides a call. If an operator must approve it, waits for the approval until `wait_limit` is over.
    ///
    /// # Errors
    /// The error of recording the approval request.
    pub async fn decide(
        &self,
        handle: &Handle,
        id: ThreadId,
        call: &ToolCallRequest,
        origin: Origin,
        wait_limit: impl Future<Output = ()>,
    ) -> Result<Decision, Failure> {
        let state = handle.state();
        let Some(thread) = state.thread(id) else {
            return Ok(refused(String::from("the thread is gone"), None));
        };
        let approval = approval_of(&self.claims, &state, thread, call, handle.now());
        match verdict(&state, thread, call, approval) {
            ToolVerdict::Allowed => {
                if !claim(&self.claims, &state, thread, call, approval) {
                    return Ok(refused(String::from(CLAIMED), None));
                }
                let rests_on = state.approvals.contains_key(&approval).then_some(approval);
                Ok(allowed(&state, thread, call, &origin, rests_on))
            }
            ToolVerdict::Denied(reason) => {
                claim(&self.claims, &state, thread, call, approval);
                self.denials.note(handle, id, &call.tool, &reason);
                Ok(refused(reason, None))
            }
            ToolVerdict::NeedsApproval if call.omitted_bytes > 0 => {
                let reason = format!(
                    "the call needs an operator's approval and has {} bytes of arguments; an operator can be shown at most {} \
                     KiB: make several smaller calls",
                    call.omitted_bytes,
                    ARGUMENTS_BYTES / 1_024
                );
                self.denials.note(handle, id, &call.tool, &reason);
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
                self.wait(handle, id, call, &origin, approval, wait_limit).await
            }
            ToolVerdict::Waiting => self.wait(handle, id, call, &origin, approval, wait_limit).await,
        }
    }

    /// Records a call of a tool that the program did not offer to its model. Returns the reason for the refusal.
    pub fn refuse_unoffered(&self, handle: &Handle, id: ThreadId, call: &ToolCallRequest) -> String {
        let state = handle.state();
        let Some(thread) = state.thread(id) else {
            return String::from("the thread is gone");
        };
        let reason = authorize::why_unoffered(
            &state,
            thread,
            &described(call, ApprovalId::from_uuid(uuid::Uuid::nil())),
        );
        self.denials.note(handle, id, &call.tool, &reason);
        reason
    }

    async fn wait(
        &self,
        handle: &Handle,
        id: ThreadId,
        call: &ToolCallRequest,
        origin: &Origin,
        approval: ApprovalId,
        wait_limit: impl Future<Output = ()>,
    ) -> Result<Decision, Failure> {
        let still_waits = |state: &Session| {
            state
                .approvals
                .get(&approval)
                .is_some_and(|approval| approval.verdict.is_none())
        };
        let mut states = handle.states();
        let decided: Option<Arc<Session>> = tokio::select! {
            biased;
            state = states.wait_for(|state| !still_waits(state)) => Some(Arc::clone(&*state.map_err(|_| Failure::moved(handle.id()))?)),
            () = wait_limit => None,
        };
        let Some(state) = decided else {
            // The result must not depend on whether the expiry is recorded already: the decision of an overdue approval
            // cannot be awaited.
            let now = handle.now();
            let is_overdue = |approval: &Arc<Approval>| approval.is_overdue(now);
            if handle.state().approvals.get(&approval).is_some_and(is_overdue) {
                self.denials.note(handle, id, &call.tool, UNDECIDED);
                return Ok(refused(String::from(UNDECIDED), Some(approval)));
            }
            return Ok(Decision {
                outcome: Outcome::Waits,
                approval: Some(approval),
            });
        };
        // Repeat the whole decision: policy and mode may have changed during the wait.
        let verdict = state.thread(id).map(|thread| {
            let is_first = claim(&self.claims, &state, thread, call, approval);
            (thread, verdict(&state, thread, call, approval), is_first)
        });
        match verdict {
            Some((thread, ToolVerdict::Allowed, true)) => Ok(allowed(&state, thread, call, origin, Some(approval))),
            Some((_, ToolVerdict::Allowed, false)) => Ok(refused(String::from(CLAIMED), None)),
            Some((_, ToolVerdict::Denied(reason), _)) => {
                self.denials.note(handle, id, &call.tool, &reason);
                Ok(refused(reason, Some(approval)))
            }
            Some((_, ToolVerdict::NeedsApproval | ToolVerdict::Waiting, _)) | None => Ok(refused(
                String::from("the thread has no turn that could use the tool"),
                None,
            )),
        }
    }
}

fn verdict(state: &Session, thread: &Thread, call: &ToolCallRequest, approval: ApprovalId) -> ToolVerdict {
    authorize::decide(state, thread, &described(call, approval))
}

fn described(call: &ToolCallRequest, approval: ApprovalId) -> ToolCall<'_> {
    ToolCall {
        tool: &call.tool,
        native: NativeTools::of_kind(&call.runner_kind).unwrap_or(NativeTools::UNKNOWN),
        paths: &call.paths,
        confined: call.confined,
        docs_only: call.docs_only,
        approval,
    }
}

/// Claims the decision for this call. Returns false if another call has claimed it. In a thread without turns, a
/// decision applies only to the first call that receives it, and not to concurrent equal calls.
fn claim(
    claims: &ClaimedDecisions,
    state: &Session,
    thread: &Thread,
    call: &ToolCallRequest,
    approval: ApprovalId,
) -> bool {
    let is_unique = match call.known_by {
        KnownBy::Id => true,
        KnownBy::Content => !matches!(thread.turn, LatestTurn::None),
    };
    let decided = state
        .approvals
        .get(&approval)
        .filter(|approval| approval.verdict.is_some());
    is_unique || decided.is_none_or(|decided| claims.claim(decided))
}

/// Returns the approval id of a call. Within a turn, equal calls have one id. In a thread without turns, the result is
/// the first id that is unused or whose approval answers the call.
fn approval_of(
    claims: &ClaimedDecisions,
    state: &Session,
    thread: &Thread,
    call: &ToolCallRequest,
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
                KnownBy::Id => RepeatedCall::SameId,
                KnownBy::Content if claims.contains(approval) => RepeatedCall::DeliveredDecision,
                KnownBy::Content => RepeatedCall::UndeliveredDecision,
            };
            approval.answers(again, now)
        })
    };
    // At most this many decisions are remembered, so the next id is free.
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

/// Hashes the properties from which a call's approval ids are derived. Only an equal call has the same ids.
fn hash_of(thread: &Thread, call: &ToolCallRequest) -> Sha256 {
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

/// Writes the allowed call to the audit log. The session's log contains only refusals, because allowed calls are too
/// frequent.
fn allowed(
    state: &Session,
    thread: &Thread,
    call: &ToolCallRequest,
    origin: &Origin,
    approval: Option<ApprovalId>,
) -> Decision {
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
    Decision {
        outcome: Outcome::Allowed,
        approval,
    }
}

const fn refused(reason: String, approval: Option<ApprovalId>) -> Decision {
    Decision {
        outcome: Outcome::Refused(reason),
        approval,
    }
}
