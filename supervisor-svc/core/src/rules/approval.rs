//! Pending and decided approvals, and the rules that say which calls require an approval.

use std::time::Duration;

use tool_policy::{CANONICAL_TOOLS, Policy};

use crate::{
    content::preview,
    event::{Scope, Spawned, TemplateSource},
    rules::authorize::gated_tool,
    settings::{EdgeManagement, Sandbox},
    state::{session::Session, thread::Thread},
};

/// Default time after which a pending approval is denied automatically.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Minimum approval timeout of a session.
pub const SHORTEST_APPROVAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum approval timeout of a session.
pub const LONGEST_APPROVAL_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum time that a call waits for an approval. It is longer than any approval timeout, so the call always receives
/// the outcome.
pub const DECIDED_WITHIN: Duration = Duration::from_secs(LONGEST_APPROVAL_TIMEOUT.as_secs() + 60);

/// Maximum number of pending tool call approvals of one thread. Closing the thread writes one event for each of them.
pub const MAX_WAITING_CALLS: usize = 64;
/// Maximum number of pending tool call approvals of one session. See [`MAX_WAITING_CALLS`].
pub const MAX_WAITING_CALLS_OF_SESSION: usize = 1_024;

/// The prefix of the subject of a tool call.
const TOOL_CALL: &str = "Tool call: ";

/// Returns whether the spawn (`SpawnAgent`) or the edge (`CreateEdge`) requires an approval. The thread's template or
/// the session's list of approved tools can require one.
#[must_use]
pub fn is_needed(session: &Session, asking: &Thread, method: &str) -> bool {
    must_ask(session, asking) || gated_tool(session, method).is_some()
}

/// Returns whether the thread must not resume other threads. A resume cannot wait for an approval, so it would bypass
/// the approval of the spawn. If an operator approves every resume call, nothing is bypassed.
#[must_use]
pub fn forbids_resume(session: &Session, asking: &Thread) -> bool {
    let bypasses_approval = gated_tool(session, "SpawnAgent").is_some() && gated_tool(session, "ResumeAgent").is_none();
    must_ask(session, asking) || bypasses_approval
}

/// Returns whether the thread's template requires approvals. Graph template threads require them, except orchestrators
/// in a session that trusts orchestrators.
fn must_ask(session: &Session, asking: &Thread) -> bool {
    asking.spawned.role.is_graph() && (session.settings.approve_orchestrators || !is_orchestrator(session, asking))
}

/// Returns whether the thread is an orchestrator: it may manage all edges, and its template is not from the project. An
/// agent can write project files and must not exempt itself. An operator can name further templates as orchestrators,
/// which marks them as trusted.
fn is_orchestrator(session: &Session, thread: &Thread) -> bool {
    let role = &thread.spawned.role;
    if session.settings.orchestrators.contains(&role.agent_type) {
        return true;
    }
    let is_trusted = |source: &TemplateSource| match source.scope {
        Scope::User | Scope::System => true,
        Scope::Project => false,
    };
    role.source.as_ref().is_some_and(is_trusted) && session.edge_management(thread) == EdgeManagement::All
}

/// Returns the description of a spawn for the approver: the new thread, its template and its tools. The first line
/// contains text chosen by the requesting agent. It is flattened so that it cannot imitate the lines below.
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

/// Returns the description of a tool call for the approver: the tool name and the beginning of its arguments.
#[must_use]
pub fn tool_subject(tool: &str, arguments: &str) -> String {
    format!("{TOOL_CALL}{} {}", preview(tool), preview(arguments))
}

/// Returns the subject of a tool call for readers without access to agent output: the tool name only.
#[must_use]
pub fn without_arguments(subject: &str) -> String {
    let (beginning, call) = match subject.strip_prefix(TOOL_CALL) {
        Some(call) => (TOOL_CALL, call),
        None => ("", subject),
    };
    // If the name contains blanks, the result is only the beginning of the name. The result never contains more than
    // the name.
    let tool = call.split(' ').next().unwrap_or_default();
    format!("{beginning}{tool}")
}

/// Returns the common tools that the policy allows. The thread's own view lists the remaining tools.
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
