//! The one place where the time of day and new ids come from.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::domain::{
    ids::{ApprovalId, EdgeId, HandoffId, SessionId, ThreadId, WaitId},
    time::UnixMillis,
};

/// The time of day.
#[must_use]
pub fn now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// A new session's id: UUIDv7, so that ids sort by creation.
#[must_use]
pub fn new_session_id() -> SessionId {
    SessionId::from_uuid(Uuid::now_v7())
}

/// A new thread's id.
#[must_use]
pub fn new_thread_id() -> ThreadId {
    ThreadId::from_uuid(Uuid::now_v7())
}

/// A new approval's id.
#[must_use]
pub fn new_approval_id() -> ApprovalId {
    ApprovalId::from_uuid(Uuid::now_v7())
}

/// A new edge's id.
#[must_use]
pub fn new_edge_id() -> EdgeId {
    EdgeId::from_uuid(Uuid::now_v7())
}

/// A new handoff's id.
#[must_use]
pub fn new_handoff_id() -> HandoffId {
    HandoffId::from_uuid(Uuid::now_v7())
}

/// A new wait's id.
#[must_use]
pub fn new_wait_id() -> WaitId {
    WaitId::from_uuid(Uuid::now_v7())
}
