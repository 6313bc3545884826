//! Session watches. A watch of one session sends a snapshot as of S and then every later event in order, together with
//! the latest telemetry and output. A watch of all sessions sends their current state at intervals.

mod board;
pub mod encoded;
pub(crate) mod limits;
mod output;
mod route;
mod sessions;
pub mod snapshot;
mod stream;
mod tail;
mod telemetry;

pub use self::{
    output::{OutputBoard, Piece},
    route::{BeginWatch, Messages, WatchMethod},
    sessions::SessionsWatch,
    stream::{Position, Scope, ThreadWatch, WatchLimits},
    telemetry::TelemetryBoard,
};
pub(crate) use self::{
    stream::{RESUME, draining},
    tail::{Tail, read_log},
};
