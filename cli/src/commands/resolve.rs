//! `troupe resolve`: shows the result of a spawn without spawning, and the origin of each value.

use serde_json::json;
use troupe_proto::{
    common::v1::{EdgeManagement, Mode, ResolvedSpawn, Sandbox, ToolPolicyLayer},
    registry::v1::{InheritedSettings, ResolveSpawnRequest},
};

use crate::{
    choices,
    context::Context,
    error::{Error, Result},
    json, names,
    options::ProjectArgs,
    sanitize,
    ui::{Cell, Table, style},
    workspace::Workspace,
};

const AFTER_HELP: &str = "\
Examples:
  troupe resolve explorer
  troupe resolve reviewer --agent-name strict --model gpt-5.2 --prompt
  troupe resolve --graph planner --mode planning
  troupe resolve worker --registry http://10.0.0.7:50051
  troupe resolve scribe --no-cwd
  troupe resolve worker --inherit-model gpt-5.2-codex --inherit-sandbox read-only --output json";

/// The arguments of `resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Role
    #[arg(value_name = "ROLE", required_unless_present = "graph", conflicts_with = "graph")]
    agent_type: Option<String>,
    /// Graph template instead of a role
    #[arg(long, value_name = "NAME")]
    graph: Option<String>,
    /// Persona
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Model of the spawn
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Reasoning effort of the spawn
    #[arg(long, value_name = "EFFORT")]
    effort: Option<String>,
    /// Model provider of the spawn
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Model of the parent
    #[arg(long, value_name = "MODEL")]
    inherit_model: Option<String>,
    /// Reasoning effort of the parent
    #[arg(long, value_name = "EFFORT")]
    inherit_effort: Option<String>,
    /// Model provider of the parent
    #[arg(long, value_name = "PROVIDER")]
    inherit_provider: Option<String>,
    /// Sandbox of the parent [default: workspace-write]
    #[arg(long, value_name = "SANDBOX", value_parser = choices::sandbox())]
    inherit_sandbox: Option<Sandbox>,
    /// Mode of the session [default: implementation]
    #[arg(long, value_name = "MODE", value_parser = choices::mode())]
    mode: Option<Mode>,
    /// SHA-256 that the template must have
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
    /// The project.
    #[command(flatten)]
    project: ProjectArgs,
    /// Include the prompt
    #[arg(long)]
    prompt: bool,
}

/// Resolves a spawn without performing it.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let with_prompt = args.prompt;
    let mut request = request(args)?;
    let mut workspace = Workspace::around(&request.cwd, context)?;
    let mut registry = context.registry().await?;
    let answer = workspace
        .ask(context, async |digest| {
            request.workspace_digest = digest;
            registry.resolve_spawn(request.clone()).await
        })
        .await?;
    let resolved = answer
        .resolved
        .ok_or_else(|| Error::failure("the registry returned no result"))?;
    context.ui.page(
        || json!({ "resolved": json::message(&resolved) }),
        || text(&resolved, with_prompt, context.ui.columns()),
    )?;
    for warning in &resolved.warnings {
        context.ui.warn(warning);
    }
    Ok(())
}

fn request(args: Args) -> Result<ResolveSpawnRequest> {
    let sandbox = args.inherit_sandbox.unwrap_or_default();
    let mode = args.mode.unwrap_or_default();
    Ok(ResolveSpawnRequest {
        cwd: args.project.cwd()?,
        agent_type: args.agent_type,
        role_template: args.graph,
        agent_name: args.agent_name.unwrap_or_default(),
        model: args.model.unwrap_or_default(),
        reasoning_effort: args.effort,
        provider: args.provider.unwrap_or_default(),
        inherited: Some(InheritedSettings {
            model: args.inherit_model.unwrap_or_default(),
            reasoning_effort: args.inherit_effort.unwrap_or_default(),
            provider: args.inherit_provider.unwrap_or_default(),
            sandbox: sandbox.into(),
            ..InheritedSettings::default()
        }),
        mode: mode.into(),
        expected_digest: args.digest,
        ..ResolveSpawnRequest::default()
    })
}

/// The origin of values without a recorded origin: they come from the template or are empty.
const TEMPLATE: &str = "template";

pub(super) fn text(resolved: &ResolvedSpawn, with_prompt: bool, columns: usize) -> String {
    let mut table = Table::new(["FIELD", "ORIGIN", "VALUE"]);
    let role = match resolved.agent_name.as_str() {
        "" => resolved.agent_type.clone(),
        persona => format!("{}: {persona}", resolved.agent_type),
    };
    row(&mut table, "role", &role, "request");
    row(&mut table, "description", &resolved.agent_description, TEMPLATE);
    let origin = |field: &str| match resolved.get_origins(field) {
        Some(origin) => names::value_origin(origin).to_ascii_lowercase(),
        None => String::new(),
    };
    // The runner chooses a value that no layer sets, so the origin of such a value is the runner.
    for (field, value) in [
        ("model", resolved.model.as_str()),
        ("reasoning_effort", resolved.reasoning_effort.as_str()),
        ("provider", resolved.provider.as_str()),
    ] {
        match value {
            "" => row(&mut table, field, "default of the runner", "runner"),
            value => row(&mut table, field, value, &origin(field)),
        }
    }
    row(
        &mut table,
        "sandbox",
        names::sandbox(resolved.sandbox()),
        &origin("sandbox"),
    );
    row(&mut table, "endpoint", &resolved.endpoint, TEMPLATE);
    let mut parameters: Vec<_> = resolved.parameters.iter().collect();
    parameters.sort();
    for (name, value) in parameters {
        row(&mut table, "parameter", &format!("{name} = {value}"), TEMPLATE);
    }
    tools(&mut table, resolved);
    row(&mut table, "may spawn", &resolved.spawn_list.join(" "), TEMPLATE);
    row(&mut table, "may grant", &resolved.grant_list.join(" "), TEMPLATE);
    graph(&mut table, resolved);
    let instructions = names::instructions_mode(resolved.instructions_mode()).to_ascii_lowercase();
    row(&mut table, "instructions", &instructions, "dialect");
    if let Some(source) = &resolved.source {
        let scope = names::scope(source.scope()).to_ascii_lowercase();
        row(&mut table, "template", &source.path, &scope);
        let dialect = names::dialect(source.dialect()).to_ascii_lowercase();
        row(&mut table, "dialect", &dialect, "path");
        row(&mut table, "digest", &source.digest, "");
        for hidden in &source.shadowed {
            row(&mut table, "hides", hidden, "");
        }
    }
    let mut text = table.render(columns);
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

/// Adds the tool policy layers. A tool has to be allowed by every layer.
fn tools(table: &mut Table<3>, resolved: &ResolvedSpawn) {
    let layers = resolved
        .tool_policy
        .as_ref()
        .map_or(&[][..], |policy| policy.layers.as_slice());
    if layers.is_empty() {
        row(table, "tools", "all tools of the parent", "parent");
    }
    for layer in layers {
        row(table, "tools", &patterns(layer), &layer.origin);
    }
}

/// Adds the graph permissions of a graph template.
fn graph(table: &mut Table<3>, resolved: &ResolvedSpawn) {
    row(table, "capabilities", &resolved.capabilities.join(" "), TEMPLATE);
    match resolved.edge_management() {
        EdgeManagement::Unspecified | EdgeManagement::None => {}
        edges => row(
            table,
            "edges",
            &names::edge_management(edges).to_ascii_lowercase(),
            "capabilities",
        ),
    }
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
    use troupe_proto::common::v1::{BlockKind, PromptBlock, ToolPolicy, ValueOrigin};

    use super::*;
    use crate::ui;

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
        let text = ui::plain(&text(&resolved(), false, 120));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = text.lines().map(words).collect();
        assert!(lines.contains(&words("model explicit gpt-5.2")), "{text}");
        assert!(lines.contains(&words("tools role:worker all, not spawn_*")), "{text}");
        assert!(
            lines.contains(&words("provider runner default of the runner")),
            "{text}"
        );
        assert!(!text.contains("You work"), "{text}");
    }

    #[test]
    fn prompt_is_shown_on_request() {
        let text = ui::plain(&text(&resolved(), true, 120));
        assert!(
            text.contains("── role") && text.ends_with("You work.[2J\nHard."),
            "{text}"
        );
    }
}
