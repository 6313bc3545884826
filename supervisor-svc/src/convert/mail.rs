//! Mail as clients see it.

use supervisor_log::codec::group::outcome_to_pb;
use supervisor_log::codec::parts::{handoff_to_pb, time_to_pb};
use troupe_proto::supervisor::v1::{self as pb, mail};

use super::thread::status;
use crate::domain::state::mailbox::{Body, Letter};

/// Builds the message of a letter.
#[must_use]
pub fn letter_to_pb(letter: &Letter, acknowledged: bool) -> pb::Mail {
    let body = match &letter.body {
        Body::Handoff(handoff) => mail::Body::Handoff(handoff_to_pb(handoff)),
        Body::GroupEnded {
            group,
            outcome,
            reason,
            table,
        } => mail::Body::GroupEnded(pb::GroupEnded {
            group_id: group.to_string(),
            outcome: outcome_to_pb(*outcome).into(),
            reason: reason.clone(),
            artifact_id: table.to_string(),
            table: None,
        }),
        Body::Settled { child, status: settled } => mail::Body::Settled(pb::ThreadStatus {
            thread_id: child.to_string(),
            status: Some(status(settled, letter.time)),
            ..pb::ThreadStatus::default()
        }),
    };
    pb::Mail {
        sequence: letter.sequence.get(),
        time: Some(time_to_pb(letter.time)),
        acknowledged,
        body: Some(body),
    }
}
