//! Approval of thread calls to the supervisor's own tools that `approve_tools` names.
//!
//! The check runs here because all of these calls arrive here: a thread's token can bypass its runner. Spawns and
//! edges instead wait in their own handlers after they are resolved and recorded; see
//! [`approval::is_needed`](crate::domain::rules::approval::is_needed).

use prost::Message;
use serde_json::Value;
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use super::{SupervisorService, call::Call};
use crate::{domain::rules::{approval::DECIDED_WITHIN, authorize}, engine::Handle, use_cases::tool_decision::{self, Answer, AskedCall, KnownBy}};

impl SupervisorService {
    /// Waits until an operator has approved an authorized and valid call. Returns at once if the call needs no
    /// approval.
    pub(super) async fn agreed(&self, call: &Call, handle: &Handle, asked: Option<AskedCall>) -> Result<(), Status> {
        let (Some(thread), Some(asked)) = (call.caller.thread(), asked) else {
            return Ok(());
        };
        let decided = tool_calls::decide(
            self.directory.context(),
            handle,
            thread,
            &asked,
            call.origin(""),
            self.patience(call.deadline, DECIDED_WITHIN),
        )
        .await?;
        let fault = match decided.answer {
            Answer::Allowed => return Ok(()),
            Answer::Refused(reason) => Fault::new(Code::PermissionDenied, Reason::ToolDenied, reason),
            Answer::Waits if self.draining.is_cancelled() => return Err(crate::projections::watch::draining("call again")),
            Answer::Waits => Fault::new(
                Code::DeadlineExceeded,
                Reason::DeadlineExceeded,
                "the call waits for an operator's approval; nothing was done, call again to go on waiting",
            ),
        };
        let fault = match decided.approval {
            Some(approval) => fault.with("approval_id", approval),
            None => fault,
        };
        Err(fault.with("tool", asked.tool).into())
    }
}

/// Builds the approval request for a call. Returns `None` if the call needs no approval. `shown` are the arguments
/// displayed to the operator.
///
/// A repeated call within the same turn, matched by `request_id` if it has one, counts as the same call and uses the
/// same approval. In a thread without turns, a decision applies to the call that receives it; see
/// [`RepeatedCall`](crate::domain::state::approval::RepeatedCall).
pub(super) fn asked(
    call: &Call,
    handle: &Handle,
    method: &str,
    request_id: &str,
    request: &impl Message,
    shown: impl FnOnce() -> Value,
) -> Option<AskedCall> {
    call.caller.thread()?;
    let tool = authorize::gated_tool(&handle.state(), method)?.to_owned();
    let mut identity = request.encode_length_delimited_to_vec();
    identity.extend_from_slice(request_id.as_bytes());
    Some(AskedCall {
        tool,
        arguments: shown().to_string(),
        request: Some(identity),
        unredacted: None,
        omitted_bytes: 0,
        known_by: if request_id.is_empty() {
            KnownBy::Content
        } else {
            KnownBy::Id
        },
        runner_kind: String::new(),
        paths: Vec::new(),
        confined: false,
        docs_only: false,
    })
}
