//! The engine: one actor owns each session in memory, a directory finds the actors, and readers use the state that an
//! actor published.
//!
//! Commands go in through a [`Handle`]. Commits come out through the [`feed`], which is the only way out of a session:
//! the engine knows neither runners nor watchers nor metrics.
//!
//! Invariant: nothing that a crash could undo is published, returned to a caller or used to reject a command. The actor
//! has one append in flight, and releases its working copy only when that append is durable.
//!
//! A session stays in memory while it has work to do, has a [`Handle`], or was used recently. After that its actor ends
//! and leaves no state behind.

mod activate;
mod actor;
mod append;
mod commit;
mod content;
mod deletions;
mod directory;
mod due;
mod error;
pub mod feed;
mod handle;
mod message;
mod passivate;
mod places;
mod quota;
mod requests;
mod shared;
mod stored_contents;
mod stored_requests;
mod table;
mod tail;
mod upkeep_limits;

pub use self::{
    commit::{Commit, ENCODINGS},
    content::{read_content, read_message},
    directory::{Directory, NewSession},
    error::Failure,
    handle::{Begun, Handle, InFlight, Waiting},
    message::{Done, Origin, Remember},
    shared::EngineConfig,
    tail::{Tail, read_log},
    upkeep_limits::UpkeepLimits,
};
