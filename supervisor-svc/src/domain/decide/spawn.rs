//! Spawning: the checks of CONTRACT 3.1 in their order. They run twice: [`admit`] before the registry is asked, and all of
//! them again in `commit`, because the registry's answer comes back to a session that may have changed meanwhile.

use std::sync::Arc;

use tool_policy::Rights;

use crate::domain::{
    actor::Caller,
    authority,
    command::Spawn,
    event::{Event, Spawned, ThreadEvent},
    ids::ThreadId,
    limits,
    refusal::Refusal,
    session::Session,
    settings::OnLimit,
    status::StatusKind,
    thread::Thread,
};

/// What a spawn asks for, as far as the checks before the registry care.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The parent.
    pub parent: ThreadId,
    /// The role or graph template; `default` where none is named.
    pub agent_type: &'a str,
    /// The alias; empty: none.
    pub alias: &'a str,
}

/// Authority of a caller over the parent; the first of the checks, before a request_id is looked up.
///
/// # Errors
/// See [`authority::authorize`].
pub fn authorize<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Refusal> {
    authority::authorize(session, wanted.caller, "SpawnAgent", wanted.parent)
}

/// Every check that needs no template; answers the parent.
///
/// # Errors
/// The first check that fails.
pub fn admit<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Refusal> {
    let parent = authorize(session, wanted)?;
    super::may_start_in(session, parent)?;
    limits::child_depth(session, parent)?;
    gate(session, wanted, parent)?;
    free_alias(session, wanted.alias)?;
    Ok(parent)
}

/// The spawn gate: the caller's role says which roles it may spawn, wherever in its subtree, and so does the parent's;
/// operators pass.
fn gate(session: &Session, wanted: &Wanted<'_>, parent: &Thread) -> Result<(), Refusal> {
    let Some(caller) = wanted.caller.thread().and_then(|id| session.thread(id)) else {
        return Ok(());
    };
    for spawner in [caller, parent] {
        if !lists(spawner, wanted.agent_type) {
            return Err(Refusal::SpawnNotAllowed {
                caller: spawner.spawned.agent_type.clone(),
                wanted: wanted.agent_type.to_owned(),
                allowed: spawner.spawned.spawn_list.clone(),
            });
        }
    }
    Ok(())
}

/// Whether a thread's role lets it spawn that role.
#[must_use]
pub fn lists(spawner: &Thread, agent_type: &str) -> bool {
    let allowed = &spawner.spawned.spawn_list;
    allowed.is_empty() || allowed.iter().any(|name| same_role(name, agent_type))
}

/// Kebab and snake spellings name the same role.
fn same_role(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn free_alias(session: &Session, alias: &str) -> Result<(), Refusal> {
    if alias.is_empty() {
        return Ok(());
    }
    match session.thread_by_alias(alias) {
        None => Ok(()),
        Some(by) => Err(Refusal::AliasInUse {
            alias: alias.to_owned(),
            by,
        }),
    }
}

/// The whole decision, once the template is resolved.
pub(super) fn commit(session: &Session, spawn: &Spawn) -> Result<Vec<Event>, Refusal> {
    let Some(parent) = spawn.spawned.parent else {
        return Err(Refusal::ThreadNotFound(String::new()));
    };
    let wanted = Wanted {
        caller: &spawn.caller,
        parent,
        agent_type: &spawn.spawned.agent_type,
        alias: &spawn.spawned.alias,
    };
    let parent = admit(session, &wanted)?;
    limits::room_for_one(session)?;
    let first_status = match (limits::slot_for_newcomer(session), spawn.on_limit) {
        (true, _) => StatusKind::PendingInit,
        (false, OnLimit::Queue) => StatusKind::Queued,
        (false, OnLimit::Refuse) => return Err(limits::no_slot(session)),
    };
    let rights = child_rights(session, parent, spawn)?;
    let spawned = Spawned {
        depth: limits::child_depth(session, parent)?,
        first_status,
        sandbox: spawn.spawned.sandbox.min(parent.sandbox),
        effective: rights.effective,
        grant: rights.grant,
        ..spawn.spawned.clone()
    };
    Ok(vec![Event::Thread(spawn.id, ThreadEvent::Spawned(Arc::new(spawned)))])
}

/// What the child may use and hand on: never more than its parent may grant.
fn child_rights(session: &Session, parent: &Thread, spawn: &Spawn) -> Result<Rights, Refusal> {
    let inheritance = session.settings.policy_inheritance;
    let source = match inheritance {
        tool_policy::Inheritance::Attenuate => &parent.grant,
        tool_policy::Inheritance::Ceiling => &session.ceiling,
    };
    Ok(Rights::child(
        source,
        &spawn.role_layers,
        &spawn.grant_list,
        &spawn.spawned.agent_type,
        inheritance,
    )?)
}
