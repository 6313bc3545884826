//! Spawning: the checks of CONTRACT 3.1 in their order. They run twice: [`admit`] before the registry is asked, and all of
//! them again in `commit`, because the registry's answer comes back to a session that may have changed meanwhile.

use std::sync::Arc;

use tool_policy::Rights;

use crate::domain::{
    actor::Caller,
    approval::{self, APPROVAL_TIMEOUT},
    authority, budget,
    command::Spawn,
    event::{ApprovalKind, Event, Role, Spawned, ThreadEvent},
    graph,
    ids::ThreadId,
    limits,
    refusal::Refusal,
    session::Session,
    settings::{EdgeManagement, OnLimit},
    status::StatusKind,
    thread::Thread,
    time::UnixMillis,
};

/// The role that a spawn names. The two namespaces have names in common, which mean different templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedRole<'a> {
    /// An agent type; `default` where none is named.
    AgentType(&'a str),
    /// A graph template.
    RoleTemplate(&'a str),
}

impl<'a> WantedRole<'a> {
    /// What names that role.
    pub(super) fn of(role: &'a Role) -> Self {
        if role.is_graph() {
            Self::RoleTemplate(&role.agent_type)
        } else {
            Self::AgentType(&role.agent_type)
        }
    }

    /// The name in its namespace.
    #[must_use]
    pub const fn name(self) -> &'a str {
        match self {
            Self::AgentType(name) | Self::RoleTemplate(name) => name,
        }
    }
}

/// What a spawn asks for, as far as the checks before the registry care.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The parent.
    pub parent: ThreadId,
    /// The role.
    pub role: WantedRole<'a>,
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
    let parent = admit_any(session, wanted)?;
    gate(session, wanted, parent)?;
    free_alias(session, wanted.caller, wanted.alias)?;
    Ok(parent)
}

/// Makes the checks before the spawn gate. They do not depend on the role. Returns the parent.
///
/// # Errors
/// The first check that fails.
pub fn admit_any<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Refusal> {
    let parent = authorize(session, wanted)?;
    super::may_start_in(session, parent)?;
    if parent.status.kind() == StatusKind::AwaitingApproval {
        // Whoever does not exist for good has no children, not even an operator's: a denial closes it at once.
        return Err(Refusal::IllegalTransition {
            thread: parent.id,
            status: StatusKind::AwaitingApproval,
            wanted: "have children before its own spawn is approved",
        });
    }
    limits::child_depth(session, parent)?;
    Ok(parent)
}

/// The spawn gate: the caller's role says which roles it may spawn, wherever in its subtree, and so does the parent's. A
/// caller of a graph template spawns only if it may manage edges; whether it must ask for it as well is decided at the
/// commit. Operators pass.
pub(super) fn gate(session: &Session, wanted: &Wanted<'_>, parent: &Thread) -> Result<(), Refusal> {
    let Some(caller) = wanted.caller.thread().and_then(|id| session.thread(id)) else {
        return Ok(());
    };
    for spawner in [caller, parent] {
        let is_listed = match wanted.role {
            WantedRole::AgentType(name) => lists(spawner, name),
            // The list names agent types; whoever has one may spawn these, and no graph template that is called the same.
            WantedRole::RoleTemplate(_) => spawner.spawned.role.spawn_list.is_empty(),
        };
        if !is_listed {
            return Err(Refusal::SpawnNotAllowed {
                caller: spawner.spawned.role.agent_type.clone(),
                wanted: wanted.role.name().to_owned(),
                allowed: spawner.spawned.role.spawn_list.clone(),
            });
        }
    }
    if caller.spawned.role.is_graph() && graph::edge_management(session, caller) == EdgeManagement::None {
        return Err(Refusal::NotPermitted(format!(
            "edgeManagement capability is disabled: role_template \"{}\" may not spawn; {}",
            caller.spawned.role.agent_type,
            why_no_edges(session)
        )));
    }
    Ok(())
}

/// What would have to be otherwise for a graph thread that may not manage edges.
fn why_no_edges(session: &Session) -> &'static str {
    match session.settings.edge_management {
        EdgeManagement::None => "the session lets nobody manage edges",
        EdgeManagement::SelfOnly | EdgeManagement::All => {
            "its template must declare edge_management_all or edge_management_self, and its spawn must not take that away"
        }
    }
}

/// Whether a thread's role lets it spawn that agent type.
#[must_use]
pub fn lists(spawner: &Thread, agent_type: &str) -> bool {
    let allowed = &spawner.spawned.role.spawn_list;
    allowed.is_empty() || allowed.iter().any(|name| same_role(name, agent_type))
}

/// Kebab and snake spellings name the same role.
fn same_role(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn free_alias(session: &Session, caller: &Caller, alias: &str) -> Result<(), Refusal> {
    if alias.is_empty() {
        return Ok(());
    }
    match session.thread_by_alias(alias) {
        None => Ok(()),
        Some(by) => Err(Refusal::AliasInUse {
            alias: alias.to_owned(),
            by: Some(by).filter(|by| caller.thread().is_none_or(|caller| session.is_within(*by, caller))),
        }),
    }
}

/// The whole decision, once the template is resolved. A spawn that an operator must approve is pinned now and waits without a
/// slot, whatever `on_limit` says.
pub(super) fn commit(session: &Session, spawn: &Spawn, now: UnixMillis) -> Result<Vec<Event>, Refusal> {
    let Some(parent) = spawn.spawned.parent else {
        return Err(Refusal::ThreadNotFound(String::new()));
    };
    let wanted = Wanted {
        caller: &spawn.caller,
        parent,
        role: WantedRole::of(&spawn.spawned.role),
        alias: &spawn.spawned.alias,
    };
    let parent = admit(session, &wanted)?;
    limits::total(session)?;
    let mut events = super::evict::make_room(session, parent.id, now)?;
    budget::carve(session, parent.id, None, &spawn.spawned.budget).map_err(Refusal::OverBudget)?;
    let caller = spawn.caller.thread().and_then(|id| session.thread(id));
    let asking = caller.filter(|caller| approval::is_needed(session, caller, "SpawnAgent"));
    let first_status = match (asking, limits::slot_for_newcomer(session), spawn.on_limit) {
        (Some(_), ..) => StatusKind::AwaitingApproval,
        (None, true, _) => StatusKind::PendingInit,
        (None, false, OnLimit::Queue) => StatusKind::Queued,
        (None, false, OnLimit::Refuse) => return Err(limits::no_slot(session)),
    };
    let rights = child_rights(session, parent, spawn)?;
    let spawned = Spawned {
        depth: limits::child_depth(session, parent)?,
        first_status,
        sandbox: spawn.spawned.sandbox.min(parent.sandbox),
        effective: rights.effective,
        grant: rights.grant,
        edge_management: child_edges(session, parent, spawn),
        ..spawn.spawned.clone()
    };
    let request = asking.map(|asking| ThreadEvent::ApprovalRequested {
        approval: spawn.approval,
        kind: ApprovalKind::Spawn,
        subject: approval::spawn_subject(asking, &spawned),
        deadline: now.plus(APPROVAL_TIMEOUT),
        edge: None,
        call: None,
    });
    let spawned = [ThreadEvent::Spawned(Arc::new(spawned))];
    events.extend(
        spawned
            .into_iter()
            .chain(request)
            .map(|event| Event::Thread(spawn.id, event)),
    );
    Ok(events)
}

/// Which edges the child may manage: what its template declares, narrowed by its spawn. What a thread spawns is bound by
/// every graph thread from the parent up as well, so that none of them gets back through a child, or through a child's child
/// that no graph template binds, what it does not have itself. Only an operator can give more. The session's setting is not
/// written into the child: it narrows each decision as it is by then.
fn child_edges(session: &Session, parent: &Thread, spawn: &Spawn) -> EdgeManagement {
    let declared = spawn.spawned.edge_management;
    match spawn.caller {
        Caller::Operator { .. } => declared,
        Caller::Thread { .. } => session
            .lineage(parent.id)
            .filter(|above| above.spawned.role.is_graph())
            .map(|above| above.spawned.edge_management)
            .fold(declared, EdgeManagement::min),
    }
}

/// What the child may use and hand on: never more than its parent may grant.
///
/// # Errors
/// A bad pattern in the role's lists or the caller's.
pub fn child_rights(session: &Session, parent: &Thread, spawn: &Spawn) -> Result<Rights, Refusal> {
    let inheritance = session.settings.policy_inheritance;
    let source = match inheritance {
        tool_policy::Inheritance::Attenuate => &parent.grant,
        tool_policy::Inheritance::Ceiling => &session.ceiling,
    };
    Ok(Rights::child(
        source,
        spawn.narrowing.as_ref(),
        &spawn.role_layers,
        &spawn.grant_list,
        &spawn.spawned.role.agent_type,
        inheritance,
    )?)
}
