//! What a spawn fixed about a thread.

use std::collections::BTreeMap;

use tool_policy::Policy;
use troupe_proto::{store::v1::Private, supervisor::v1 as pb};

use super::{
    enums::WireEnum as _,
    error::{DecodeError, UnknownValue, required},
    parts::{
        budget_to_pb, content_from_pb, content_to_pb, source_from_pb, source_to_pb, stored_budget, stored_text_or_none,
        text_or_empty,
    },
    policy,
};
use crate::domain::{
    event::{Spawned, ValueOrigin},
    ids::Generation,
    settings::{ClosePolicy, EdgeManagement, Sandbox, WakePolicy},
    status::StatusKind,
};

/// The attempt that every thread begins with.
const FIRST_GENERATION: Generation = Generation::new(1);

pub(super) fn spawned_to_pb(spawned: &Spawned) -> pb::ThreadSpawned {
    pb::ThreadSpawned {
        tool_policy: Some(policy::to_proto(&spawned.effective)),
        grant: Some(policy::to_proto(&spawned.grant)),
        ..without_policies(spawned)
    }
}

/// Everything but the policies: a snapshot keeps each of them once for all threads.
pub(super) fn without_policies(spawned: &Spawned) -> pb::ThreadSpawned {
    pb::ThreadSpawned {
        parent_thread_id: text_or_empty(spawned.parent),
        depth: spawned.depth,
        generation: FIRST_GENERATION.get(),
        first_status: spawned.first_status.number(),
        agent_type: spawned.agent_type.clone(),
        agent_name: spawned.agent_name.clone(),
        agent_description: spawned.agent_description.clone(),
        alias: spawned.alias.clone(),
        label: spawned.label.clone(),
        thread_note: spawned.note.clone(),
        working_directory: spawned.working_directory.clone(),
        model: spawned.model.clone(),
        reasoning_effort: spawned.reasoning_effort.clone(),
        provider: spawned.provider.clone(),
        origins: origins_to_pb(&spawned.origins),
        sandbox: spawned.sandbox.number(),
        tool_policy: None,
        grant: None,
        spawn_list: spawned.spawn_list.clone(),
        edge_management: spawned.edge_management.number(),
        source: spawned.source.as_ref().map(source_to_pb),
        resolved: spawned.resolved.as_ref().map(content_to_pb),
        budget: Some(budget_to_pb(spawned.budget)),
        close_policy: spawned.close_policy.number(),
        wake_policy: spawned.wake_policy.number(),
        input: spawned.input.as_ref().map(content_to_pb),
        client_owned: spawned.client_owned,
    }
}

pub(super) fn stored_spawned(mut spawned: pb::ThreadSpawned, private: &Private) -> Result<Spawned, DecodeError> {
    // Without a policy everything would be allowed, so that one is missing is never taken for that.
    let effective = policy::from_proto(required(spawned.tool_policy.take(), "the tool policy")?)?;
    let grant = policy::from_proto(required(spawned.grant.take(), "the grant")?)?;
    with_policies(spawned, private, effective, grant)
}

/// What [`without_policies`] took apart.
pub(super) fn with_policies(
    spawned: pb::ThreadSpawned,
    private: &Private,
    effective: Policy,
    grant: Policy,
) -> Result<Spawned, DecodeError> {
    Ok(Spawned {
        parent: stored_text_or_none(&spawned.parent_thread_id, "the parent")?,
        depth: spawned.depth,
        first_status: StatusKind::from_number(spawned.first_status)?,
        client_owned: spawned.client_owned,
        agent_type: spawned.agent_type,
        agent_name: spawned.agent_name,
        agent_description: spawned.agent_description,
        alias: spawned.alias,
        label: spawned.label,
        note: spawned.thread_note,
        working_directory: spawned.working_directory,
        model: spawned.model,
        reasoning_effort: spawned.reasoning_effort,
        provider: spawned.provider,
        origins: origins_from_pb(spawned.origins)?,
        sandbox: Sandbox::from_number(spawned.sandbox)?,
        effective,
        grant,
        spawn_list: spawned.spawn_list,
        edge_management: EdgeManagement::from_number(spawned.edge_management)?,
        source: spawned.source.map(source_from_pb).transpose()?,
        resolved: spawned.resolved.map(content_from_pb).transpose()?,
        budget: stored_budget(spawned.budget, private)?,
        close_policy: ClosePolicy::from_number(spawned.close_policy)?,
        wake_policy: WakePolicy::from_number(spawned.wake_policy)?,
        input: spawned.input.map(content_from_pb).transpose()?,
    })
}

fn origins_to_pb(origins: &BTreeMap<String, ValueOrigin>) -> BTreeMap<String, i32> {
    origins
        .iter()
        .map(|(field, origin)| (field.clone(), origin.number()))
        .collect()
}

pub(super) fn origins_from_pb(origins: BTreeMap<String, i32>) -> Result<BTreeMap<String, ValueOrigin>, UnknownValue> {
    origins
        .into_iter()
        .map(|(field, number)| ValueOrigin::from_number(number).map(|origin| (field, origin)))
        .collect()
}
