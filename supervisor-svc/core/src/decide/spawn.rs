//! Spawn decisions: the checks of CONTRACT 3.1 in their order. The checks run twice. [`admit`] runs before the registry
//! resolves the role, and `spawn` repeats all checks because the session can change in the meantime.

use std::sync::Arc;

use tool_policy::Rights;

use crate::{
    command::Spawn,
    event::{ApprovalKind, Event, Role, Spawned, ThreadEvent},
    ids::ThreadId,
    principal::Caller,
    rejection::Rejection,
    rules::{approval, authority, budget, limits, start},
    settings::{EdgeManagement, OnLimit},
    state::{session::Session, thread::Thread},
    status::StatusKind,
    time::UnixMillis,
};

/// The role that a spawn selects. The two namespaces can contain equal names for different templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedRole<'a> {
    /// An agent type. `default` if the request names none.
    AgentType(&'a str),
    /// A graph template.
    RoleTemplate(&'a str),
}

impl<'a> WantedRole<'a> {
    /// Returns the selector of a thread's role.
    pub(super) fn of(role: &'a Role) -> Self {
        if role.is_graph() {
            Self::RoleTemplate(&role.agent_type)
        } else {
            Self::AgentType(&role.agent_type)
        }
    }

    /// Returns the name within its namespace.
    #[must_use]
    pub const fn name(self) -> &'a str {
        match self {
            Self::AgentType(name) | Self::RoleTemplate(name) => name,
        }
    }
}

/// The arguments of a spawn that are checked before the registry resolves the role.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The parent.
    pub parent: ThreadId,
    /// The role.
    pub role: WantedRole<'a>,
    /// The alias. Empty means no alias.
    pub alias: &'a str,
}

/// Checks the caller's authority over the parent. This is the first check and precedes the lookup of the request_id.
///
/// # Errors
/// See [`authority::authorize`].
pub fn authorize<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Rejection> {
    authority::authorize(session, wanted.caller, "SpawnAgent", wanted.parent)
}

/// Runs every check that needs no template, and returns the parent.
///
/// # Errors
/// The first check that fails.
pub fn admit<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Rejection> {
    let parent = admit_any(session, wanted)?;
    gate(session, wanted, parent)?;
    free_alias(session, wanted.caller, wanted.alias)?;
    Ok(parent)
}

/// Runs the checks that precede the spawn gate. These checks do not depend on the role. Returns the parent.
///
/// # Errors
/// The first check that fails.
pub fn admit_any<'s>(session: &'s Session, wanted: &Wanted<'_>) -> Result<&'s Arc<Thread>, Rejection> {
    let parent = authorize(session, wanted)?;
    start::may_start_in(session, parent)?;
    if parent.status.kind() == StatusKind::AwaitingApproval {
        // A thread whose spawn is not approved yet has no children, not even those spawned by an operator: a denial
        // closes the thread immediately.
        return Err(Rejection::IllegalTransition {
            thread: parent.id,
            status: StatusKind::AwaitingApproval,
            wanted: "have children before its own spawn is approved",
        });
    }
    limits::child_depth(session, parent)?;
    Ok(parent)
}

/// Checks the spawn gate. The roles of the caller and of the parent must both allow the spawned role. The parent can be
/// any thread in the caller's subtree. A caller with a graph template must also be allowed to manage edges. `spawn`
/// decides whether the spawn needs an approval. Operators pass the gate.
pub(super) fn gate(session: &Session, wanted: &Wanted<'_>, parent: &Thread) -> Result<(), Rejection> {
    let Some(caller) = wanted.caller.thread().and_then(|id| session.thread(id)) else {
        return Ok(());
    };
    for spawner in [caller, parent] {
        let is_listed = match wanted.role {
            WantedRole::AgentType(name) => lists(spawner, name),
            // The list contains agent types. It does not allow graph templates with the same names.
            WantedRole::RoleTemplate(_) => spawner.spawned.role.spawn_list.is_empty(),
        };
        if !is_listed {
            return Err(Rejection::SpawnNotAllowed {
                caller: spawner.spawned.role.agent_type.clone(),
                wanted: wanted.role.name().to_owned(),
                allowed: spawner.spawned.role.spawn_list.clone(),
            });
        }
    }
    if caller.spawned.role.is_graph() && session.edge_management(caller) == EdgeManagement::None {
        return Err(Rejection::NotPermitted(format!(
            "edgeManagement capability is disabled: role_template \"{}\" may not spawn; {}",
            caller.spawned.role.agent_type,
            why_no_edges(session)
        )));
    }
    Ok(())
}

/// Returns the condition under which a graph thread without edge management could spawn.
fn why_no_edges(session: &Session) -> &'static str {
    match session.settings.edge_management {
        EdgeManagement::None => "the session lets no thread manage edges",
        EdgeManagement::SelfOnly | EdgeManagement::All => {
            "its template must declare edge_management_all or edge_management_self, and its spawn must not remove that capability"
        }
    }
}

/// Returns whether a thread's role allows it to spawn that agent type.
#[must_use]
pub fn lists(spawner: &Thread, agent_type: &str) -> bool {
    let allowed = &spawner.spawned.role.spawn_list;
    allowed.is_empty() || allowed.iter().any(|name| same_role(name, agent_type))
}

/// Returns whether two names denote the same role. Kebab case and snake case are equal.
fn same_role(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn free_alias(session: &Session, caller: &Caller, alias: &str) -> Result<(), Rejection> {
    if alias.is_empty() {
        return Ok(());
    }
    match session.thread_by_alias(alias) {
        None => Ok(()),
        Some(by) => Err(Rejection::AliasInUse {
            alias: alias.to_owned(),
            by: Some(by).filter(|by| caller.thread().is_none_or(|caller| session.is_within(*by, caller))),
        }),
    }
}

/// Decides the spawn after the template is resolved. A spawn that needs an approval records the resolved role now and
/// waits without a slot, regardless of `on_limit`.
pub(super) fn spawn(session: &Session, spawn: &Spawn, now: UnixMillis) -> Result<Vec<Event>, Rejection> {
    let Some(parent) = spawn.spawned.parent else {
        return Err(Rejection::ThreadNotFound(String::new()));
    };
    let wanted = Wanted {
        caller: &spawn.caller,
        parent,
        role: WantedRole::of(&spawn.spawned.role),
        alias: &spawn.spawned.alias,
    };
    let parent = admit(session, &wanted)?;
    match spawn.spawned.item {
        Some(item) => super::group::may_start(session, parent.id, item)?,
        None => limits::total(session)?,
    }
    let mut events = super::evict::evict_for_child(session, parent.id, now)?;
    budget::carve(session, parent.id, None, &spawn.spawned.budget).map_err(Rejection::OverBudget)?;
    let caller = spawn.caller.thread().and_then(|id| session.thread(id));
    // The approval of a group covers its items.
    let asking =
        caller.filter(|caller| spawn.spawned.item.is_none() && approval::is_needed(session, caller, "SpawnAgent"));
    let first_status = match (asking, limits::has_free_slot(session), spawn.on_limit) {
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
        deadline: session.settings.approval_deadline(now),
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

/// Returns the edge management of the child: the template's declaration, narrowed by the spawn. A spawn by a thread is
/// also limited by every graph thread from the parent upwards, so no ancestor gains permissions through a child or
/// through a descendant without a graph template. Only an operator can grant more. The session's setting is not part of
/// the result, because each later decision applies the current setting.
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

/// Returns the child's tool policy and the policy that the child may grant. Both are limited by the parent's grant, or
/// by the session's ceiling if `policy_inheritance` is [`Ceiling`](tool_policy::Inheritance::Ceiling).
///
/// # Errors
/// A malformed pattern in the role's or the caller's lists.
pub fn child_rights(session: &Session, parent: &Thread, spawn: &Spawn) -> Result<Rights, Rejection> {
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
