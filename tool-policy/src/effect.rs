//! The side effects of tools, as relevant to sandboxes and modes.

use crate::canonical::{ANSWER_TOOLS, CANONICAL_TOOLS};

/// The side effects of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The call has no effect outside the supervisor, which checks the call itself.
    Coordinates,
    /// The call only reads.
    Reads,
    /// The call writes files that its arguments name.
    Writes,
    /// The call runs a program. The arguments do not show the program's effects.
    Executes,
    /// The call accesses the network.
    Network,
    /// The effect is unknown, because the tool belongs to an agent program or an MCP server.
    Unknown,
}

impl Effect {
    /// Returns the effect of a canonical tool.
    #[must_use]
    pub fn of(canonical: &str) -> Self {
        match canonical {
            "exec_command" | "write_stdin" => Self::Executes,
            "apply_patch" | "write_file" | "delete_file" => Self::Writes,
            "web_search" => Self::Network,
            "read_file"
            | "list_files"
            | "list_dir"
            | "grep_files"
            | "view_image"
            | "tool_search"
            | "list_mcp_resources"
            | "list_mcp_resource_templates" => Self::Reads,
            "read_mcp_resource" => Self::Unknown,
            known if CANONICAL_TOOLS.contains(&known) || ANSWER_TOOLS.contains(&known) => Self::Coordinates,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canonical_tool_has_an_effect() {
        for (tool, effect) in [
            ("spawn_agent", Effect::Coordinates),
            ("update_plan", Effect::Coordinates),
            ("request_user_input", Effect::Coordinates),
            ("exec_command", Effect::Executes),
            ("write_stdin", Effect::Executes),
            ("apply_patch", Effect::Writes),
            ("delete_file", Effect::Writes),
            ("web_search", Effect::Network),
            ("read_file", Effect::Reads),
            ("read_mcp_resource", Effect::Unknown),
            ("mcp__github__create_issue", Effect::Unknown),
            ("Frobnicate", Effect::Unknown),
        ] {
            assert_eq!(Effect::of(tool), effect, "{tool}");
        }
        let unknown = CANONICAL_TOOLS
            .iter()
            .filter(|tool| Effect::of(tool) == Effect::Unknown);
        assert_eq!(unknown.copied().collect::<Vec<_>>(), ["read_mcp_resource"]);
    }
}
