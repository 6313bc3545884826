//! Conversion of the properties of a thread that its spawn fixes.

use std::{collections::BTreeMap, mem::take, sync::Arc};

use supervisor_core::{
    event::{Role, Spawned, ValueOrigin},
    group::ItemRef,
    ids::{Generation, ThreadId},
    settings::{Budget, ClosePolicy, EdgeManagement, Sandbox, WakePolicy},
    status::StatusKind,
};
use tool_policy::Policy;
use troupe_proto::{store::v1::Private, supervisor::v1 as pb};

use super::{
    enums::WireEnum as _,
    error::{DecodeError, UnknownValue},
    parts::{
        bounded, budget_to_pb, content_from_pb, content_to_pb, source_from_pb, source_to_pb, stored_budget,
        stored_text_or_none, text_or_empty,
    },
    policy,
};

/// The generation of a new thread.
const FIRST_GENERATION: Generation = Generation::new(1);

pub(super) fn spawned_to_pb(spawned: &Spawned) -> pb::ThreadSpawned {
    let mut message = own_to_pb(spawned);
    message.parent_thread_id = text_or_empty(spawned.parent);
    message.budget = Some(budget_to_pb(spawned.budget));
    add_role(&mut message, &spawned.role);
    message.thread_note = spawned.note.as_ref().to_owned();
    message.tool_policy = Some(policy::to_proto(&spawned.effective));
    message.grant = Some(policy::to_proto(&spawned.grant));
    message
}

/// Converts the fixed fields of one spawn for a snapshot; see [`SnapshotFields`] for the rest.
pub(super) fn own_to_pb(spawned: &Spawned) -> pb::ThreadSpawned {
    pb::ThreadSpawned {
        depth: spawned.depth,
        generation: FIRST_GENERATION.get(),
        first_status: spawned.first_status.number(),
        alias: spawned.alias.clone(),
        label: spawned.label.clone(),
        working_directory: spawned.working_directory.as_ref().to_owned(),
        sandbox: spawned.sandbox.number(),
        edge_management: spawned.edge_management.number(),
        budget: bounded(spawned.budget),
        close_policy: spawned.close_policy.number(),
        wake_policy: spawned.wake_policy.number(),
        input: spawned.input.as_ref().map(content_to_pb),
        result_repairs: spawned.result_repairs,
        group_id: text_or_empty(spawned.item.map(|item| item.group)),
        group_item: spawned.item.map_or(0, |item| item.item),
        client_owned: spawned.client_owned,
        ..pb::ThreadSpawned::default()
    }
}

/// Fields that a snapshot stores in addition to the message, or in a different form than a record. In a snapshot, no
/// field may be missing. Equal values of several spawns are shared.
pub(super) struct SnapshotFields {
    pub parent: Option<ThreadId>,
    pub budget: Budget,
    pub role: Arc<Role>,
    pub note: Arc<str>,
    /// The effective policy at the time of the spawn.
    pub effective: Policy,
    pub grant: Policy,
}

/// Converts the fields of a role.
pub(super) fn role_to_pb(role: &Role) -> pb::ThreadSpawned {
    let mut message = pb::ThreadSpawned::default();
    add_role(&mut message, role);
    message
}

fn add_role(message: &mut pb::ThreadSpawned, role: &Role) {
    message.agent_type.clone_from(&role.agent_type);
    message.agent_name.clone_from(&role.agent_name);
    message.agent_description.clone_from(&role.agent_description);
    message.model.clone_from(&role.model);
    message.reasoning_effort.clone_from(&role.reasoning_effort);
    message.provider.clone_from(&role.provider);
    message.origins = origins_to_pb(&role.origins);
    message.spawn_list.clone_from(&role.spawn_list);
    message.source = role.source.as_ref().map(source_to_pb);
    message.resolved = role.resolved.as_ref().map(content_to_pb);
}

pub(super) fn stored_spawned(mut spawned: Box<pb::ThreadSpawned>, private: &Private) -> Result<Spawned, DecodeError> {
    let (effective, grant) = policy::stored_rights(spawned.tool_policy.take(), spawned.grant.take())?;
    let fields = SnapshotFields {
        parent: stored_text_or_none(&spawned.parent_thread_id, "the parent")?,
        budget: stored_budget(spawned.budget, private)?,
        role: Arc::new(stored_role(&mut spawned)?),
        note: take(&mut spawned.thread_note).into(),
        effective,
        grant,
    };
    stored_own(spawned, fields)
}

/// Takes the fields of a role out of the message.
pub(super) fn stored_role(spawned: &mut pb::ThreadSpawned) -> Result<Role, DecodeError> {
    Ok(Role {
        agent_type: take(&mut spawned.agent_type),
        agent_name: take(&mut spawned.agent_name),
        agent_description: take(&mut spawned.agent_description),
        model: take(&mut spawned.model),
        reasoning_effort: take(&mut spawned.reasoning_effort),
        provider: take(&mut spawned.provider),
        origins: origins_from_pb(take(&mut spawned.origins))?,
        spawn_list: take(&mut spawned.spawn_list),
        source: spawned.source.take().map(source_from_pb).transpose()?,
        resolved: spawned.resolved.take().map(content_from_pb).transpose()?,
    })
}

/// Combines the output of [`own_to_pb`] with the fields that it omits.
pub(super) fn stored_own(spawned: Box<pb::ThreadSpawned>, fields: SnapshotFields) -> Result<Spawned, DecodeError> {
    let SnapshotFields {
        parent,
        budget,
        role,
        note,
        effective,
        grant,
    } = fields;
    Ok(Spawned {
        parent,
        depth: spawned.depth,
        first_status: StatusKind::from_number(spawned.first_status)?,
        client_owned: spawned.client_owned,
        role,
        alias: spawned.alias,
        label: spawned.label,
        note,
        working_directory: spawned.working_directory.into(),
        sandbox: Sandbox::from_number(spawned.sandbox)?,
        effective,
        grant,
        edge_management: EdgeManagement::from_number(spawned.edge_management)?,
        budget,
        close_policy: ClosePolicy::from_number(spawned.close_policy)?,
        wake_policy: WakePolicy::from_number(spawned.wake_policy)?,
        input: spawned.input.map(content_from_pb).transpose()?,
        result_repairs: spawned.result_repairs,
        item: stored_text_or_none(&spawned.group_id, "a group's id")?.map(|group| ItemRef {
            group,
            item: spawned.group_item,
        }),
    })
}

/// Converts the origins of a role's values to their message.
#[must_use]
pub fn origins_to_pb(origins: &BTreeMap<String, ValueOrigin>) -> BTreeMap<String, i32> {
    origins
        .iter()
        .map(|(field, origin)| (field.clone(), origin.number()))
        .collect()
}

/// Converts the origins of a role's values from their message.
///
/// # Errors
/// If an origin is unknown.
pub fn origins_from_pb(origins: BTreeMap<String, i32>) -> Result<BTreeMap<String, ValueOrigin>, UnknownValue> {
    origins
        .into_iter()
        .map(|(field, number)| ValueOrigin::from_number(number).map(|origin| (field, origin)))
        .collect()
}
