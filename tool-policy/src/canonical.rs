//! The canonical tool names, which patterns use, and the mapping from the tools of agent programs to them.
//!
//! Patterns name canonical tools. A program's own ("native") tool is denied if either of its names is denied, and
//! allowed if either is allowed. A tool without a canonical name needs an explicit allow in every layer that
//! restricts tools, because a deny list for known tools does not cover unknown tools.

/// The prefix of the tools of MCP servers. Their names are canonical.
pub(crate) const MCP_PREFIX: &str = "mcp__";

/// The prefix of Troupe's own tools if a program reaches them through an MCP server. The rest of the name is canonical.
pub const OWN_SERVER_PREFIX: &str = "mcp__troupe__";

/// The canonical tools: Troupe's own, and the tools that agent programs have in common.
pub const CANONICAL_TOOLS: &[&str] = &[
    // Troupe's own tools.
    "spawn_agent",
    "spawn_node",
    "spawn_group",
    "send_input",
    "wait",
    "close_agent",
    "resume_agent",
    "list_active_agents",
    "list_agents",
    "read_transcript",
    "set_thread_note",
    "create_edge",
    "send_handoff",
    // Tools for the workspace.
    "exec_command",
    "write_stdin",
    "apply_patch",
    "read_file",
    "write_file",
    "list_files",
    "delete_file",
    "list_dir",
    "grep_files",
    "view_image",
    // Other tools.
    "update_plan",
    "web_search",
    "request_user_input",
    "list_mcp_resources",
    "list_mcp_resource_templates",
    "read_mcp_resource",
    "tool_search",
];

/// Troupe's tools with which an agent answers its parent. Their names are canonical too. Every policy allows them,
/// because an answer is not a permission.
pub const ANSWER_TOOLS: &[&str] = &["report_result", "ask_parent"];

/// The native tools of one kind of runner.
#[derive(Clone, Copy, Debug)]
pub struct NativeTools {
    kind: &'static str,
    table: &'static [(&'static str, &'static str)],
}

impl NativeTools {
    /// Claude Code.
    pub const CLAUDE: Self = Self::new(
        "claude",
        &[
            ("Bash", "exec_command"),
            ("BashOutput", "write_stdin"),
            ("KillBash", "write_stdin"),
            ("KillShell", "write_stdin"),
            ("TaskOutput", "write_stdin"),
            ("Edit", "apply_patch"),
            ("MultiEdit", "apply_patch"),
            ("NotebookEdit", "apply_patch"),
            ("Write", "apply_patch"),
            ("Read", "read_file"),
            ("NotebookRead", "read_file"),
            ("Grep", "grep_files"),
            ("Glob", "list_dir"),
            ("LS", "list_dir"),
            ("Agent", "spawn_agent"),
            ("Task", "spawn_agent"),
            ("Workflow", "spawn_agent"),
            ("SendMessage", "send_input"),
            ("TaskStop", "close_agent"),
            ("ListAgents", "list_active_agents"),
            ("TodoWrite", "update_plan"),
            ("TaskCreate", "update_plan"),
            ("TaskGet", "update_plan"),
            ("TaskList", "update_plan"),
            ("TaskUpdate", "update_plan"),
            ("WebFetch", "web_search"),
            ("WebSearch", "web_search"),
            ("AskUserQuestion", "request_user_input"),
            ("ListMcpResourcesTool", "list_mcp_resources"),
            ("ReadMcpResourceTool", "read_mcp_resource"),
            ("ToolSearch", "tool_search"),
        ],
    );

    /// Codex. Most of its names are canonical; its hooks report the shell and patches under the names of
    /// other programs.
    pub const CODEX: Self = Self::new(
        "codex",
        &[
            ("Bash", "exec_command"),
            ("exec", "exec_command"),
            ("local_shell", "exec_command"),
            ("shell", "exec_command"),
            ("shell_command", "exec_command"),
            ("unified_exec", "exec_command"),
            ("Edit", "apply_patch"),
            ("Write", "apply_patch"),
            ("plan", "update_plan"),
            ("web_search_request", "web_search"),
            ("wait_agent", "wait"),
        ],
    );

    /// OpenCode. Troupe does not manage OpenCode's own agents as threads, so `task` maps to a spawn.
    pub const OPENCODE: Self = Self::new(
        "opencode",
        &[
            ("bash", "exec_command"),
            ("edit", "apply_patch"),
            ("multiedit", "apply_patch"),
            ("patch", "apply_patch"),
            ("write", "apply_patch"),
            ("read", "read_file"),
            ("grep", "grep_files"),
            ("glob", "list_dir"),
            ("list", "list_dir"),
            ("task", "spawn_agent"),
            ("todoread", "update_plan"),
            ("todowrite", "update_plan"),
            ("webfetch", "web_search"),
            ("websearch", "web_search"),
            ("question", "request_user_input"),
        ],
    );

    /// Gemini CLI. `read_file` and `write_file` are canonical names, so the table does not have them.
    pub const GEMINI: Self = Self::new(
        "gemini",
        &[
            ("run_shell_command", "exec_command"),
            ("list_background_processes", "write_stdin"),
            ("read_background_output", "write_stdin"),
            ("replace", "apply_patch"),
            ("read_many_files", "read_file"),
            ("grep_search", "grep_files"),
            ("search_file_content", "grep_files"),
            ("glob", "list_dir"),
            ("list_directory", "list_dir"),
            ("invoke_agent", "spawn_agent"),
            ("write_todos", "update_plan"),
            ("web_fetch", "web_search"),
            ("google_web_search", "web_search"),
            ("ask_user", "request_user_input"),
        ],
    );

    /// Programs that speak the runner's own line protocol.
    pub const PROCESS: Self = Self::new("process", &[("command", "exec_command")]);

    /// An unknown program. It has canonical tools and tools of MCP servers. Its other tools must be allowed by name.
    pub const UNKNOWN: Self = Self::new("", &[]);

    const ALL: &'static [Self] = &[Self::CLAUDE, Self::CODEX, Self::OPENCODE, Self::GEMINI, Self::PROCESS];

    /// Creates a custom table from pairs of native and canonical names.
    #[must_use]
    pub const fn new(kind: &'static str, table: &'static [(&'static str, &'static str)]) -> Self {
        Self { kind, table }
    }

    /// Returns the built-in table for a kind of runner.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tools| tools.kind == kind)
    }

    /// Returns the kind of runner.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the pairs of native and canonical name.
    #[must_use]
    pub const fn pairs(&self) -> &'static [(&'static str, &'static str)] {
        self.table
    }

    /// Returns the canonical name of a native tool, if it has one. Tools of MCP servers and tools whose name is
    /// canonical keep their name.
    #[must_use]
    pub fn canonical<'a>(&self, native: &'a str) -> Option<&'a str> {
        if let Some(&(_, canonical)) = self.table.iter().find(|(name, _)| *name == native) {
            return Some(canonical);
        }
        if let Some(own) = native.strip_prefix(OWN_SERVER_PREFIX) {
            return Some(own);
        }
        let is_canonical =
            native.starts_with(MCP_PREFIX) || CANONICAL_TOOLS.contains(&native) || ANSWER_TOOLS.contains(&native);
        is_canonical.then_some(native)
    }
}

/// Returns the canonical tools and the native tools of every kind of runner.
pub fn known_tools() -> impl Iterator<Item = &'static str> {
    let native = NativeTools::ALL.iter().flat_map(|tools| tools.table);
    let own = CANONICAL_TOOLS.iter().chain(ANSWER_TOOLS);
    own.copied().chain(native.map(|(native, _)| *native))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::collections::HashSet;

    use super::*;
    use crate::decision::{Decision, DeniedBy};
    use crate::layer::Layer;
    use crate::policy::Policy;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        Policy::compile(vec![Layer::of_role("r", allow, deny)]).unwrap()
    }

    #[test]
    fn tables_map_each_tool_once_to_canonical_names() {
        for tools in [
            NativeTools::CLAUDE,
            NativeTools::CODEX,
            NativeTools::OPENCODE,
            NativeTools::GEMINI,
            NativeTools::PROCESS,
        ] {
            let mut seen = HashSet::new();
            for (native, canonical) in tools.pairs() {
                assert!(
                    seen.insert(*native),
                    "the table of {} contains {native} twice",
                    tools.kind()
                );
                assert!(CANONICAL_TOOLS.contains(canonical), "{canonical} is not canonical");
                assert!(!CANONICAL_TOOLS.contains(native), "{native} is canonical itself");
                assert_eq!(tools.canonical(native), Some(*canonical));
            }
            assert_eq!(NativeTools::of_kind(tools.kind()).unwrap().pairs(), tools.pairs());
        }
        assert!(NativeTools::of_kind("other").is_none());
    }

    #[test]
    fn native_names_map_to_canonical_names() {
        for (tools, native, expected) in [
            (NativeTools::CLAUDE, "Bash", Some("exec_command")),
            (NativeTools::CLAUDE, "bash", None),
            (NativeTools::CLAUDE, "Monitor", None),
            (NativeTools::CLAUDE, "mcp__db__query", Some("mcp__db__query")),
            (NativeTools::CLAUDE, "mcp__troupe__spawn_agent", Some("spawn_agent")),
            (NativeTools::CODEX, "apply_patch", Some("apply_patch")),
            (NativeTools::CODEX, "get_goal", None),
            (NativeTools::OPENCODE, "bash", Some("exec_command")),
            (NativeTools::OPENCODE, "task", Some("spawn_agent")),
            (NativeTools::OPENCODE, "skill", None),
            (NativeTools::GEMINI, "replace", Some("apply_patch")),
            (NativeTools::GEMINI, "write_file", Some("write_file")),
            (NativeTools::GEMINI, "activate_skill", None),
        ] {
            assert_eq!(tools.canonical(native), expected, "{native}");
        }
    }

    #[test]
    fn either_name_of_tool_decides() {
        for (allow, deny, native, expected) in [
            (&[] as &[&str], &[] as &[&str], "Bash", true),
            (&[], &["Bash"], "Bash", false),
            (&[], &["exec_command"], "Bash", false),
            (&[], &["apply_patch"], "Bash", true),
            (&["Bash"], &[], "Bash", true),
            (&["exec_command"], &[], "Bash", true),
            (&["wait"], &[], "Bash", false),
            (&["Bash"], &["exec_command"], "Bash", false),
            (&["exec_command"], &["Bash"], "Bash", false),
            (&[], &["mcp__db__*"], "mcp__db__query", false),
            (&[], &["mcp__db__*"], "mcp__web__get", true),
            (&["spawn_agent"], &[], "mcp__troupe__spawn_agent", true),
            (&[], &["spawn_agent"], "mcp__troupe__spawn_agent", false),
        ] {
            let decision = policy(allow, deny).decide_native(&NativeTools::CLAUDE, native);
            assert_eq!(
                decision.is_allowed(),
                expected,
                "{allow:?} {deny:?} {native}: {decision}"
            );
        }
    }

    #[test]
    fn unmapped_tool_needs_explicit_allow_if_a_list_is_set() {
        let decide = |policy: &Policy| policy.decide_native(&NativeTools::CLAUDE, "Monitor");
        assert!(decide(&Policy::unrestricted()).is_allowed());
        assert!(decide(&policy(&["Monitor"], &[])).is_allowed());
        assert!(decide(&policy(&["*"], &["wait"])).is_allowed());
        assert!(!decide(&policy(&["Monitor"], &["Mon*"])).is_allowed());
        for silent in [policy(&["wait"], &[]), policy(&[], &["wait"])] {
            let cause = DeniedBy::UnknownTool;
            assert_eq!(
                decide(&silent),
                Decision::Denied {
                    origin: "role \"r\"".to_owned(),
                    cause
                }
            );
        }
        let joined = policy(&[], &["wait"]).intersect(&policy(&["Monitor"], &[]));
        assert!(!decide(&joined).is_allowed(), "an additional layer never loosens");
    }
}
