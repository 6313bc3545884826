//! What waits, or waited, for an operator, and who must ask one.

use std::time::Duration;

use tool_policy::{CANONICAL_TOOLS, Policy};

use super::{
    actor::Actor,
    authorize::gated_tool,
    content::preview,
    event::{ApprovalDecision, ApprovalKind, CallDetails, Edge, Scope, Spawned, TemplateSource},
    graph,
    ids::{ApprovalId, Sequence, ThreadId},
    session::Session,
    settings::{EdgeManagement, Sandbox},
    thread::Thread,
    time::{REQUESTS_REMEMBERED, UnixMillis},
};

/// How long an approval waits for an operator; then it is denied by itself.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long a call waits at most for an approval to be decided: longer than that waits, so that it hears how it ended.
pub const DECIDED_WITHIN: Duration = Duration::from_secs(11 * 60);

/// How many tool calls of one thread, and of a session, wait for operators at most: each is a record more when the thread is
/// closed.
pub const MAX_WAITING_CALLS: usize = 64;
/// See [`MAX_WAITING_CALLS`].
pub const MAX_WAITING_CALLS_OF_SESSION: usize = 1_024;

/// How many decided approvals a session remembers; older ones are found in the log only.
pub const MAX_DECIDED: usize = 1_000;

/// One approval as its events made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The thread that it is about: the one that would be spawned, or that asks.
    pub thread: ThreadId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// What would happen, for people.
    pub subject: String,
    /// The event that requested it.
    pub sequence: Sequence,
    /// When it was requested.
    pub requested: UnixMillis,
    /// When it is denied by itself.
    pub deadline: UnixMillis,
    /// The edge that is created when it is granted, where it is about one.
    pub edge: Option<Edge>,
    /// The tool call that it covers, where it is about one.
    pub call: Option<Box<CallDetails>>,
    /// How it was decided; `None` while it waits.
    pub verdict: Option<Verdict>,
}

/// How a call of a thread without turns is known to be one that came before. A turn bounds what a decision stands for; without
/// turns it would stand for as long as the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// By an id of its own: it is the same one.
    ById,
    /// By what it says, and nobody was told the decision yet: it goes on waiting.
    Unheard,
    /// By what it says, and the decision was told: it is another one.
    Heard,
}

impl Approval {
    /// Whether it answers a call of a thread without turns that comes again at that time. A decision is for the call that
    /// asked: for as long as its id is remembered, or else as the approval would have waited. That nobody decided in time is
    /// no decision on what comes later.
    #[must_use]
    pub fn answers(&self, again: Again, now: UnixMillis) -> bool {
        let Some(verdict) = &self.verdict else {
            return true;
        };
        match (verdict.decision, again) {
            (ApprovalDecision::Expired | ApprovalDecision::Moot, _) => false,
            (ApprovalDecision::Granted | ApprovalDecision::Denied, Again::ById) => {
                now < self.requested.plus(REQUESTS_REMEMBERED)
            }
            (ApprovalDecision::Granted | ApprovalDecision::Denied, Again::Unheard) => now < self.deadline,
            (ApprovalDecision::Granted | ApprovalDecision::Denied, Again::Heard) => false,
        }
    }

    /// Whether nobody has decided, and from now on nobody may: it is about to be denied by itself.
    #[must_use]
    pub fn is_overdue(&self, now: UnixMillis) -> bool {
        self.verdict.is_none() && self.deadline <= now
    }
}

/// How an approval was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: ApprovalDecision,
    /// Who decided.
    pub by: Actor,
    /// Why.
    pub reason: String,
}

/// How the subject of a tool call begins.
const TOOL_CALL: &str = "Tool call: ";

/// Whether the spawn (`SpawnAgent`) or the edge (`CreateEdge`) that the thread asks for waits for an operator: by its
/// template, or because the session wants to hear of every call of the tool.
#[must_use]
pub fn is_needed(session: &Session, asking: &Thread, method: &str) -> bool {
    must_ask(session, asking) || gated_tool(session, method).is_some()
}

/// Whether the thread may resume nobody: that would be a way around the approval of what it spawns, and a resume cannot wait
/// for one. Where an operator agrees to each resume, it is none.
#[must_use]
pub fn forbids_resume(session: &Session, asking: &Thread) -> bool {
    let goes_around = gated_tool(session, "SpawnAgent").is_some() && gated_tool(session, "ResumeAgent").is_none();
    must_ask(session, asking) || goes_around
}

/// Threads of graph templates must ask, unless they are orchestrators and the session trusts those.
fn must_ask(session: &Session, asking: &Thread) -> bool {
    asking.spawned.role.is_graph() && (session.settings.approve_orchestrators || !is_orchestrator(session, asking))
}

/// An orchestrator may manage every edge, by a template that no project wrote: what lies in a project, an agent may have
/// written, and it must not exempt itself. An operator may name others, and says with it that they are trusted.
fn is_orchestrator(session: &Session, thread: &Thread) -> bool {
    let role = &thread.spawned.role;
    if session.settings.orchestrators.contains(&role.agent_type) {
        return true;
    }
    let is_trusted = |source: &TemplateSource| match source.scope {
        Scope::User | Scope::System => true,
        Scope::Project => false,
    };
    role.source.as_ref().is_some_and(is_trusted) && graph::edge_management(session, thread) == EdgeManagement::All
}

/// What an approver is shown of a spawn: whom it would make, of which template, and what that one could do. The first line
/// has what the asking agent chose, flattened, so that it cannot pass for the lines below it.
#[must_use]
pub fn spawn_subject(asking: &Thread, spawned: &Spawned) -> String {
    let label = [&spawned.label, &spawned.alias, &spawned.role.agent_type]
        .into_iter()
        .find(|name| !name.is_empty())
        .map(|name| preview(name))
        .unwrap_or_default();
    let template = spawned.role.source.as_ref().map_or_else(
        || String::from("none"),
        |source| format!("{} scope, sha256 {}", scope_name(source.scope), source.digest),
    );
    format!(
        "Spawn node: {label} ({role})\nasked by: {by} {id}\ntemplate: {template}\ntools: {tools}\nsandbox: {sandbox}\n\
         edge management: {edges}",
        role = spawned.role.agent_type,
        by = asking.spawned.role.agent_type,
        id = asking.id,
        tools = tools_in_short(&spawned.effective),
        sandbox = sandbox_name(spawned.sandbox),
        edges = spawned.edge_management.as_str(),
    )
}

/// What an approver is shown of a tool call: its name and the beginning of its arguments.
#[must_use]
pub fn tool_subject(tool: &str, arguments: &str) -> String {
    format!("{TOOL_CALL}{} {}", preview(tool), preview(arguments))
}

/// The subject of a tool call for those who may not read what agents say: the tool alone.
#[must_use]
pub fn without_arguments(subject: &str) -> String {
    let (beginning, call) = match subject.strip_prefix(TOOL_CALL) {
        Some(call) => (TOOL_CALL, call),
        None => ("", subject),
    };
    // Of a name that has blanks itself this leaves less, never more.
    let tool = call.split(' ').next().unwrap_or_default();
    format!("{beginning}{tool}")
}

/// The tools that every program has in common, as far as the policy allows them; what else it allows, the thread shows.
fn tools_in_short(policy: &Policy) -> String {
    if policy.is_unrestricted() {
        return String::from("all");
    }
    let allowed: Vec<&str> = CANONICAL_TOOLS
        .iter()
        .copied()
        .filter(|tool| policy.allows(tool))
        .collect();
    if allowed.is_empty() {
        String::from("none")
    } else {
        allowed.join(", ")
    }
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Project => "project",
        Scope::User => "user",
        Scope::System => "system",
    }
}

const fn sandbox_name(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::ReadOnly => "read-only",
        Sandbox::WorkspaceWrite => "workspace-write",
        Sandbox::FullAccess => "full access",
    }
}
