//! Requests for all methods.

use tonic::Status;
use troupe_proto::supervisor::v1::{
    AcknowledgeMailboxRequest, CloseAgentRequest, CreateEdgeRequest, DeleteEdgeRequest, InterruptAgentRequest,
    ResolveApprovalRequest, ResumeAgentRequest, SendHandoffRequest, SendInputRequest, SetThreadNoteRequest,
    SpawnAgentRequest, UpdateSessionRequest, UpdateThreadBudgetRequest,
};
use troupe_tests::client::Supervisor;

/// A request that can be repeated.
#[derive(Clone, Debug)]
pub enum Request {
    Spawn(Box<SpawnAgentRequest>),
    Send(SendInputRequest),
    Interrupt(InterruptAgentRequest),
    Close(CloseAgentRequest),
    Resume(ResumeAgentRequest),
    Note(SetThreadNoteRequest),
    Connect(CreateEdgeRequest),
    Disconnect(DeleteEdgeRequest),
    HandOff(SendHandoffRequest),
    Acknowledge(AcknowledgeMailboxRequest),
    Budget(UpdateThreadBudgetRequest),
    Decide(ResolveApprovalRequest),
    Update(UpdateSessionRequest),
}

/// The response to an accepted request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The id of the created thread, edge or handoff, or `THREAD/NUMBER` of the created input.
    pub made: Option<String>,
    /// A thread's token.
    pub token: Option<Token>,
}

/// A thread's token.
#[derive(Clone, Debug)]
pub struct Token {
    pub thread: String,
    pub text: String,
}

impl Token {
    fn of(thread: &str, text: String) -> Option<Self> {
        let thread = thread.to_owned();
        (!text.is_empty()).then_some(Self { thread, text })
    }
}

impl Request {
    /// Returns whether each accepted request of this kind appends exactly one event that creates an object.
    pub const fn always_makes(&self) -> bool {
        match self {
            Self::Spawn(_) | Self::Send(_) | Self::HandOff(_) => true,
            Self::Interrupt(_)
            | Self::Close(_)
            | Self::Resume(_)
            | Self::Note(_)
            | Self::Connect(_)
            | Self::Disconnect(_)
            | Self::Acknowledge(_)
            | Self::Budget(_)
            | Self::Decide(_)
            | Self::Update(_) => false,
        }
    }

    /// Makes the request.
    ///
    /// # Errors
    ///
    /// The status of a rejected request.
    pub async fn make(self, mut client: Supervisor) -> Result<Answer, Status> {
        let mut answer = Answer::default();
        match self {
            Self::Spawn(request) => {
                let spawned = client.spawn_agent(*request).await?.into_inner();
                let thread = spawned.thread.unwrap().thread_id;
                answer.token = Token::of(&thread, spawned.thread_token);
                answer.made = Some(thread);
            }
            Self::Send(request) => {
                let thread = request.thread_id.clone();
                let number = client.send_input(request).await?.into_inner().input_number;
                answer.made = Some(format!("{thread}/{number}"));
            }
            Self::Interrupt(request) => {
                client.interrupt_agent(request).await?;
            }
            Self::Close(request) => {
                client.close_agent(request).await?;
            }
            Self::Resume(request) => {
                let thread = request.thread_id.clone();
                let resumed = client.resume_agent(request).await?.into_inner();
                answer.token = Token::of(&thread, resumed.thread_token);
            }
            Self::Note(request) => {
                client.set_thread_note(request).await?;
            }
            Self::Connect(request) => {
                // `None` until an operator approves the edge.
                let edge = client.create_edge(request).await?.into_inner().edge;
                answer.made = edge.map(|edge| edge.edge_id);
            }
            Self::Disconnect(request) => {
                client.delete_edge(request).await?;
            }
            Self::HandOff(request) => {
                let handoff = client.send_handoff(request).await?.into_inner().handoff;
                answer.made = Some(handoff.unwrap().handoff_id);
            }
            Self::Acknowledge(request) => {
                client.acknowledge_mailbox(request).await?;
            }
            Self::Budget(request) => {
                client.update_thread_budget(request).await?;
            }
            Self::Decide(request) => {
                client.resolve_approval(request).await?;
            }
            Self::Update(request) => {
                client.update_session(request).await?;
            }
        }
        Ok(answer)
    }
}
