//! Calls of threads to which an operator must agree first: those of the supervisor's own tools that `approve_tools` names.
//! It is asked here, where all of them arrive: a thread's token may come past its runner. A spawn and an edge wait by
//! themselves instead, resolved and recorded; see [`approval::is_needed`](crate::domain::approval::is_needed).

use prost::Message;
use serde_json::Value;
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use super::{SupervisorService, call::Call};
use crate::{
    domain::{approval::DECIDED_WITHIN, authorize},
    session::{
        Handle,
        tool_calls::{self, Answer, AskedCall, KnownBy},
    },
};

impl SupervisorService {
    /// Waits until an operator has agreed to a call that the caller may make and that is in order; what nobody has to be asked
    /// about does not wait.
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
            Answer::Waits if self.draining.is_cancelled() => return Err(crate::watch::draining("call again")),
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

/// What an operator is asked about a call; `None`: nobody is. `shown` are the arguments that the operator sees. What comes
/// again within the turn, by the same `request_id` where there is one, is the same call, and is answered by the same approval.
/// In a thread without turns a decision is for the call that hears it; see [`Again`](crate::domain::approval::Again).
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
    })
}
