//! The state of a session, folded from its events. It calls no rules.

pub mod approval;
pub mod group;
pub mod mailbox;
mod orchestrator;
mod roles;
pub mod session;
pub mod thread;
pub mod wait;
pub mod webhook;

pub(crate) use self::orchestrator::completion_mark;
