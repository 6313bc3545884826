//! The commands `agents spawnable`, `agents diagnostics`, `agents watch` and `agents spawn-tool`.

use serde_json::json;
use troupe_proto::{
    registry::v1::{DescribeSpawnToolRequest, Diagnostic, ListDiagnosticsRequest, WatchAgentsRequest},
    supervisor::v1::SpawnableAgent,
};

use crate::{
    context::Context,
    error::Result,
    ids, json, listing,
    options::ProjectArgs,
    sanitize,
    ui::{Cell, Table, style},
    workspace::Workspace,
};

/// The arguments of `agents spawnable`.
#[derive(Debug, clap::Args)]
pub(super) struct SpawnableArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD")]
    thread: String,
}

/// Lists the roles that a thread may spawn.
pub(super) async fn spawnable(args: SpawnableArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread = ids::thread(&mut supervisor, &args.thread, None).await?;
    let agents = listing::spawnable(&mut supervisor, &thread).await?;
    context.ui.table(
        || json!({ "agents": json::list(&agents) }),
        || spawnable_table(&agents),
        "the thread may spawn no role",
    )
}

fn spawnable_table(agents: &[SpawnableAgent]) -> Table<4> {
    let mut table = Table::new(["ROLE", "PERSONAS", "MODEL", "DESCRIPTION"]).optional(&["MODEL", "PERSONAS"]);
    for agent in agents {
        let personas = agent.agent_names.iter().map(|persona| persona.name.as_str());
        table.row([
            Cell::new(style::NAME, &agent.agent_type),
            Cell::plain(personas.collect::<Vec<_>>().join(", ")),
            Cell::plain(agent.model()),
            Cell::new(style::DIM, &agent.description),
        ]);
    }
    table
}

/// Lists the findings of the registry about the templates of a project.
pub(super) async fn diagnostics(project: ProjectArgs, context: &Context) -> Result<()> {
    let mut request = ListDiagnosticsRequest {
        cwd: project.cwd()?,
        ..ListDiagnosticsRequest::default()
    };
    let mut workspace = Workspace::around(&request.cwd, context)?;
    let mut registry = context.registry().await?;
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    loop {
        let page = workspace
            .ask(context, async |digest| {
                request.workspace_digest = digest;
                registry.list_diagnostics(request.clone()).await
            })
            .await?;
        diagnostics.extend(page.diagnostics);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    context.ui.answer(
        || json!({ "diagnostics": json::list(&diagnostics) }),
        || diagnostics.iter().map(super::finding).collect::<Vec<_>>().join("\n"),
    )?;
    if diagnostics.is_empty() {
        context.ui.note("no findings");
    }
    Ok(())
}

/// Follows the changes of the roles until the process is interrupted or the stream fails.
pub(super) async fn watch(project: ProjectArgs, context: &Context) -> Result<()> {
    let cwd = project.cwd()?;
    let mut workspace = Workspace::around(&cwd, context)?;
    let mut registry = context.registry().await?;
    let mut revision = String::new();
    loop {
        let mut stream = workspace
            .ask(context, async |workspace_digest| {
                let cwd = cwd.clone();
                registry
                    .watch_agents(WatchAgentsRequest { cwd, workspace_digest })
                    .await
            })
            .await?;
        while let Some(message) = stream.message().await? {
            if !context.ui.is_text() {
                context.ui.value(&json::message(&message))?;
                continue;
            }
            if message.revision == revision {
                continue;
            }
            revision.clone_from(&message.revision);
            for agent in &message.changed {
                let name = style::paint(style::NAME, sanitize::line(&agent.agent_type));
                context
                    .ui
                    .line(format_args!("changed {name} {}", sanitize::line(&agent.description)))?;
            }
            for name in &message.removed {
                context.ui.line(format_args!("removed {}", sanitize::line(name)))?;
            }
            for diagnostic in &message.diagnostics {
                context.ui.line(super::finding(diagnostic))?;
            }
        }
    }
}

/// Shows the tools that describe the roles to a model.
pub(super) async fn spawn_tool(project: ProjectArgs, context: &Context) -> Result<()> {
    let mut request = DescribeSpawnToolRequest {
        cwd: project.cwd()?,
        ..DescribeSpawnToolRequest::default()
    };
    let mut workspace = Workspace::around(&request.cwd, context)?;
    let mut registry = context.registry().await?;
    let answer = workspace
        .ask(context, async |digest| {
            request.workspace_digest = digest;
            registry.describe_spawn_tool(request.clone()).await
        })
        .await?;
    context.ui.answer(
        || json::message(&answer),
        || {
            let tools = answer.tools.iter().map(|tool| {
                let name = style::paint(style::NAME, sanitize::line(&tool.name));
                format!("{name}\n{}", sanitize::block(&tool.description))
            });
            let parts = tools.chain(std::iter::once(sanitize::block(&answer.hint)));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
        },
    )
}
