//! What is sent to a session's actor, and what it answers.

use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{failure::Failure, handle::Begun, steer::Steered};
use crate::{
    domain::{
        actor::Actor,
        command::Command,
        event::Circumstances,
        ids::{InputNumber, ThreadId, WaitId},
        session::Session,
        status::StatusKind,
        waiting::Wait,
    },
    store::{Content, RequestHash, RequestKey},
};

/// A command on its way to the actor.
#[derive(Debug)]
pub(super) struct Request {
    /// What is asked.
    pub command: Command,
    /// For whom.
    pub origin: Origin,
    /// How to recognise a retry.
    pub remember: Option<Remember>,
    /// Content that the command's events will refer to.
    pub contents: Vec<Content>,
    /// Where the answer goes. Nobody may be listening any more: the command is carried out all the same.
    pub reply: oneshot::Sender<Result<Done, Failure>>,
}

/// Everything that the actor takes.
#[derive(Debug)]
pub(super) enum Message {
    /// Carry out a command.
    Request(Box<Request>),
    /// Has this request been made before? Answered when an earlier one in flight is over.
    Begin {
        remember: Remember,
        reply: oneshot::Sender<Result<Begun, Failure>>,
    },
    /// The request that began is over without a command.
    Abandon(RequestKey),
    /// A dispatch task has ended.
    Dispatched(ThreadId),
    /// A dispatch task has ended, and its turn reached nobody: how its runner stands is to be looked at.
    Astray(ThreadId),
    /// A dispatch task has ended in vain: trying again at once would meet the same.
    Undispatched(ThreadId),
    /// A delivery to a running turn has ended.
    Steered(ThreadId, Steered),
    /// A thread waits for others from now on.
    Waiting { id: WaitId, wait: Wait },
    /// It waits no more.
    WaitOver(WaitId),
    /// Remove the session, which must be closed.
    Delete(oneshot::Sender<Result<(), Failure>>),
}

/// For whom a command is carried out; goes into the header of its records.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Who causes it.
    pub actor: Actor,
    /// The request that causes it.
    pub request_id: Option<Arc<str>>,
    /// The trace that it belongs to.
    pub traceparent: Option<Arc<str>>,
}

impl Origin {
    /// The supervisor itself.
    #[must_use]
    pub const fn service() -> Self {
        Self {
            actor: Actor::Service,
            request_id: None,
            traceparent: None,
        }
    }

    pub(super) fn circumstances(&self) -> Circumstances {
        Circumstances {
            actor: self.actor.clone(),
            request_id: self.request_id.clone(),
            traceparent: self.traceparent.clone(),
            cause: None,
            contents_left_out: false,
        }
    }
}

/// How a retry of a request is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remember {
    /// Principal and method, and the client's id.
    pub key: RequestKey,
    /// The request's canonical hash.
    pub hash: RequestHash,
}

/// A command was carried out, and what it did is durable.
#[derive(Clone, Debug)]
pub struct Done {
    /// The state after the append that holds it.
    pub session: Arc<Session>,
    /// What an answer needs that the state does not tell; for a retry that of the first time.
    pub outcome: Outcome,
    /// Whether it recorded anything.
    pub recorded: bool,
}

/// What a request's answer says beside the present state; remembered, so that a retry gets the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The thread that it made or was about.
    pub thread: Option<ThreadId>,
    /// That thread's status before.
    pub status_before: Option<StatusKind>,
    /// The input that it queued.
    pub input: Option<InputNumber>,
    /// The edge, handoff or approval that it made or decided.
    pub other: Option<Uuid>,
    /// The threads whose turns it stopped, or asked to stop.
    pub stopped: Vec<ThreadId>,
}
