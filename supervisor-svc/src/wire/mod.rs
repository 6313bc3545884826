//! Conversion between the domain and the API's messages that are not part of the log. The conversions that the log
//! shares with the API are in `supervisor_log::codec`. This module contains no domain rules.

pub mod approval;
pub mod mail;
pub mod marked;
pub mod notify;
pub mod resolved;
mod sight;
pub mod status;
pub mod thread;

pub use self::{resolved::Resolution, sight::Sight, thread::View};
