//! Notification delivery: notification streams for clients, and webhooks. Notifications are derived from the log
//! ([`domain::notify`](crate::domain::rules::notify)). Each receiver's progress is a cursor in the store, so that missed
//! notifications are delivered later.

mod clients;
mod stream;
mod webhook;

pub use self::{
    clients::{Client, Clients, Kept},
    stream::{NotificationStream, OUTBOX},
    webhook::{BadUrl, Deliveries, Target, WebhookLimits, Webhooks},
};
