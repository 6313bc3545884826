//! Loaded sessions: one actor owns each session, a directory finds them, and readers use the state that the actor
//! published.
//!
//! Invariant: nothing that a crash could undo is published, returned to a caller or used to reject a command. The actor
//! has one append in flight, and releases its working copy only when that append is durable.
//!
//! A session stays in memory while it has work to do, has a [`Handle`], or was used recently. After that its actor ends
//! and leaves no state behind.

mod actor;
mod auto;
mod batch;
mod deletions;
mod denials;
mod directory;
mod dispatch;
mod effects;
mod failure;
mod handle;
mod heard;
mod load;
mod message;
mod news;
mod overview;
mod remembered;
mod room;
mod silence;
mod steer;
mod stored;
pub mod tool_calls;
mod upkeep;
mod waking;

pub use self::{
    deletions::Deletions,
    denials::Denials,
    directory::{Context, Directory, NewSession},
    failure::Failure,
    handle::{Begun, Commit, Handle, InFlight, Waiting},
    heard::HeardDecisions,
    message::{Done, Origin, Outcome, Remember},
    news::{Follower, News},
    overview::Filter,
    upkeep::UpkeepLimits,
};
