//! Conversion between the domain and the API's messages that are not part of the log. The conversions that the log
//! shares with the API are in `supervisor_log::codec`. This module contains no domain rules.

pub mod approval;
pub mod group;
pub mod mail;
pub mod marked;
pub mod notify;
mod redaction;
pub mod status;
pub mod thread;

pub use self::{redaction::Redaction, thread::View};
