//! How Claude Code is started for a policy, as pure data.

use std::ffi::OsString;

use tool_policy::{NativeTools, Policy};
use troupe_proto::common::v1::Sandbox;

/// The name under which Claude Code has our tools.
pub(super) const SERVER: &str = "troupe";
/// The variable that turns thinking off, for the effort `none`.
const NO_THINKING: (&str, &str) = ("CLAUDE_CODE_DISABLE_THINKING", "1");
/// The efforts that its command line knows.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// Its own tools that a thread may be offered. This is an allow list: tools of later releases are not offered. Claude
/// Code's own agents are not offered either, so that no agent exists outside of the tree.
const TOOLS: &[(&str, Effect)] = &[
    ("Read", Effect::Looks),
    ("Grep", Effect::Looks),
    ("Glob", Effect::Looks),
    ("Bash", Effect::Reaches),
    ("Edit", Effect::Writes),
    ("Write", Effect::Writes),
    ("NotebookEdit", Effect::Writes),
    ("WebFetch", Effect::Reaches),
    ("WebSearch", Effect::Reaches),
];

/// The effect of a tool outside of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Reads files.
    Looks,
    /// Writes files. Not available to a read-only thread.
    Writes,
    /// Runs a command or uses the network. Claude Code and its tools share one network, so such a tool is not available
    /// to a read-only thread either.
    Reaches,
}

/// The tools that a thread is offered.
pub(super) fn tools(policy: &Policy, access: Sandbox) -> Vec<&'static str> {
    let fits = |effect: Effect| effect == Effect::Looks || access != Sandbox::ReadOnly;
    allowed(policy, fits)
}

/// Returns the tools that are withheld only because of the network, although the policy allows them.
pub(super) fn withheld(policy: &Policy, access: Sandbox) -> Vec<&'static str> {
    allowed(policy, |effect| {
        effect == Effect::Reaches && access == Sandbox::ReadOnly
    })
}

fn allowed(policy: &Policy, fits: impl Fn(Effect) -> bool) -> Vec<&'static str> {
    let may = |(name, effect): &&(&'static str, Effect)| {
        fits(*effect) && policy.decide_native(&NativeTools::CLAUDE, name).is_allowed()
    };
    TOOLS.iter().filter(may).map(|(name, _)| *name).collect()
}

/// The variable that an effort needs; `None`: none.
pub(super) fn effort_variable(effort: &str) -> Option<(&'static str, &'static str)> {
    (effort == "none").then_some(NO_THINKING)
}

/// Whether it accepts an effort.
pub(super) fn applies_effort(effort: &str) -> bool {
    effort.is_empty() || effort == "none" || EFFORTS.contains(&effort)
}

/// Returns the arguments of the command line, without those of the session.
pub(super) fn args(
    tools: &[&str],
    model: Option<&str>,
    effort: &str,
    instructions: &str,
    session: Session<'_>,
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
        // A call that the hook does not allow is denied, even if the hook fails.
        "--permission-mode",
        "dontAsk",
        // Nothing of the user's or the project's settings, hooks, servers and commands.
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
    let (flag, id) = match session {
        Session::New(id) => ("--session-id", id),
        Session::Resumed(id) => ("--resume", id),
    };
    args.extend([flag.into(), id.into()]);
    args
}

/// The session of Claude Code's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session<'a> {
    New(&'a str),
    Resumed(&'a str),
}

/// Variables that disable background features.
pub(super) const QUIET: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    // Ten tries take minutes, even where the credentials are wrong.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
    // A command in the background outlives its turn, and then the program.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tool_policy::{Layer, MatchMode};

    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Policy::compile(vec![Layer {
            origin: "role".to_owned(),
            mode: MatchMode::Glob,
            allow: owned(allow),
            deny: owned(deny),
        }])
        .unwrap()
    }

    #[test]
    fn only_allowed_tools_are_offered() {
        let write = Sandbox::WorkspaceWrite;
        assert_eq!(
            tools(&policy(&["read_file", "grep_files"], &[]), write),
            ["Read", "Grep"]
        );
        assert_eq!(tools(&policy(&["*"], &["exec_command", "web_search"]), write).len(), 6);
        assert_eq!(tools(&policy(&["*"], &[]), Sandbox::ReadOnly), ["Read", "Grep", "Glob"]);
        assert!(!tools(&policy(&["*"], &["apply_patch"]), write).contains(&"Edit"));
        assert!(tools(&policy(&[], &["*"]), write).is_empty());
    }

    #[test]
    fn network_only_restriction_of_reader_is_a_gap() {
        let everything = policy(&["*"], &[]);
        assert_eq!(
            withheld(&everything, Sandbox::ReadOnly),
            ["Bash", "WebFetch", "WebSearch"]
        );
        assert!(withheld(&everything, Sandbox::WorkspaceWrite).is_empty());
        let reader = policy(&["read_file", "apply_patch"], &[]);
        assert!(
            withheld(&reader, Sandbox::ReadOnly).is_empty(),
            "it has all that it may"
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
        let args = args(&["Read"], None, "low", " ", Session::Resumed("s"));
        let args: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert!(
            args.ends_with(&["--tools", "Read", "--effort", "low", "--resume", "s"]),
            "{args:?}"
        );
        let args = super::args(&[], Some("m"), "odd", "be", Session::New("s"));
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
