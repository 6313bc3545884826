//! CancelTask.

use std::{sync::Arc, time::Duration};

use troupe_proto::supervisor::v1::{
    GetThreadRequest, InterruptAgentRequest, Session, SetThreadNoteRequest, StatusKind,
};

use super::{Call, Gateway, new_request_id, task_in};
use crate::{
    error::{Error, Kind, Result},
    fold::{cancel_note, is_terminal},
    pb::{self, CancelTaskRequest, TaskState},
    render::Extent,
    upstream::{Supervisor, brief},
};

/// Maximum number of interrupts after a cancellation, for turns that inputs of the canceled task start.
const INTERRUPTS: u32 = 20;
const INTERRUPT_PAUSE: Duration = Duration::from_millis(500);

impl Gateway {
    /// Handles CancelTask: stops the running turn and marks the task in the log. If the task ends at the same time, the
    /// order in the log decides whether it was canceled.
    pub(crate) async fn cancel(&self, call: &Call, request: CancelTaskRequest) -> Result<pb::Task> {
        let (id, session, reader) = self.task(call, &request.id).await?;
        let not_cancelable = |state: TaskState| {
            Error::new(
                Kind::TaskNotCancelable,
                format!("the task has ended: {}", state.as_str_name()),
            )
            .with("taskId", &request.id)
        };
        let fold = reader.fold();
        let task = task_in(&fold, id.number)?;
        let state = task.standing().state;
        if is_terminal(state) {
            return Err(not_cancelable(state));
        }
        if state != TaskState::InputRequired {
            interrupt(&self.supervisor, &session, task.last_turn()).await?;
        }
        let note = SetThreadNoteRequest {
            request_id: new_request_id(),
            session_id: session.session_id.clone(),
            thread_id: session.root_thread_id.clone(),
            thread_note: cancel_note(id.number),
        };
        let noted = self.supervisor.clone().set_thread_note(brief(note)).await?.into_inner();
        let sequence = noted.thread.map(|thread| thread.sequence).unwrap_or_default();
        let reader = self.contexts.read(&session, sequence).await?;
        let fold = reader.fold();
        let task = task_in(&fold, id.number)?;
        let standing = task.standing();
        if standing.state != TaskState::Canceled {
            return Err(not_cancelable(standing.state));
        }
        if state != TaskState::InputRequired {
            self.interrupt_waiting_inputs(&session);
        }
        self.renderer(call, &session).task(task, Extent::default()).await
    }

    /// Interrupts the turns that inputs of a canceled task would start, until the agent is idle or has another task.
    fn interrupt_waiting_inputs(&self, session: &Session) {
        let (contexts, supervisor) = (Arc::clone(&self.contexts), self.supervisor.clone());
        let session = session.clone();
        tokio::spawn(async move {
            for _ in 0..INTERRUPTS {
                // The turn is read before the tasks. A task that begins later has another turn, which is not
                // interrupted.
                let request = GetThreadRequest {
                    session_id: session.session_id.clone(),
                    thread_id: session.root_thread_id.clone(),
                };
                let Ok(response) = supervisor.clone().get_thread(brief(request)).await else {
                    return;
                };
                let thread = response.into_inner().thread.unwrap_or_default();
                let Ok(reader) = contexts.read(&session, thread.sequence).await else {
                    return;
                };
                if reader.fold().open_task().is_some() {
                    return;
                }
                if !matches!(interrupt(&supervisor, &session, Some(thread.turn)).await, Ok(true)) {
                    return;
                }
                tokio::time::sleep(INTERRUPT_PAUSE).await;
            }
        });
    }
}

/// Interrupts the agent of a context; if `turn` is set, only this turn. Returns whether the agent is still active.
async fn interrupt(supervisor: &Supervisor, session: &Session, turn: Option<u32>) -> Result<bool> {
    let request = InterruptAgentRequest {
        request_id: new_request_id(),
        session_id: session.session_id.clone(),
        thread_id: session.root_thread_id.clone(),
        turn,
        only_this: false,
        reason: String::from("canceled by the A2A caller"),
    };
    let response = supervisor.clone().interrupt_agent(brief(request)).await?.into_inner();
    let status = response
        .thread
        .and_then(|thread| thread.status)
        .map(|status| status.kind());
    Ok(matches!(
        status,
        Some(StatusKind::Queued | StatusKind::PendingInit | StatusKind::Running)
    ))
}
