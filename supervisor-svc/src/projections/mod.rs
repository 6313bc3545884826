//! Readers of the commit feed and of the sessions' state: watches, notifications, webhooks, the overview of all
//! sessions, and metrics. A projection never changes a session.

pub mod metrics;
pub mod notifications;
pub mod overview;
pub(crate) mod stream_end;
pub mod thread_view;
pub mod watch;
pub mod webhooks;
