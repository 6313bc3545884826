//! Mail: what a thread is told by others. A letter is derived from the event that sent it and named by that event's
//! sequence; it stays until it is acknowledged.

use std::sync::Arc;

use super::{
    event::Handoff,
    ids::{Sequence, ThreadId},
    status::Status,
    time::UnixMillis,
};

/// How many handoffs wait in one mailbox at most. Settlings of children need no bound: only a child's latest counts.
pub const MAX_HANDOFFS: usize = 1_000;

/// One piece of mail.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// The event that it comes from.
    pub sequence: Sequence,
    /// When that event was recorded.
    pub time: UnixMillis,
    /// What it says.
    pub body: Body,
}

/// What a letter says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Somebody handed work or results over.
    Handoff(Arc<Handoff>),
    /// A child settled or was closed.
    Settled {
        /// The child.
        child: ThreadId,
        /// Where it stood then.
        status: Status,
    },
}
