//! The calls that change a session.

use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{
    ApprovalDecision, CloseAgentRequest, CloseSessionRequest, InterruptAgentRequest, OnLimit, ResolveApprovalRequest,
    ResumeAgentRequest, SendInputRequest, UpdateSessionRequest,
};

use crate::{
    error::{Error, Result},
    ids, names, ui,
};

/// A call that changes a session. `make` sets the request id, the reason for interrupting or closing a thread, and the
/// behavior at a limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// Decides an approval.
    Decide(ResolveApprovalRequest),
    /// Sends input to a thread.
    Send(SendInputRequest),
    /// Interrupts a thread and its descendants. The request contains the thread's turn that the screen showed; a later
    /// turn is not interrupted. Without a turn, no turn of the thread itself is interrupted.
    Interrupt(InterruptAgentRequest),
    /// Closes a thread and its descendants.
    Close(CloseAgentRequest),
    /// Closes a session.
    CloseSession(CloseSessionRequest),
    /// Reopens a closed thread.
    Resume(ResumeAgentRequest),
    /// Pauses or resumes a session, or changes its mode.
    Update(UpdateSessionRequest),
}

/// Makes the call. Returns its result for people.
pub(super) async fn make(mut supervisor: Supervisor, call: Call) -> Result<String> {
    let request_id = troupe_client::request_id();
    match call {
        Call::Decide(request) => {
            let (id, grant) = (request.approval_id.clone(), request.grant);
            let request = ResolveApprovalRequest { request_id, ..request };
            let approval = supervisor.resolve_approval(request).await?.into_inner().approval;
            let decision = approval.ok_or_else(Error::empty_answer)?.decision();
            let text = format!("approval {}: {}", ids::short(&id), names::approval_decision(decision));
            match (grant, decision) {
                (true, ApprovalDecision::Granted) | (false, _) => Ok(text),
                (true, _) => Err(Error::failure(text)),
            }
        }
        Call::Send(request) => {
            let steer = request.steer;
            let request = SendInputRequest {
                request_id,
                on_limit: OnLimit::Queue.into(),
                ..request
            };
            let sent = supervisor.send_input(request).await?.into_inner();
            Ok(match sent.queue_position {
                0 if steer => format!("sent input {} to the running turn", sent.input_number),
                0 => format!("sent input {}", sent.input_number),
                place => format!("sent input {}; place {place} in the queue", sent.input_number),
            })
        }
        Call::Interrupt(request) => {
            let request = InterruptAgentRequest {
                request_id,
                reason: "interrupted in troupe top".to_owned(),
                ..request
            };
            let answer = supervisor.interrupt_agent(request).await?.into_inner();
            Ok(match answer.interrupted_thread_ids.len() {
                0 => "nothing was interrupted: the turn on the screen has ended".to_owned(),
                count => format!("{} interrupted", ui::count(count, "thread")),
            })
        }
        Call::Close(request) => {
            let text = format!("thread {} is closing", ids::short(&request.thread_id));
            let request = CloseAgentRequest {
                request_id,
                reason: "closed in troupe top".to_owned(),
                ..request
            };
            supervisor.close_agent(request).await?;
            Ok(text)
        }
        Call::CloseSession(request) => {
            let text = format!("session {} is closing", ids::short(&request.session_id));
            let request = CloseSessionRequest { request_id, ..request };
            supervisor.close_session(request).await?;
            Ok(text)
        }
        Call::Resume(request) => {
            let request = ResumeAgentRequest {
                request_id,
                on_limit: OnLimit::Refuse.into(),
                ..request
            };
            let answer = supervisor.resume_agent(request).await?.into_inner();
            let thread = answer.thread.ok_or_else(Error::empty_answer)?;
            let status = names::status_kind(ui::status_of(&thread));
            Ok(format!("thread {} is open: {status}", ids::short(&thread.thread_id)))
        }
        Call::Update(request) => {
            let id = ids::short(&request.session_id);
            let text = match request.paused {
                Some(true) => format!("session {id} paused"),
                Some(false) => format!("session {id} resumed"),
                None => format!("session {id}: {}", names::mode(request.mode())),
            };
            let request = UpdateSessionRequest { request_id, ..request };
            supervisor.update_session(request).await?;
            Ok(text)
        }
    }
}
