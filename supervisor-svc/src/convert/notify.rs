//! Notifications and notification policies.

use std::collections::BTreeSet;

use supervisor_log::codec::{
    enums::WireEnum as _,
    error::{DecodeError, malformed},
    parts::time_to_pb,
};
use troupe_proto::supervisor::v1 as pb;

use crate::domain::{
    ids::SessionId,
    rules::notify::{Notification, NotificationPolicy},
    settings::NotificationKind,
};

/// Builds a session's notification for a receiver to which the given kinds apply.
#[must_use]
pub fn notification_to_pb(
    session: SessionId,
    notification: &Notification,
    kinds: &BTreeSet<NotificationKind>,
    details: bool,
) -> pb::Notification {
    pb::Notification {
        sequence: notification.sequence.get(),
        session_id: session.to_string(),
        thread_id: notification.thread.to_string(),
        kinds: kinds.iter().map(|kind| kind.number()).collect(),
        text: notification.text(details),
        time: Some(time_to_pb(notification.time)),
    }
}

/// Builds the message of a policy.
#[must_use]
pub fn policy_to_pb(policy: &NotificationPolicy) -> pb::NotificationPolicy {
    match policy {
        NotificationPolicy::Off => pb::NotificationPolicy {
            off: true,
            ..pb::NotificationPolicy::default()
        },
        NotificationPolicy::All => pb::NotificationPolicy {
            all: true,
            ..pb::NotificationPolicy::default()
        },
        NotificationPolicy::Kinds(kinds) => pb::NotificationPolicy {
            kinds: kinds.iter().map(|kind| kind.number()).collect(),
            ..pb::NotificationPolicy::default()
        },
    }
}

/// Converts a policy from its message. An empty message is the default policy.
///
/// # Errors
/// If the message is contradictory or names an unknown kind.
pub fn policy_from_pb(policy: pb::NotificationPolicy) -> Result<NotificationPolicy, DecodeError> {
    match (policy.off, policy.all, policy.kinds.is_empty()) {
        (true, false, true) => Ok(NotificationPolicy::Off),
        (false, true, true) => Ok(NotificationPolicy::All),
        (false, false, true) => Ok(NotificationPolicy::default()),
        (false, false, false) => {
            let kinds: Result<BTreeSet<_>, _> = policy.kinds.into_iter().map(NotificationKind::from_number).collect();
            Ok(NotificationPolicy::Kinds(kinds?))
        }
        _ => Err(malformed("give one of off, all and kinds")),
    }
}
