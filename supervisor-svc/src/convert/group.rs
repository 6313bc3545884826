//! Groups and their items as messages.

use std::num::NonZeroU32;

use supervisor_log::codec::{
    WireEnum as _,
    group::{limits_to_pb, spec_to_pb, state_to_pb},
    parts::{content_to_pb, duration_to_pb, text_or_empty, time_to_pb, usage_to_pb},
};
use troupe_proto::supervisor::v1 as pb;

use crate::domain::{
    settings::Usage,
    state::{
        group::{Group, GroupStage, Item, ItemState},
        session::Session,
    },
    status::{Settled, Status},
};

/// Builds the message of a group.
#[must_use]
pub fn group(session: &Session, group: &Group) -> pb::Group {
    let (reason, approval) = match &group.stage {
        GroupStage::Ending(_, reason) | GroupStage::Ended(_, reason) => (reason.clone(), None),
        GroupStage::AwaitingApproval(approval) => (String::new(), Some(*approval)),
        GroupStage::Running => (String::new(), None),
    };
    pb::Group {
        session_id: session.id.to_string(),
        parent_thread_id: group.parent.to_string(),
        spec: Some(spec_to_pb(&group.spec)),
        state: state_to_pb(&group.stage).into(),
        reason,
        limits: Some(limits_to_pb(group.limits)),
        pending: group.count_of(ItemState::Pending),
        running: group.count_of(ItemState::Running),
        succeeded: group.count_of(ItemState::Succeeded),
        failed: group.count_of(ItemState::Failed),
        cancelled: group.count_of(ItemState::Cancelled),
        usage: Some(usage_to_pb(group.usage)),
        approval_id: text_or_empty(approval),
        create_time: Some(time_to_pb(group.created)),
        update_time: Some(time_to_pb(group.updated)),
        table_artifact_id: text_or_empty(group.table.as_ref().map(|table| table.id)),
        table: group.table.as_ref().map(|table| content_to_pb(&table.content)),
        estimated_usage: estimated_usage(group).map(usage_to_pb),
    }
}

/// Estimates the total usage of all items. Returns `None` unless the group is open and some items have ended.
fn estimated_usage(group: &Group) -> Option<Usage> {
    let ended = group.count_of(ItemState::Succeeded) + group.count_of(ItemState::Failed);
    let all = ended + group.count_of(ItemState::Running) + group.count_of(ItemState::Pending);
    let ended = NonZeroU32::new(ended).filter(|_| !group.has_ended())?;
    Some(group.usage.scaled(all, ended))
}

/// Builds the message of an item, without its result. `has_texts` says whether the caller sees texts of agents.
#[must_use]
pub fn item(session: &Session, index: u32, key: &str, item: &Item, has_texts: bool) -> pb::GroupItemStatus {
    let thread = item.thread.and_then(|thread| session.thread(thread));
    let shown = |text: &str| if has_texts { text.to_owned() } else { String::new() };
    pb::GroupItemStatus {
        key: key.to_owned(),
        index,
        state: item.state.number(),
        attempts: item.attempts,
        thread_id: text_or_empty(item.thread),
        result: None,
        message: thread
            .and_then(|thread| last_message(&thread.status))
            .map(shown)
            .unwrap_or_default(),
        error: shown(&item.reason),
        usage: thread.map(|thread| usage_to_pb(thread.total_usage())),
        duration: thread.map(|thread| duration_to_pb(thread.updated.since(thread.created))),
    }
}

/// Returns the last message of a thread that completed its turn.
#[must_use]
pub fn last_message(status: &Status) -> Option<&str> {
    match status.settled()? {
        Settled::Completed { message, .. } => message.as_deref(),
        Settled::Errored { .. } | Settled::Interrupted { .. } => None,
    }
}
