//! Origins, retry keys and results of commands.

use std::sync::Arc;

use supervisor_log::store::{RequestHash, RequestKey};
use uuid::Uuid;

use crate::domain::{
    event::EventMetadata,
    ids::{InputNumber, ThreadId},
    principal::Actor,
    rejection::Rejection,
    state::session::Session,
    status::StatusKind,
};

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

impl Remember {
    /// Checks the hash of an earlier request with the same key.
    ///
    /// # Errors
    /// [`Rejection::RequestIdReused`] if it was another request.
    pub(super) fn check(&self, earlier: &[u8]) -> Result<(), Rejection> {
        if self.hash == *earlier {
            return Ok(());
        }
        Err(Rejection::RequestIdReused(self.key.request_id.clone()))
    }
}

/// The result of a command whose events are durable.
#[derive(Clone, Debug)]
pub struct Done {
    /// The state after the append that contains the events.
    pub session: Arc<Session>,
    /// The parts of the reply that the state does not contain. A retry gets the parts of the first call.
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
