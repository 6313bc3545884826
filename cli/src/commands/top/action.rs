//! The calls that change a session.

use troupe_client::Supervisor;
use troupe_proto::{
    common::v1::Mode,
    supervisor::v1::{
        ApprovalDecision, CloseAgentRequest, CloseSessionRequest, InterruptAgentRequest, OnLimit,
        ResolveApprovalRequest, ResumeAgentRequest, SendInputRequest, UpdateSessionRequest,
    },
};

use crate::{
    error::{Error, Result},
    ids, names, ui,
};

/// A call that changes a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Decides an approval.
    Decide {
        session_id: String,
        approval_id: String,
        grant: bool,
        reason: String,
    },
    /// Sends input to a thread.
    Send {
        session_id: String,
        thread_id: String,
        text: String,
        /// Whether the running turn receives it.
        steer: bool,
    },
    /// Interrupts a thread and its descendants.
    Interrupt {
        session_id: String,
        thread_id: String,
        /// The turn that the screen showed. Another turn is not interrupted. `None`: no turn of the thread itself runs.
        turn: Option<u32>,
    },
    /// Closes a thread and its descendants.
    Close { session_id: String, thread_id: String },
    /// Closes a session.
    CloseSession { session_id: String },
    /// Reopens a closed thread.
    Resume { session_id: String, thread_id: String },
    /// Pauses or resumes a session.
    Pause { session_id: String, paused: bool },
    /// Changes the mode of a session.
    SetMode { session_id: String, mode: Mode },
}

/// Makes the call. Returns its result for people.
pub(super) async fn make(mut supervisor: Supervisor, call: Call) -> Result<String> {
    let request_id = troupe_client::request_id();
    match call {
        Call::Decide {
            session_id,
            approval_id,
            grant,
            reason,
        } => {
            let request = ResolveApprovalRequest {
                request_id,
                session_id,
                approval_id: approval_id.clone(),
                grant,
                reason,
            };
            let approval = supervisor.resolve_approval(request).await?.into_inner().approval;
            let decision = approval.ok_or_else(Error::empty_answer)?.decision();
            let text = format!(
                "approval {}: {}",
                ids::short(&approval_id),
                names::approval_decision(decision)
            );
            match (grant, decision) {
                (true, ApprovalDecision::Granted) | (false, _) => Ok(text),
                (true, _) => Err(Error::failure(text)),
            }
        }
        Call::Send {
            session_id,
            thread_id,
            text,
            steer,
        } => {
            let request = SendInputRequest {
                request_id,
                session_id,
                thread_id,
                message: Some(text),
                steer,
                on_limit: OnLimit::Queue.into(),
                ..SendInputRequest::default()
            };
            let sent = supervisor.send_input(request).await?.into_inner();
            Ok(match sent.queue_position {
                0 if steer => format!("sent input {} to the running turn", sent.input_number),
                0 => format!("sent input {}", sent.input_number),
                place => format!("sent input {}; place {place} in the queue", sent.input_number),
            })
        }
        Call::Interrupt {
            session_id,
            thread_id,
            turn,
        } => {
            let request = InterruptAgentRequest {
                request_id,
                session_id,
                thread_id,
                turn,
                reason: "interrupted in troupe top".to_owned(),
                ..InterruptAgentRequest::default()
            };
            let answer = supervisor.interrupt_agent(request).await?.into_inner();
            Ok(match answer.interrupted_thread_ids.len() {
                0 => "nothing was interrupted: the turn on the screen has ended".to_owned(),
                count => format!("{} interrupted", ui::count(count, "thread")),
            })
        }
        Call::Close { session_id, thread_id } => {
            let request = CloseAgentRequest {
                request_id,
                session_id,
                thread_id: thread_id.clone(),
                reason: "closed in troupe top".to_owned(),
                ..CloseAgentRequest::default()
            };
            supervisor.close_agent(request).await?;
            Ok(format!("thread {} is closing", ids::short(&thread_id)))
        }
        Call::CloseSession { session_id } => {
            let request = CloseSessionRequest {
                request_id,
                session_id: session_id.clone(),
                ..CloseSessionRequest::default()
            };
            supervisor.close_session(request).await?;
            Ok(format!("session {} is closing", ids::short(&session_id)))
        }
        Call::Resume { session_id, thread_id } => {
            let request = ResumeAgentRequest {
                request_id,
                session_id,
                thread_id,
                on_limit: OnLimit::Refuse.into(),
            };
            let answer = supervisor.resume_agent(request).await?.into_inner();
            let thread = answer.thread.ok_or_else(Error::empty_answer)?;
            let status = names::status_kind(ui::status_of(&thread));
            Ok(format!("thread {} is open: {status}", ids::short(&thread.thread_id)))
        }
        Call::Pause { session_id, paused } => {
            let request = UpdateSessionRequest {
                request_id,
                session_id: session_id.clone(),
                paused: Some(paused),
                ..UpdateSessionRequest::default()
            };
            supervisor.update_session(request).await?;
            let state = if paused { "paused" } else { "resumed" };
            Ok(format!("session {} {state}", ids::short(&session_id)))
        }
        Call::SetMode { session_id, mode } => {
            let request = UpdateSessionRequest {
                request_id,
                session_id: session_id.clone(),
                mode: Some(mode.into()),
                ..UpdateSessionRequest::default()
            };
            supervisor.update_session(request).await?;
            Ok(format!("session {}: {}", ids::short(&session_id), names::mode(mode)))
        }
    }
}
