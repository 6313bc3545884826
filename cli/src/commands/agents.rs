//! `troupe agents`: the roles that can be spawned here.

use std::path::PathBuf;

use serde_json::json;
use troupe_proto::{
    common::v1::Scope,
    registry::v1::{Agent, Diagnostic, ListAgentsRequest, Severity},
};

use crate::{
    context::{Context, directory_text},
    error::Result,
    json, names, sanitize,
    ui::{self, Cell, Line, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe agents
  troupe agents explorer --expanded
  troupe agents --output json | jq -r '.agents[].agent_type'";

/// The arguments of `agents`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// One role only; `bug-hunter` and `bug_hunter` are the same
    #[arg(value_name = "TYPE")]
    agent_type: Option<String>,
    /// With prompts, tool lists and where each role comes from
    #[arg(long)]
    expanded: bool,
    /// Whose roles: the directory that an agent would work in [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

/// Lists the roles; broken templates are reported beside the good ones.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let cwd = directory_text(args.cwd)?;
    let mut registry = context.registry().await?;
    let mut agents = Vec::new();
    let mut diagnostics = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListAgentsRequest {
            cwd: cwd.clone(),
            agent_type: args.agent_type.clone(),
            // Always: the table shows model, effort and scope.
            expanded: true,
            allow_partial: true,
            page_token,
            ..ListAgentsRequest::default()
        };
        let page = registry.list_agents(request).await?.into_inner();
        agents.extend(page.agents);
        diagnostics.extend(page.diagnostics);
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    context.ui.answer(
        || {
            json!({
                "agents": agents.iter().map(json::agent).collect::<Vec<_>>(),
                "diagnostics": diagnostics.iter().map(json::diagnostic).collect::<Vec<_>>(),
            })
        },
        || {
            if args.expanded {
                expanded(&agents)
            } else {
                table(&agents)
            }
        },
    )?;
    for diagnostic in &diagnostics {
        context.ui.note(finding(diagnostic));
    }
    Ok(())
}

fn table(agents: &[Agent]) -> String {
    let mut table = Table::new([
        "ROLE", "PERSONAS", "MODEL", "EFFORT", "SANDBOX", "SCOPE", "TOOLS", "WHAT FOR",
    ]);
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
    table.render(ui::columns())
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

/// The tools in a word: all, or how many patterns allow and deny.
fn tools(agent: &Agent) -> String {
    match (agent.allow_list.len(), agent.deny_list.len()) {
        (0, 0) => "all".to_owned(),
        (0, _) if agent.deny_list.iter().any(|pattern| pattern == "*") => "none".to_owned(),
        (0, denied) => format!("all but {denied}"),
        (allowed, 0) => format!("{allowed} allowed"),
        (allowed, denied) => format!("{allowed} allowed, {denied} denied"),
    }
}

fn expanded(agents: &[Agent]) -> String {
    let sections: Vec<String> = agents.iter().map(section).collect();
    sections.join("\n\n")
}

fn section(agent: &Agent) -> String {
    let columns = ui::columns();
    let field = |name: &str, value: &str| match value {
        "" => None,
        value => Some(
            Line::default()
                .mark(style::DIM, format!("  {name:<12}"))
                .word(style::PLAIN, value)
                .render(columns),
        ),
    };
    let head = Line::default()
        .mark(style::NAME, sanitize::line(&agent.agent_type))
        .word(style::PLAIN, &agent.description)
        .render(columns);
    let source = agent.source.as_ref().map(|source| {
        let scope = names::scope(source.scope()).to_ascii_lowercase();
        format!("{scope}: {}", source.path)
    });
    let hides = agent.source.as_ref().map(|source| source.shadowed.join(", "));
    let mut lines = vec![head];
    lines.extend(field("model", agent.model()));
    lines.extend(field("effort", agent.reasoning_effort()));
    lines.extend(field("sandbox", if agent.read_only() { "read-only" } else { "" }));
    lines.extend(field("allowed", &agent.allow_list.join(" ")));
    lines.extend(field("denied", &agent.deny_list.join(" ")));
    lines.extend(field("may spawn", &agent.spawn_list.join(" ")));
    lines.extend(field("from", &source.unwrap_or_default()));
    lines.extend(field("hides", &hides.unwrap_or_default()));
    for persona in &agent.agent_names {
        let defaults = [persona.model(), persona.reasoning_effort()].join(" ");
        let text = format!("{}  {}  {}", persona.name, persona.description, defaults);
        lines.extend(field("persona", text.trim_end()));
    }
    if let Some(prompt) = &agent.default_prompt {
        lines.extend(
            sanitize::block(prompt)
                .lines()
                .map(|line| format!("  {} {line}", style::paint(style::DIM, "│"))),
        );
    }
    lines.join("\n")
}

fn finding(diagnostic: &Diagnostic) -> String {
    let (look, word) = match diagnostic.severity() {
        Severity::Error => (style::BAD, "error:"),
        Severity::Warning | Severity::Unspecified => (style::WARN, "warning:"),
    };
    let place = match diagnostic.line {
        0 => diagnostic.path.clone(),
        line => format!("{}:{line}", diagnostic.path),
    };
    let mut text = format!(
        "{} {}: {}",
        style::paint(look, word),
        sanitize::line(&place),
        sanitize::line(&diagnostic.message)
    );
    if !diagnostic.suggestion.is_empty() {
        text.push_str(&format!("\n hint: {}", sanitize::line(&diagnostic.suggestion)));
    }
    text
}

#[cfg(test)]
mod tests {
    use troupe_proto::{common::v1::TemplateSource, registry::v1::Persona};

    use super::*;

    fn explorer() -> Agent {
        Agent {
            agent_type: "explorer".to_owned(),
            description: "Finds things".to_owned(),
            allow_list: vec!["exec_command".to_owned(), "read_file".to_owned()],
            agent_names: vec![Persona {
                name: "fast".to_owned(),
                description: "Quickly".to_owned(),
                ..Persona::default()
            }],
            model: Some("gpt-5.2".to_owned()),
            read_only: Some(true),
            default_prompt: Some("You explore.\u{1b}[2J".to_owned()),
            source: Some(TemplateSource {
                scope: Scope::Project.into(),
                path: "/p/.codex/.agents/explorer.md".to_owned(),
                shadowed: vec!["embedded:agents/explorer.md".to_owned()],
                ..TemplateSource::default()
            }),
            ..Agent::default()
        }
    }

    #[test]
    fn a_row_tells_the_role() {
        let text = ui::plain(&table(&[explorer()]));
        let row = text.lines().nth(1).unwrap_or_default();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            [
                "explorer",
                "fast",
                "gpt-5.2",
                "-",
                "read-only",
                "project",
                "2",
                "allowed",
                "Finds",
                "things"
            ]
        );
    }

    #[test]
    fn a_section_tells_everything() {
        let text = ui::plain(&expanded(&[explorer()]));
        for expected in [
            "exec_command read_file",
            "project: /p/.codex",
            "embedded:agents",
            "fast Quickly",
            "You explore.[2J",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn tools_in_a_word() {
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
