//! Sessions at work: one actor owns each, a directory finds them, and everybody reads the state that the actor published.
//!
//! Invariant: nothing that a crash could undo is ever published, answered or refused upon. The actor has one append in
//! flight and lets go of its working copy only when that append is durable.

mod actor;
mod auto;
mod batch;
mod denials;
mod directory;
mod dispatch;
mod effects;
mod failure;
mod handle;
mod load;
mod message;
mod remembered;
mod silence;
pub mod tool_calls;

pub use self::{
    denials::Denials,
    directory::{Context, Directory, NewSession},
    dispatch::digest,
    failure::Failure,
    handle::{Begun, Commit, Handle, InFlight, Waiting},
    message::{Done, Origin, Outcome, Remember},
};
