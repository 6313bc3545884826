//! Notification streams for clients. Notifications are derived from the log
//! ([`domain::notify`](crate::domain::rules::notify)). Each client's progress is a cursor in the store, so that missed
//! notifications are delivered later.

mod clients;
mod stream;

pub use self::{
    clients::{Client, Clients},
    stream::{NotificationStream, OUTBOX},
};
