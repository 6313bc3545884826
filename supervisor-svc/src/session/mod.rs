//! Sessions at work: one actor owns each, a directory finds them, and everybody reads the state that the actor published.
//!
//! Invariant: nothing that a crash could undo is ever published, answered or refused upon. The actor has one append in
//! flight and lets go of its working copy only when that append is durable.
//!
//! A session is in memory while it has work to do, somebody has a [`Handle`] to it, or it was used lately; then its actor ends
//! and leaves nothing behind.

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
