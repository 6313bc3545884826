//! The command of each RPC.

/// Each RPC of the API with the command that calls it. A test compares the list with the descriptors.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("AcknowledgeMailbox", "mail"),
    ("AppendTranscript", "thread record"),
    ("AskParent", "thread ask"),
    ("Attach", "run"),
    ("AuthorizeTool", "tools check"),
    ("CancelGroup", "batch cancel"),
    ("CloseAgent", "close"),
    ("CloseSession", "session close"),
    ("CreateEdge", "edges create"),
    ("CreateGroup", "batch run"),
    ("CreateSession", "session create"),
    ("DeleteEdge", "edges delete"),
    ("DeleteSession", "session delete"),
    ("DescribeSpawnTool", "agents spawn-tool"),
    ("DescribeTools", "tools"),
    ("DrainMember", "cluster drain"),
    ("ExportSession", "export"),
    ("GetContent", "artifacts get"),
    ("GetGroup", "batch show"),
    ("GetPrompt", "prompts show"),
    ("GetQuota", "quota"),
    ("GetSession", "session show"),
    ("GetThread", "show"),
    ("GetWorkspace", "bundle get"),
    ("InterruptAgent", "interrupt"),
    ("ListActiveAgents", "ps"),
    ("ListAgents", "agents"),
    ("ListApprovals", "approvals"),
    ("ListArtifacts", "artifacts"),
    ("ListDiagnostics", "agents diagnostics"),
    ("ListEdges", "edges"),
    ("ListGroupItems", "batch items"),
    ("ListMailbox", "mail"),
    ("ListMembers", "cluster status"),
    ("ListPrompts", "prompts"),
    ("ListRunners", "runners"),
    ("ListSessions", "session list"),
    ("ListSpawnableAgents", "agents spawnable"),
    ("ListTranscript", "logs"),
    ("MoveSession", "cluster move"),
    ("PutWorkspace", "bundle put"),
    ("ReportResult", "thread report"),
    ("ResolveApproval", "approvals grant"),
    ("ResolveSpawn", "resolve"),
    ("ResumeAgent", "resume"),
    ("RetryGroup", "batch retry"),
    ("RouteAgent", "route"),
    ("SendHandoff", "handoff"),
    ("SendInput", "send"),
    ("SetActiveThread", "thread focus"),
    ("SetThreadNote", "note"),
    ("SpawnAgent", "spawn"),
    ("UpdateGroup", "batch update"),
    ("UpdateSession", "session update"),
    ("UpdateThreadBudget", "budget"),
    ("WaitAgents", "wait"),
    ("WatchAgents", "agents watch"),
    ("WatchNotifications", "notify"),
    ("WatchSessions", "session watch"),
    ("WatchThreads", "watch"),
    ("WatchTranscript", "logs"),
];

/// Replaces the names of RPCs in a message of a service by commands.
pub(crate) fn name_commands(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(|character: char| character.is_ascii_alphanumeric()) {
        let (before, word_on) = rest.split_at(start);
        let end = word_on
            .find(|character: char| !character.is_ascii_alphanumeric())
            .unwrap_or(word_on.len());
        let (word, after) = word_on.split_at(end);
        out.push_str(before);
        match COMMANDS.iter().find(|(rpc, _)| *rpc == word && *rpc != "Attach") {
            Some((_, command)) => {
                out.push_str("`troupe ");
                out.push_str(command);
                out.push('`');
            }
            None => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use clap::CommandFactory as _;
    use prost_reflect::DescriptorPool;
    use troupe_proto::FILE_DESCRIPTOR_SET;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_rpc_has_a_command() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services: Vec<_> = pool.services().collect();
        let mut rpcs: Vec<String> = services
            .iter()
            .filter(|service| service.full_name().starts_with("troupe."))
            .flat_map(|service| service.methods().map(|method| method.name().to_owned()))
            .collect();
        rpcs.sort();
        let listed: Vec<&str> = COMMANDS.iter().map(|(rpc, _)| *rpc).collect();
        assert_eq!(listed, rpcs);
        let root = Cli::command();
        for (rpc, command) in COMMANDS {
            let found = command
                .split(' ')
                .try_fold(&root, |parent, name| parent.find_subcommand(name));
            assert!(found.is_some(), "{rpc}: `troupe {command}` does not exist");
        }
    }

    #[test]
    fn rpc_names_in_messages_become_commands() {
        assert_eq!(
            name_commands("close it with CloseSession first (CloseSessions)"),
            "close it with `troupe session close` first (CloseSessions)"
        );
        assert_eq!(name_commands("nothing here"), "nothing here");
    }
}
