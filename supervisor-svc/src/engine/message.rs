//! Messages to a session's actor, and its replies.

use std::sync::Arc;

use supervisor_log::store::{Content, RequestHash, RequestKey};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{error::Failure, handle::Begun};
use crate::{domain::{command::Command, event::EventMetadata, ids::{InputNumber, ThreadId, WaitId}, principal::Actor, state::{session::Session, wait::Wait}, status::StatusKind}, runners::steer::Steered};

/// A command for the actor.
#[derive(Debug)]
pub(super) struct Request {
    /// The command.
    pub command: Command,
    /// The origin of the command.
    pub origin: Origin,
    /// The key by which a retry is recognised.
    pub remember: Option<Remember>,
    /// Content that the command's events will refer to.
    pub contents: Vec<Content>,
    /// The reply channel. The command is executed even if the receiver was dropped.
    pub reply: oneshot::Sender<Result<Done, Failure>>,
}

/// Every message that the actor accepts.
#[derive(Debug)]
pub(super) enum Message {
    /// Executes a command.
    Request(Box<Request>),
    /// Asks whether a request was made before. Answered when an equal request in flight has ended.
    Begin {
        remember: Remember,
        reply: oneshot::Sender<Result<Begun, Failure>>,
    },
    /// Ends a begun request without a command.
    Abandon(RequestKey),
    /// A dispatch task has ended.
    Dispatched(ThreadId),
    /// A dispatch task has ended without reaching the runner. The runner's state must be checked.
    Astray(ThreadId),
    /// A dispatch task has failed. An immediate retry would fail for the same reason.
    Undispatched(ThreadId),
    /// A delivery to a running turn has ended.
    Steered(ThreadId, Steered),
    /// A thread begins to wait for others.
    Waiting { id: WaitId, wait: Wait },
    /// The wait has ended.
    WaitOver(WaitId),
    /// Deletes the session, which must be closed.
    Delete(oneshot::Sender<Result<(), Failure>>),
}

/// The origin of a command. It is stored in the header of its records.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The principal that causes the command.
    pub actor: Actor,
    /// The request that causes the command.
    pub request_id: Option<Arc<str>>,
    /// The trace that the command belongs to.
    pub traceparent: Option<Arc<str>>,
}

impl Origin {
    /// Returns the origin of the supervisor itself.
    #[must_use]
    pub const fn service() -> Self {
        Self {
            actor: Actor::Service,
            request_id: None,
            traceparent: None,
        }
    }

    pub(super) fn metadata(&self) -> EventMetadata {
        EventMetadata {
            actor: self.actor.clone(),
            request_id: self.request_id.clone(),
            traceparent: self.traceparent.clone(),
            cause: None,
            contents_left_out: false,
        }
    }
}

/// The key by which a retry of a request is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remember {
    /// The principal, the method and the client's request id.
    pub key: RequestKey,
    /// The request's canonical hash.
    pub hash: RequestHash,
}

/// The result of a command whose events are durable.
#[derive(Clone, Debug)]
pub struct Done {
    /// The state after the append that contains the events.
    pub session: Arc<Session>,
    /// The parts of the reply that the state does not contain. A retry gets those of the first call.
    pub outcome: Outcome,
    /// Whether the command recorded anything.
    pub recorded: bool,
}

/// The parts of a reply that the present state does not contain. They are remembered, so that a retry gets the same
/// reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The thread that the request created or changed.
    pub thread: Option<ThreadId>,
    /// That thread's status before the request.
    pub status_before: Option<StatusKind>,
    /// The queued input.
    pub input: Option<InputNumber>,
    /// The edge, handoff or approval that the request created or decided.
    pub other: Option<Uuid>,
    /// The threads whose turns were interrupted or asked to stop.
    pub stopped: Vec<ThreadId>,
}
