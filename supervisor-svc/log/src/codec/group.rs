//! Conversion of groups in events, messages and snapshots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use imbl::Vector;
use supervisor_core::{
    event::Artifact,
    group::{GroupLimits, GroupOutcome, GroupSpec, Join, OnFailure},
    ids::{GroupId, ThreadId, Turn},
    state::group::{Group, GroupStage, Item, ItemState},
    time::UnixMillis,
};
use troupe_proto::{
    store::v1::{self as store, Private},
    supervisor::v1 as pb,
};

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, newer, required},
    parts::{
        bounded, content_to_pb, duration_to_pb, id_bytes, non_empty, spent, stored_actor, stored_bounds,
        stored_content, stored_id, stored_spent, stored_text, stored_text_or_none, text_or_empty, zero_bounds,
    },
};

/// Converts the properties of a group to their message.
#[must_use]
pub fn spec_to_pb(spec: &GroupSpec) -> pb::GroupSpec {
    let (join, quorum) = match spec.join {
        Join::All => (pb::GroupJoin::All, 0),
        Join::Quorum(1) => (pb::GroupJoin::Any, 1),
        Join::Quorum(quorum) => (pb::GroupJoin::Quorum, quorum),
    };
    pb::GroupSpec {
        group_id: spec.id.to_string(),
        name: spec.name.clone(),
        creator: spec.creator.to_string(),
        plan: Some(content_to_pb(&spec.plan)),
        item_count: spec.item_count,
        join: join.into(),
        quorum,
        on_failure: spec.on_failure.number(),
        item_deadline: spec.item_deadline.map(duration_to_pb),
        retries: spec.retries,
        budget: bounded(spec.budget),
        limits: Some(limits_to_pb(spec.limits)),
    }
}

pub(super) fn stored_spec(spec: pb::GroupSpec, private: &Private) -> Result<Arc<GroupSpec>, DecodeError> {
    let join = match spec.join() {
        pb::GroupJoin::All => Join::All,
        pb::GroupJoin::Any => Join::Quorum(1),
        pb::GroupJoin::Quorum => Join::Quorum(spec.quorum),
        pb::GroupJoin::Unspecified => return Err(malformed("a group without a join")),
    };
    Ok(Arc::new(GroupSpec {
        id: stored_text(&spec.group_id, "a group's id")?,
        creator: stored_actor(&spec.creator)?,
        plan: stored_content(spec.plan, "a group's plan")?,
        name: spec.name,
        item_count: spec.item_count,
        join,
        on_failure: OnFailure::from_number(spec.on_failure)?,
        item_deadline: match spec.item_deadline {
            Some(span) => Some(Duration::try_from(span).map_err(|_| malformed("an item's deadline"))?),
            None => None,
        },
        retries: spec.retries,
        budget: stored_bounds(spec.budget, private)?,
        limits: stored_limits(required(spec.limits, "a group's limits")?),
    }))
}

/// Converts the limits of a group to their message.
#[must_use]
pub const fn limits_to_pb(limits: GroupLimits) -> pb::GroupLimits {
    pb::GroupLimits {
        max_concurrency: limits.max_concurrency,
        tolerated_failures: limits.tolerated_failures,
        paused: limits.paused,
    }
}

pub(super) const fn stored_limits(limits: pb::GroupLimits) -> GroupLimits {
    GroupLimits {
        max_concurrency: limits.max_concurrency,
        tolerated_failures: limits.tolerated_failures,
        paused: limits.paused,
    }
}

/// Converts the outcome of a group to a state.
#[must_use]
pub const fn outcome_to_pb(outcome: GroupOutcome) -> pb::GroupState {
    match outcome {
        GroupOutcome::Succeeded => pb::GroupState::Succeeded,
        GroupOutcome::Failed => pb::GroupState::Failed,
        GroupOutcome::Cancelled => pb::GroupState::Cancelled,
    }
}

pub(super) fn stored_outcome(number: i32) -> Result<GroupOutcome, DecodeError> {
    match pb::GroupState::try_from(number) {
        Ok(pb::GroupState::Succeeded) => Ok(GroupOutcome::Succeeded),
        Ok(pb::GroupState::Failed) => Ok(GroupOutcome::Failed),
        Ok(pb::GroupState::Cancelled) => Ok(GroupOutcome::Cancelled),
        Ok(_) => Err(malformed("a group without an outcome")),
        Err(_) => Err(newer(format!("state {number} of groups"))),
    }
}

/// Returns the state of a group.
#[must_use]
pub const fn state_to_pb(stage: &GroupStage) -> pb::GroupState {
    match stage {
        GroupStage::AwaitingApproval(_) => pb::GroupState::AwaitingApproval,
        GroupStage::Running => pb::GroupState::Running,
        GroupStage::Ending(..) => pb::GroupState::Ending,
        GroupStage::Ended(outcome, _) => outcome_to_pb(*outcome),
    }
}

pub(super) fn ended_to_pb(group: GroupId, outcome: GroupOutcome, reason: &str, table: &Artifact) -> pb::GroupEnded {
    pb::GroupEnded {
        group_id: group.to_string(),
        outcome: outcome_to_pb(outcome).into(),
        reason: reason.to_owned(),
        artifact_id: table.id.to_string(),
        table: Some(content_to_pb(&table.content)),
    }
}

/// The name of the artifact with the results of a group.
pub const TABLE_NAME: &str = "group-results.json";
/// The kind of that artifact.
pub const TABLE_KIND: &str = "group-results";
/// The media type of that artifact.
pub const TABLE_MEDIA_TYPE: &str = "application/json";

pub(super) fn stored_table(id: &str, content: Option<pb::ContentRef>) -> Result<Artifact, DecodeError> {
    Ok(Artifact {
        id: stored_text(id, "an artifact's id")?,
        name: TABLE_NAME.to_owned(),
        kind: TABLE_KIND.to_owned(),
        media_type: TABLE_MEDIA_TYPE.to_owned(),
        content: stored_content(content, "a table of results")?,
        turn: Turn::ZERO,
    })
}

pub(super) fn group_to_store(group: &Group) -> store::GroupStateRecord {
    let (outcome, reason) = match &group.stage {
        GroupStage::Ending(outcome, reason) | GroupStage::Ended(outcome, reason) => {
            (outcome_to_pb(*outcome), reason.clone())
        }
        GroupStage::AwaitingApproval(_) | GroupStage::Running => (pb::GroupState::Unspecified, String::new()),
    };
    let approval = match &group.stage {
        GroupStage::AwaitingApproval(approval) => Some(*approval),
        GroupStage::Running | GroupStage::Ending(..) | GroupStage::Ended(..) => None,
    };
    let table = group.table.as_ref().map(|table| pb::ArtifactRecorded {
        artifact_id: table.id.to_string(),
        content: Some(content_to_pb(&table.content)),
        ..pb::ArtifactRecorded::default()
    });
    let deadlines: BTreeMap<u32, UnixMillis> = group.deadlines().collect();
    let items = (0_u32..).zip(&group.items).map(|(index, item)| store::GroupItemRecord {
        state: item.state.number(),
        attempts: item.attempts,
        thread: item.thread.map(id_bytes).unwrap_or_default(),
        reason: item.reason.as_ref().to_owned(),
        deadline: deadlines.get(&index).copied().map_or(0, UnixMillis::get),
    });
    store::GroupStateRecord {
        spec: Some(spec_to_pb(&group.spec)),
        spec_private: non_empty(zero_bounds(group.spec.budget)).map(|private| *private),
        parent: id_bytes(group.parent),
        limits: Some(limits_to_pb(group.limits)),
        stage: state_to_pb(&group.stage).into(),
        outcome: outcome.into(),
        reason,
        approval_id: text_or_empty(approval),
        items: items.collect(),
        created: group.created.get(),
        updated: group.updated.get(),
        usage: spent(group.usage),
        table,
    }
}

pub(super) fn stored_group(state: store::GroupStateRecord) -> Result<Group, DecodeError> {
    let private = state.spec_private.unwrap_or_default();
    let spec = stored_spec(required(state.spec, "a group's properties")?, &private)?;
    let approval = stored_text_or_none(&state.approval_id, "an approval's id")?;
    let stage = match (pb::GroupState::try_from(state.stage), approval) {
        (Ok(pb::GroupState::AwaitingApproval), Some(approval)) => GroupStage::AwaitingApproval(approval),
        (Ok(pb::GroupState::Running), _) => GroupStage::Running,
        (Ok(pb::GroupState::Ending), _) => GroupStage::Ending(stored_outcome(state.outcome)?, state.reason),
        (Ok(_), _) => GroupStage::Ended(stored_outcome(state.outcome)?, state.reason),
        (Err(_), _) => return Err(newer(format!("state {} of groups", state.stage))),
    };
    let mut items = Vector::new();
    let mut deadlines = Vec::new();
    for (index, item) in (0_u32..).zip(state.items) {
        if item.deadline > 0 {
            deadlines.push((UnixMillis::new(item.deadline), index));
        }
        items.push_back(Item {
            state: ItemState::from_number(item.state)?,
            attempts: item.attempts,
            thread: match item.thread.is_empty() {
                true => None,
                false => Some(stored_id(&item.thread)?),
            },
            reason: item.reason.into(),
        });
    }
    let parent: ThreadId = stored_id(&state.parent)?;
    let created = UnixMillis::new(state.created);
    let mut group = Group::restored(spec, parent, stage, created, items);
    group.restore_deadlines(deadlines);
    group.limits = stored_limits(required(state.limits, "a group's limits")?);
    group.updated = UnixMillis::new(state.updated);
    group.usage = stored_spent(state.usage)?;
    group.table = match state.table {
        Some(table) => Some(stored_table(&table.artifact_id, table.content)?),
        None => None,
    };
    Ok(group)
}
