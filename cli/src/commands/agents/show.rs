//! `troupe agents show`: shows every detail of one role.

use clap_complete::ArgValueCompleter;
use serde_json::json;
use tool_policy::{CANONICAL_TOOLS, Layer, Policy};
use troupe_proto::{common::v1::MatchMode, registry::v1::Agent};

use super::{fetch, finding};
use crate::{
    complete,
    context::Context,
    error::{Error, Result},
    json, names,
    options::ProjectArgs,
    sanitize,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe agents show reviewer
  troupe agents show planner --graph
  troupe agents show worker --output json | jq -r '.tools.allowed[]'";

/// Width of the column of field names.
const FIELD: usize = 13;

/// The arguments of `agents show`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The role; `bug-hunter` and `bug_hunter` are the same
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::roles))]
    name: String,
    /// The graph template of that name
    #[arg(long)]
    graph: bool,
    /// The project
    #[command(flatten)]
    project: ProjectArgs,
}

/// Shows the role. A template that is not listed because of a defect is explained instead.
pub(super) async fn run(args: Args, context: &Context) -> Result<()> {
    let answer = fetch(&args.project, Some(args.name.clone()), args.graph, context).await?;
    for diagnostic in &answer.diagnostics {
        context.ui.note(finding(diagnostic));
    }
    let Some(agent) = answer.agents.first() else {
        let message = format!(
            "the template of {:?} is invalid, so the role is not listed",
            sanitize::line(&args.name)
        );
        return Err(Error::failure(message).hint("correct the file; `troupe lint` shows every finding with its line"));
    };
    let tools = Tools::of(agent);
    context.ui.page(
        || {
            json!({
                "agent": json::message(agent),
                "tools": { "allowed": tools.allowed, "denied": tools.denied },
                "diagnostics": json::list(&answer.diagnostics),
            })
        },
        || role_text(agent, &tools, context.ui.columns()),
    )
}

/// The canonical tools that a role's lists allow and deny. A parent may deny more tools.
struct Tools {
    allowed: Vec<&'static str>,
    denied: Vec<&'static str>,
}

impl Tools {
    fn of(agent: &Agent) -> Self {
        let layer = Layer {
            origin: format!("role:{}", agent.agent_type),
            mode: match agent.r#match() {
                MatchMode::Unspecified | MatchMode::Glob => tool_policy::MatchMode::Glob,
                MatchMode::GlobIgnoreCase => tool_policy::MatchMode::GlobIgnoreCase,
                MatchMode::Literal => tool_policy::MatchMode::Literal,
            },
            allow: agent.allow_list.clone(),
            deny: agent.deny_list.clone(),
        };
        // The registry compiled the same lists. If they do not compile here, the tools are left out.
        let policy = Policy::compile(vec![layer]).ok();
        let allows = |tool: &&'static str| policy.as_ref().is_some_and(|policy| policy.allows(tool));
        let (allowed, denied) = CANONICAL_TOOLS.iter().copied().partition(allows);
        Self { allowed, denied }
    }
}

fn role_text(agent: &Agent, tools: &Tools, columns: usize) -> String {
    let mut text = section(agent, columns);
    text.push_str("\n\n");
    let of_lists = match tools.denied.as_slice() {
        [] => "all tools of the parent".to_owned(),
        denied => format!("{}\n  not {}", tools.allowed.join(" "), denied.join(" ")),
    };
    text.push_str(&format!(
        "{}\n  {of_lists}",
        heading("tools after the lists are applied")
    ));
    for persona in &agent.agent_names {
        if let Some(prompt) = &persona.prompt {
            let title = format!("prompt of {}: {}", agent.agent_type, persona.name);
            text.push_str(&format!("\n\n{}\n{}", heading(&title), quoted(prompt)));
        }
    }
    text
}

fn heading(text: &str) -> String {
    style::paint(style::HEADING, sanitize::line(text)).to_string()
}

/// Formats a prompt with a bar before each line.
fn quoted(prompt: &str) -> String {
    let lines: Vec<String> = sanitize::block(prompt)
        .lines()
        .map(|line| format!("  {} {line}", style::paint(style::DIM, "│")))
        .collect();
    lines.join("\n")
}

/// Formats a role with its lists, its source and its default prompt.
pub(in crate::commands) fn section(agent: &Agent, columns: usize) -> String {
    let field = |name: &str, value: &str| match value {
        "" => None,
        value => Some(
            Line::default()
                .mark(style::DIM, format!("  {name:<FIELD$}"))
                .word(style::PLAIN, value)
                .render(columns),
        ),
    };
    let head = Line::default()
        .mark(style::NAME, sanitize::line(&agent.agent_type))
        .word(style::PLAIN, &agent.description)
        .render(columns);
    let mut lines = vec![head];
    lines.extend(field("model", agent.model()));
    lines.extend(field("effort", agent.reasoning_effort()));
    lines.extend(field("sandbox", if agent.read_only() { "read-only" } else { "" }));
    lines.extend(field("allowed", &agent.allow_list.join(" ")));
    lines.extend(field("denied", &agent.deny_list.join(" ")));
    lines.extend(field("matched", match_mode(agent)));
    lines.extend(field("may spawn", &agent.spawn_list.join(" ")));
    lines.extend(field("may grant", &agent.grant_list.join(" ")));
    lines.extend(field("keywords", &agent.keywords.join(" ")));
    lines.extend(field("version", agent.version()));
    lines.extend(field("capabilities", &agent.capabilities.join(" ")));
    lines.extend(field("constraints", &agent.constraints.join(" ")));
    if let Some(source) = &agent.source {
        let scope = names::scope(source.scope()).to_ascii_lowercase();
        lines.extend(field("from", &format!("{scope}: {}", source.path)));
        lines.extend(field("dialect", &names::dialect(source.dialect()).to_ascii_lowercase()));
        lines.extend(field("digest", &source.digest));
        for hidden in &source.shadowed {
            lines.extend(field("hides", hidden));
        }
    }
    for persona in &agent.agent_names {
        let defaults = [persona.model(), persona.reasoning_effort()].join(" ");
        let text = format!("{}  {}  {}", persona.name, persona.description, defaults);
        lines.extend(field("persona", text.trim_end()));
    }
    if let Some(prompt) = &agent.default_prompt {
        lines.push(quoted(prompt));
    }
    lines.join("\n")
}

/// Describes how patterns are compared if that differs from the default.
fn match_mode(agent: &Agent) -> &'static str {
    if agent.allow_list.is_empty() && agent.deny_list.is_empty() {
        return "";
    }
    match agent.r#match() {
        MatchMode::Unspecified | MatchMode::Glob => "",
        MatchMode::GlobIgnoreCase => "case-insensitive",
        MatchMode::Literal => "as literal names",
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::{
        common::v1::{Scope, TemplateSource},
        registry::v1::Persona,
    };

    use super::*;
    use crate::ui;

    fn explorer() -> Agent {
        Agent {
            agent_type: "explorer".to_owned(),
            description: "Finds things".to_owned(),
            allow_list: vec!["exec_command".to_owned(), "read_*".to_owned()],
            deny_list: vec!["read_mcp_resource".to_owned()],
            agent_names: vec![Persona {
                name: "fast".to_owned(),
                description: "Quickly".to_owned(),
                prompt: Some("Be fast.".to_owned()),
                ..Persona::default()
            }],
            keywords: vec!["find".to_owned()],
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
    fn section_shows_source_and_prompt() {
        let text = ui::plain(&section(&explorer(), 120));
        for expected in [
            "exec_command read_*",
            "project: /p/.codex",
            "embedded:agents",
            "fast Quickly",
            "You explore.[2J",
            "keywords",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("Be fast."), "{text}");
    }

    #[test]
    fn role_shows_tools_and_all_prompts() {
        let agent = explorer();
        let tools = Tools::of(&agent);
        assert_eq!(tools.allowed, ["read_transcript", "exec_command", "read_file"]);
        assert!(tools.denied.contains(&"apply_patch") && tools.denied.contains(&"read_mcp_resource"));
        let text = ui::plain(&role_text(&agent, &tools, 120));
        assert!(
            text.contains("  read_transcript exec_command read_file\n  not spawn_agent"),
            "{text}"
        );
        assert!(text.ends_with("prompt of explorer: fast\n  │ Be fast."), "{text}");
    }

    #[test]
    fn role_without_lists_has_its_parents_tools() {
        let agent = Agent {
            agent_type: "free".to_owned(),
            ..Agent::default()
        };
        assert!(ui::plain(&role_text(&agent, &Tools::of(&agent), 120)).contains("all tools of the parent"));
    }
}
