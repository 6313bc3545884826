//! The tools that correspond to supervisor RPCs. A thread may call an RPC only if its policy allows the tool.

use crate::policy::Policy;

/// Returns the tools that correspond to an RPC, any of which suffices; `None` if a thread needs no tool for it.
///
/// `method` is the method's name, with or without its service (`/troupe.supervisor.v1.AgentSupervisorService/X`).
/// `None` says nothing about the callers that are authorized to call the method.
#[must_use]
pub fn tools_of_rpc(method: &str) -> Option<&'static [&'static str]> {
    let name = method.rsplit('/').next().unwrap_or(method);
    let tools: &'static [&'static str] = match name {
        "SpawnAgent" => &["spawn_agent", "spawn_node"],
        // An interrupt is equivalent to send_input with `interrupt`.
        "SendInput" | "InterruptAgent" => &["send_input"],
        "WaitAgents" => &["wait"],
        "CloseAgent" => &["close_agent"],
        "ResumeAgent" => &["resume_agent"],
        "ListActiveAgents" => &["list_active_agents"],
        "ListSpawnableAgents" => &["list_agents"],
        "SetThreadNote" => &["set_thread_note"],
        "CreateEdge" | "DeleteEdge" => &["create_edge"],
        "SendHandoff" => &["send_handoff"],
        "CreateGroup" | "UpdateGroup" | "RetryGroup" | "CancelGroup" => &["spawn_group"],
        _ => return None,
    };
    Some(tools)
}

/// The error for a policy that allows no tool of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolRefused {
    /// The tool. If several tools would suffice, the first one.
    pub tool: &'static str,
}

impl Policy {
    /// Checks that a thread with this effective policy has a tool for the RPC.
    ///
    /// # Errors
    ///
    /// If the policy allows none of the tools that correspond to the RPC.
    pub fn allows_rpc(&self, method: &str) -> Result<(), ToolRefused> {
        let tools = tools_of_rpc(method).unwrap_or_default();
        match tools.first() {
            Some(&tool) if self.allows_none_of(tools) => Err(ToolRefused { tool }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::canonical::CANONICAL_TOOLS;
    use crate::layer::Layer;

    fn denying(deny: &[&str]) -> Policy {
        Policy::compile(vec![Layer::of_role("worker", &[], deny)]).unwrap()
    }

    #[test]
    fn rpc_requires_its_tool() {
        for (method, tool) in [
            ("SpawnAgent", "spawn_agent"),
            ("SendInput", "send_input"),
            ("InterruptAgent", "send_input"),
            ("WaitAgents", "wait"),
            ("CloseAgent", "close_agent"),
            ("ResumeAgent", "resume_agent"),
            ("ListActiveAgents", "list_active_agents"),
            ("ListSpawnableAgents", "list_agents"),
            ("SetThreadNote", "set_thread_note"),
            ("CreateEdge", "create_edge"),
            ("DeleteEdge", "create_edge"),
            ("SendHandoff", "send_handoff"),
            ("CreateGroup", "spawn_group"),
        ] {
            let tools = tools_of_rpc(method).unwrap();
            assert_eq!(tools.first(), Some(&tool), "{method}");
            assert!(tools.iter().all(|tool| CANONICAL_TOOLS.contains(tool)), "{method}");
            assert_eq!(denying(tools).allows_rpc(method), Err(ToolRefused { tool }), "{method}");
            assert_eq!(denying(&["something_else"]).allows_rpc(method), Ok(()), "{method}");
        }
    }

    #[test]
    fn reads_and_records_need_no_tool() {
        let nothing = denying(&["*"]);
        for method in [
            "GetThread",
            "WatchThreads",
            "GetQuota",
            "ListMailbox",
            "ListTranscript",
            "WatchTranscript",
            "AppendTranscript",
            "DescribeTools",
            "AuthorizeTool",
            "ReportResult",
            "AskParent",
        ] {
            assert_eq!(tools_of_rpc(method), None, "{method}");
            assert_eq!(nothing.allows_rpc(method), Ok(()), "{method}");
        }
    }

    #[test]
    fn either_spawn_tool_suffices() {
        assert_eq!(denying(&["spawn_agent"]).allows_rpc("SpawnAgent"), Ok(()));
        assert_eq!(denying(&["spawn_node"]).allows_rpc("SpawnAgent"), Ok(()));
        assert!(denying(&["spawn_*"]).allows_rpc("SpawnAgent").is_err());
    }

    #[test]
    fn method_with_service_name_is_recognized() {
        let refused = denying(&["wait"]).allows_rpc("/troupe.supervisor.v1.AgentSupervisorService/WaitAgents");
        assert_eq!(refused, Err(ToolRefused { tool: "wait" }));
    }
}
