//! Start parameters of Claude Code for a policy, as pure data.

use std::ffi::OsString;

use tool_policy::{NativeTools, Policy};
use troupe_proto::common::v1::Sandbox;

use crate::own_tools::{OwnTools, external, reads, writes};

/// The name under which Claude Code lists the supervisor's tools.
pub(super) const SERVER: &str = "troupe";
/// The variable that disables thinking, for the effort `none`.
const NO_THINKING: (&str, &str) = ("CLAUDE_CODE_DISABLE_THINKING", "1");
/// The efforts that the command line accepts.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// Claude Code's own tools that a thread may be offered. Claude Code's own agents are not offered, so that no agent
/// exists outside of the tree of threads.
pub(super) const TOOLS: OwnTools = OwnTools(
    NativeTools::CLAUDE,
    &[
        reads("Read"),
        reads("Grep"),
        reads("Glob"),
        external("Bash"),
        writes("Edit", &[]),
        writes("Write", &[]),
        writes("NotebookEdit", &[]),
        external("WebFetch"),
        external("WebSearch"),
    ],
);

/// Returns the tools that a thread is offered.
pub(super) fn tools(policy: &Policy, access: Sandbox) -> Vec<&'static str> {
    let offered = TOOLS.offered(policy, access);
    offered.iter().map(|own| own.name).collect()
}

/// Returns the variable that applies an effort. `None`: no variable is needed.
pub(super) fn effort_variable(effort: &str) -> Option<(&'static str, &'static str)> {
    (effort == "none").then_some(NO_THINKING)
}

/// Returns whether Claude Code applies an effort.
pub(super) fn applies_effort(effort: &str) -> bool {
    effort.is_empty() || effort == "none" || EFFORTS.contains(&effort)
}

/// Returns the arguments of the command line. `session` is the flag that begins or resumes a session, with the
/// session's id.
pub(super) fn args(
    tools: &[&str],
    model: Option<&str>,
    effort: &str,
    instructions: &str,
    session: [&str; 2],
) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--input-format",
        "stream-json",
        "--permission-prompt-tool",
        "stdio",
        // The program denies every call that the hook does not allow, even if the hook fails.
        "--permission-mode",
        "dontAsk",
        // Ignores settings, hooks, servers and commands of the user and of the project.
        "--setting-sources",
        "",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--tools",
    ]
    .map(OsString::from)
    .into();
    args.push(tools.join(",").into());
    if let Some(model) = model {
        args.extend(["--model".into(), model.into()]);
    }
    if EFFORTS.contains(&effort) {
        args.extend(["--effort".into(), effort.into()]);
    }
    if !instructions.trim().is_empty() {
        args.extend(["--append-system-prompt".into(), instructions.into()]);
    }
    args.extend(session.map(OsString::from));
    args
}

/// Variables that disable background features.
pub(super) const QUIET: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    // The default of ten attempts takes minutes, even if the credentials are wrong.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
    // A background command would outlive its turn and then the program.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::policy::of_lists;

    #[test]
    fn only_allowed_tools_are_offered() {
        let write = Sandbox::WorkspaceWrite;
        assert_eq!(
            tools(&of_lists(&["read_file", "grep_files"], &[]), write),
            ["Read", "Grep"]
        );
        assert_eq!(
            tools(&of_lists(&["*"], &["exec_command", "web_search"]), write).len(),
            6
        );
        assert_eq!(
            tools(&of_lists(&["*"], &[]), Sandbox::ReadOnly),
            ["Read", "Grep", "Glob"]
        );
        assert!(!tools(&of_lists(&["*"], &["apply_patch"]), write).contains(&"Edit"));
        assert!(tools(&of_lists(&[], &["*"]), write).is_empty());
    }

    #[test]
    fn network_tools_withheld_from_reader_are_a_gap() {
        let everything = of_lists(&["*"], &[]);
        assert_eq!(
            TOOLS.withheld(&everything, Sandbox::ReadOnly),
            ["Bash", "WebFetch", "WebSearch"]
        );
        assert!(TOOLS.withheld(&everything, Sandbox::WorkspaceWrite).is_empty());
        let reader = of_lists(&["read_file", "apply_patch"], &[]);
        assert!(
            TOOLS.withheld(&reader, Sandbox::ReadOnly).is_empty(),
            "it is offered every tool that its policy allows"
        );
    }

    #[test]
    fn effort_is_set_by_flag_or_variable() {
        assert_eq!(effort_variable("none"), Some(NO_THINKING));
        assert_eq!(effort_variable("low"), None);
        for (effort, applies) in [("", true), ("none", true), ("xhigh", true), ("minimal", false)] {
            assert_eq!(applies_effort(effort), applies, "{effort}");
        }
    }

    #[test]
    fn command_line_contains_configured_values() {
        let args = args(&["Read"], None, "low", " ", ["--resume", "s"]);
        let args: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert!(
            args.ends_with(&["--tools", "Read", "--effort", "low", "--resume", "s"]),
            "{args:?}"
        );
        let args = super::args(&[], Some("m"), "odd", "be", ["--session-id", "s"]);
        let tail = [
            "--tools",
            "",
            "--model",
            "m",
            "--append-system-prompt",
            "be",
            "--session-id",
            "s",
        ];
        assert!(args.ends_with(&tail.map(OsString::from)), "{args:?}");
    }
}
