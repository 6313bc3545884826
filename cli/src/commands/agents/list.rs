//! The list of roles: one row per role.

use troupe_proto::{common::v1::Scope, registry::v1::Agent};

use crate::{
    names,
    ui::{Cell, Table, style},
};

/// Formats the roles as a table.
pub(super) fn table(agents: &[Agent]) -> Table<8> {
    let mut table = Table::new([
        "ROLE",
        "PERSONAS",
        "MODEL",
        "EFFORT",
        "SANDBOX",
        "SCOPE",
        "TOOLS",
        "DESCRIPTION",
    ])
    .optional(&["EFFORT", "SANDBOX", "MODEL", "SCOPE", "TOOLS", "PERSONAS"]);
    for agent in agents {
        let personas: Vec<&str> = agent.agent_names.iter().map(|persona| persona.name.as_str()).collect();
        table.row([
            Cell::new(style::NAME, &agent.agent_type),
            Cell::plain(or_dash(&personas.join(", "))),
            Cell::plain(or_dash(agent.model())),
            Cell::plain(or_dash(agent.reasoning_effort())),
            Cell::plain(if agent.read_only() { "read-only" } else { "-" }),
            scope(agent),
            Cell::plain(tools(agent)),
            Cell::new(style::DIM, &agent.description),
        ]);
    }
    table
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn scope(agent: &Agent) -> Cell {
    let scope = agent
        .source
        .as_ref()
        .map_or(Scope::Unspecified, |source| source.scope());
    let look = match scope {
        Scope::Project => style::GOOD,
        Scope::Unspecified | Scope::User | Scope::System => style::PLAIN,
    };
    Cell::new(look, names::scope(scope).to_ascii_lowercase())
}

/// Summarizes the tools: all of them, or the number of allow and deny patterns.
fn tools(agent: &Agent) -> String {
    match (agent.allow_list.len(), agent.deny_list.len()) {
        (0, 0) => "all".to_owned(),
        (0, _) if agent.deny_list.iter().any(|pattern| pattern == "*") => "none".to_owned(),
        (0, denied) => format!("all but {denied}"),
        (allowed, 0) => format!("{allowed} allowed"),
        (allowed, denied) => format!("{allowed} allowed, {denied} denied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_lists_are_summarized() {
        let agent = |allow: &[&str], deny: &[&str]| Agent {
            allow_list: allow.iter().map(ToString::to_string).collect(),
            deny_list: deny.iter().map(ToString::to_string).collect(),
            ..Agent::default()
        };
        assert_eq!(tools(&agent(&[], &[])), "all");
        assert_eq!(tools(&agent(&[], &["*"])), "none");
        assert_eq!(tools(&agent(&[], &["a"])), "all but 1");
        assert_eq!(tools(&agent(&["a"], &["b"])), "1 allowed, 1 denied");
    }
}
