//! Authorization of tool calls. The checks run in this order: policy, sandbox, mode, operator approval.
//!
//! The supervisor has no access to the file system. The runner resolves and reports the paths that a call writes. A
//! call with unknown effects is treated as able to do everything.

use tool_policy::{Effect, NativeTools, tools_of_rpc};

use crate::{
    event::ApprovalDecision,
    ids::ApprovalId,
    rules::limits,
    settings::{Mode, Sandbox},
    state::{approval::Approval, session::Session, thread::Thread},
};

/// Maximum number of paths in one call.
pub const MAX_PATHS: usize = 64;

/// Maximum length of a path, in bytes.
pub const MAX_PATH_BYTES: usize = 4_096;

/// The text for a caller whose approval expired.
pub const UNDECIDED: &str = "no operator decided on the call in time";

/// The text for a write outside docs/ in PLANNING mode.
const DOCS_ONLY: &str = "write restricted to docs/ in PLANNING mode";

/// One tool call, as described by its runner.
#[derive(Clone, Copy, Debug)]
pub struct ToolCall<'a> {
    /// The tool's canonical name, or the program's native name.
    pub tool: &'a str,
    /// The native tool names of the calling program.
    pub native: NativeTools,
    /// The paths that the call writes, absolute and with links resolved. Empty if unknown.
    pub paths: &'a [String],
    /// Whether the operating system enforces the sandbox's write restrictions on the program.
    pub confined: bool,
    /// Whether the operating system keeps the program from writing outside the session's docs/.
    pub docs_only: bool,
    /// The id of the approval of this call.
    pub approval: ApprovalId,
}

/// The decision on a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolVerdict {
    /// The call may run.
    Allowed,
    /// The call is denied, with a reason for the agent.
    Denied(String),
    /// The call requires an approval that was not requested yet.
    NeedsApproval,
    /// The approval was requested and is pending.
    Waiting,
}

/// Returns the tool that requires an approval for the thread's call of an RPC. `None` if no approval is required. If an
/// RPC stands for several tools, one match suffices: a thread must not avoid an approval by using another name.
#[must_use]
pub fn gated_tool(session: &Session, method: &str) -> Option<&'static str> {
    let tools = tools_of_rpc(method).unwrap_or_default();
    tools.iter().copied().find(|tool| is_gated(session, tool))
}

fn is_gated(session: &Session, tool: &str) -> bool {
    !session.approval_gate.allows(tool)
}

/// Decides a tool call of an open thread.
#[must_use]
pub fn decide(session: &Session, thread: &Thread, call: &ToolCall<'_>) -> ToolVerdict {
    let by_policy = thread.effective.decide_native(&call.native, call.tool);
    if !by_policy.is_allowed() {
        return ToolVerdict::Denied(by_policy.to_string());
    }
    let canonical = call.native.canonical(call.tool);
    let effect = canonical.map_or(Effect::Unknown, Effect::of);
    let workspace = session.workspace(thread);
    if let Err(reason) = check_sandbox(thread.sandbox, effect, workspace, call)
        .and_then(|()| check_mode(session, thread.sandbox, effect, call))
        .and_then(|()| check_paths(thread.sandbox, effect, workspace, call))
    {
        return ToolVerdict::Denied(reason);
    }
    // Either name can match, as in a role.
    let needs_operator = [Some(call.tool), canonical]
        .into_iter()
        .flatten()
        .any(|name| is_gated(session, name));
    if needs_operator {
        return verdict_of_approval(session.approvals.get(&call.approval).map(AsRef::as_ref));
    }
    ToolVerdict::Allowed
}

/// Returns why a tool that the model called is not available to the thread: its policy, depth, sandbox or mode excludes
/// the tool, or its program does not have it.
#[must_use]
pub fn why_unoffered(session: &Session, thread: &Thread, call: &ToolCall<'_>) -> String {
    let by_policy = thread.effective.decide_native(&call.native, call.tool);
    let spawns = matches!(call.tool, "spawn_agent" | "spawn_node" | "spawn_group");
    match (limits::child_depth(session, thread), decide(session, thread, call)) {
        (Err(at_limit), _) if spawns && by_policy.is_allowed() => at_limit.to_string(),
        (_, ToolVerdict::Denied(reason)) => reason,
        _ => format!("the tool \"{}\" is not offered to this agent", call.tool),
    }
}

/// Returns the only directory that can be written in PLANNING mode: docs/ in the session's directory. `None`: the
/// session has no directory.
#[must_use]
pub fn docs_directory(session: &Session) -> Option<String> {
    let repository = session.settings.cwd.trim_end_matches('/');
    (!session.settings.cwd.is_empty()).then(|| format!("{repository}/docs"))
}

fn check_sandbox(sandbox: Sandbox, effect: Effect, workspace: &str, call: &ToolCall<'_>) -> Result<(), String> {
    match (sandbox, effect) {
        (_, Effect::Coordinates | Effect::Reads) | (Sandbox::FullAccess, _) => Ok(()),
        (Sandbox::ReadOnly, Effect::Network) => Err(String::from("a READ_ONLY thread's tools have no network")),
        (Sandbox::ReadOnly, _) if call.confined => Ok(()),
        (Sandbox::ReadOnly, Effect::Writes) => Err(String::from("the thread is READ_ONLY; it may not write")),
        (Sandbox::ReadOnly, Effect::Executes | Effect::Unknown) => Err(format!(
            "the thread is READ_ONLY, and this runner cannot prevent \"{}\" from writing",
            call.tool
        )),
        (Sandbox::WorkspaceWrite, Effect::Writes) if call.paths.iter().any(|path| !is_below(path, workspace)) => {
            Err(format!("the thread may write in its workspace \"{workspace}\" only"))
        }
        (Sandbox::WorkspaceWrite, Effect::Writes | Effect::Executes | Effect::Network | Effect::Unknown) => Ok(()),
    }
}

/// Applies PLANNING mode: the repository is read-only except docs/. The docs/ directory is always the session's, even
/// if the thread has another working directory. A session without a directory has no docs/.
fn check_mode(session: &Session, sandbox: Sandbox, effect: Effect, call: &ToolCall<'_>) -> Result<(), String> {
    match (session.settings.mode, effect) {
        (Mode::Implementation, _) | (Mode::Planning, Effect::Coordinates | Effect::Reads | Effect::Network) => Ok(()),
        (Mode::Planning, Effect::Writes) if call.paths.is_empty() && call.docs_only => Ok(()),
        (Mode::Planning, Effect::Writes) => {
            let docs = docs_directory(session).filter(|_| !call.paths.is_empty());
            match docs {
                Some(docs) if call.paths.iter().all(|path| is_below(path, &docs)) => Ok(()),
                Some(_) | None => Err(String::from(DOCS_ONLY)),
            }
        }
        // Execution is limited by the operating system or not at all.
        (Mode::Planning, Effect::Executes | Effect::Unknown) if call.docs_only => Ok(()),
        (Mode::Planning, Effect::Executes | Effect::Unknown) if call.confined && sandbox == Sandbox::ReadOnly => Ok(()),
        (Mode::Planning, Effect::Executes | Effect::Unknown) => Err(format!(
            "{DOCS_ONLY}, and this runner cannot confine \"{}\" to docs/",
            call.tool
        )),
    }
}

/// Denies a write outside the sandbox. A file write without paths may write anywhere, so only the operating system can
/// confine it to the workspace.
fn check_paths(sandbox: Sandbox, effect: Effect, workspace: &str, call: &ToolCall<'_>) -> Result<(), String> {
    if (sandbox, effect) != (Sandbox::WorkspaceWrite, Effect::Writes) || !call.paths.is_empty() || call.confined {
        return Ok(());
    }
    Err(format!(
        "the thread may write in its workspace \"{workspace}\" only; the call does not name the files that it writes, and \
         this runner cannot confine \"{}\" to the workspace",
        call.tool
    ))
}

fn verdict_of_approval(approval: Option<&Approval>) -> ToolVerdict {
    let Some(approval) = approval else {
        return ToolVerdict::NeedsApproval;
    };
    match &approval.verdict {
        None => ToolVerdict::Waiting,
        Some(verdict) => match verdict.decision {
            ApprovalDecision::Granted => ToolVerdict::Allowed,
            ApprovalDecision::Denied if verdict.reason.is_empty() => {
                ToolVerdict::Denied(String::from("an operator denied the call"))
            }
            ApprovalDecision::Denied => ToolVerdict::Denied(format!("an operator denied the call: {}", verdict.reason)),
            ApprovalDecision::Expired => ToolVerdict::Denied(String::from(UNDECIDED)),
            ApprovalDecision::Moot => ToolVerdict::Denied(String::from("the thread no longer waits for this call")),
        },
    }
}

/// Returns whether a resolved path equals a directory or is below it. Paths are compared by components. A path that
/// contains `..` is unresolved and never matches.
fn is_below(path: &str, directory: &str) -> bool {
    let mut wanted = directory.split('/').filter(|part| !part.is_empty());
    let mut given = path.split('/').filter(|part| !part.is_empty());
    let resolved = path.starts_with('/') && !path.split('/').any(|part| part == "..");
    resolved && !directory.is_empty() && wanted.all(|part| given.next() == Some(part))
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn paths_are_compared_by_components() {
        for (path, directory, below) in [
            ("/p/docs/a.md", "/p/docs", true),
            ("/p/docs", "/p/docs/", true),
            ("/p//docs/a", "/p/docs", true),
            ("/p/docs2/a", "/p/docs", false),
            ("/p/docs/../src/a", "/p/docs", false),
            ("p/docs/a", "/p/docs", false),
            ("/p", "/p/docs", false),
            ("/anything", "", false),
            ("/anything", "/", true),
        ] {
            assert_eq!(is_below(path, directory), below, "{path} in {directory}");
        }
    }
}
