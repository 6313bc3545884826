//! Session watches. A watch of one session sends a snapshot as of a sequence number and then every later event in
//! order, together with the latest telemetry and output. A watch of all sessions sends their current state at
//! intervals.

mod encoded;
pub(crate) mod sessions;
pub(crate) mod snapshot;
pub(crate) mod stream;

pub use self::{
    sessions::SessionsWatch,
    stream::{Position, Scope, ThreadWatch, WatchLimits, WatchSources},
};
