//! `troupe resolve`: what a spawn would get, and what decided each value.

use std::path::PathBuf;

use serde_json::json;
use troupe_proto::{
    common::v1::{ResolvedSpawn, ToolPolicyLayer},
    registry::v1::{InheritedSettings, ResolveSpawnRequest},
};

use crate::{
    context::{Context, directory_text},
    error::{Error, Result},
    json, names, sanitize,
    ui::{self, Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe resolve explorer
  troupe resolve reviewer --agent-name strict --model gpt-5.2 --prompt
  troupe resolve worker --inherit-model gpt-5.2-codex --output json";

/// The arguments of `resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The role
    #[arg(value_name = "TYPE")]
    agent_type: String,
    /// The persona
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// The model that the spawn would name
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The reasoning effort that the spawn would name
    #[arg(long, value_name = "EFFORT")]
    effort: Option<String>,
    /// The parent's model
    #[arg(long, value_name = "MODEL")]
    inherit_model: Option<String>,
    /// The parent's reasoning effort
    #[arg(long, value_name = "EFFORT")]
    inherit_effort: Option<String>,
    /// Where the agent would work [default: the current directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Show the prompt too
    #[arg(long)]
    prompt: bool,
}

/// Resolves without spawning.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let request = ResolveSpawnRequest {
        cwd: directory_text(args.cwd)?,
        agent_type: Some(args.agent_type),
        agent_name: args.agent_name.unwrap_or_default(),
        model: args.model.unwrap_or_default(),
        reasoning_effort: args.effort,
        inherited: Some(InheritedSettings {
            model: args.inherit_model.unwrap_or_default(),
            reasoning_effort: args.inherit_effort.unwrap_or_default(),
            ..InheritedSettings::default()
        }),
        ..ResolveSpawnRequest::default()
    };
    let answer = context.registry().await?.resolve_spawn(request).await?.into_inner();
    let resolved = answer
        .resolved
        .ok_or_else(|| Error::failure("the registry answered nothing"))?;
    context.ui.answer(
        || json!({ "resolved": json::resolved(&resolved) }),
        || text(&resolved, args.prompt),
    )?;
    for warning in &resolved.warnings {
        context.ui.note(format!(
            "{} {}",
            style::paint(style::WARN, "warning:"),
            sanitize::line(warning)
        ));
    }
    Ok(())
}

fn text(resolved: &ResolvedSpawn, with_prompt: bool) -> String {
    let mut table = Table::new(["WHAT", "DECIDED BY", "VALUE"]);
    let role = match resolved.agent_name.as_str() {
        "" => resolved.agent_type.clone(),
        persona => format!("{}: {persona}", resolved.agent_type),
    };
    row(&mut table, "role", &role, "");
    row(&mut table, "for", &resolved.agent_description, "");
    let origin = |field: &str| match resolved.get_origins(field) {
        Some(origin) => names::value_origin(origin).to_ascii_lowercase(),
        None => String::new(),
    };
    let sandbox = names::sandbox(resolved.sandbox());
    for (field, value) in [
        ("model", resolved.model.as_str()),
        ("reasoning_effort", resolved.reasoning_effort.as_str()),
        ("provider", resolved.provider.as_str()),
        ("sandbox", sandbox),
    ] {
        row(&mut table, field, value, &origin(field));
    }
    for layer in resolved.tool_policy.iter().flat_map(|policy| &policy.layers) {
        row(&mut table, "tools", &patterns(layer), &layer.origin);
    }
    row(&mut table, "may spawn", &resolved.spawn_list.join(" "), "");
    row(&mut table, "may grant", &resolved.grant_list.join(" "), "");
    if let Some(source) = &resolved.source {
        row(
            &mut table,
            "template",
            &source.path,
            &names::scope(source.scope()).to_ascii_lowercase(),
        );
        row(&mut table, "digest", &source.digest, "");
        row(&mut table, "hides", &source.shadowed.join(" "), "");
    }
    let mut text = table.render(ui::columns());
    if with_prompt {
        for block in &resolved.blocks {
            let heading = format!("── {} ", names::block_kind(block.kind()).to_ascii_lowercase());
            text.push_str(&format!(
                "\n\n{}\n{}",
                style::paint(style::HEADING, heading),
                sanitize::block(&block.text)
            ));
        }
    }
    text
}

fn row(table: &mut Table<3>, what: &'static str, value: &str, origin: &str) {
    if !value.is_empty() {
        table.row([
            Cell::new(style::DIM, what),
            Cell::new(style::NAME, origin),
            Cell::plain(value),
        ]);
    }
}

fn patterns(layer: &ToolPolicyLayer) -> String {
    let allowed = match layer.allow_list.join(" ") {
        none if none.is_empty() => "all".to_owned(),
        some => some,
    };
    match layer.deny_list.join(" ") {
        none if none.is_empty() => allowed,
        denied => format!("{allowed}, not {denied}"),
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::common::v1::{BlockKind, PromptBlock, Sandbox, ToolPolicy, ValueOrigin};

    use super::*;

    fn resolved() -> ResolvedSpawn {
        let mut resolved = ResolvedSpawn {
            agent_type: "worker".to_owned(),
            model: "gpt-5.2".to_owned(),
            sandbox: Sandbox::WorkspaceWrite.into(),
            tool_policy: Some(ToolPolicy {
                layers: vec![ToolPolicyLayer {
                    origin: "role:worker".to_owned(),
                    deny_list: vec!["spawn_*".to_owned()],
                    ..ToolPolicyLayer::default()
                }],
            }),
            blocks: vec![PromptBlock {
                kind: BlockKind::Role.into(),
                text: "You work.\u{1b}[2J\nHard.".to_owned(),
                ..PromptBlock::default()
            }],
            ..ResolvedSpawn::default()
        };
        resolved.insert_origins("model".to_owned(), ValueOrigin::Explicit);
        resolved
    }

    #[test]
    fn every_value_has_its_origin() {
        let text = ui::plain(&text(&resolved(), false));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = text.lines().map(words).collect();
        assert!(lines.contains(&words("model explicit gpt-5.2")), "{text}");
        assert!(lines.contains(&words("tools role:worker all, not spawn_*")), "{text}");
        assert!(!text.contains("You work"), "{text}");
    }

    #[test]
    fn the_prompt_is_shown_when_asked_for() {
        let text = ui::plain(&text(&resolved(), true));
        assert!(
            text.contains("── role") && text.ends_with("You work.[2J\nHard."),
            "{text}"
        );
    }
}
