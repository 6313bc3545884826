//! Telling people: streams of notifications for clients, and webhooks. What there is to tell is derived from the log
//! ([`domain::notify`](crate::domain::notify)); how far each receiver has come is a cursor in the store, so that what it
//! missed is told later.

mod clients;
mod stream;
mod webhook;

pub use self::{
    clients::{Client, Clients, Kept},
    stream::{NotificationStream, OUTBOX},
    webhook::{BadUrl, Deliveries, Target, WebhookLimits, Webhooks},
};
