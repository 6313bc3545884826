//! Following sessions: a snapshot as of S, then every event after S in order; and beside it the latest telemetry
//! and output. Or all sessions at once, as they are now and then.

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
