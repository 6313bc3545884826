//! `troupe agents`: lists the roles, shows one role, creates a template.

mod list;
mod new;
mod show;
mod views;

use serde_json::json;
use troupe_proto::{
    common::v1::Namespace,
    registry::v1::{Agent, Diagnostic, ListAgentsRequest, Severity},
};

pub(super) use self::show::section;
use crate::{context::Context, error::Result, json, options::ProjectArgs, sanitize, ui::style, workspace::Workspace};

const AFTER_HELP: &str = "\
Examples:
  troupe agents
  troupe agents explorer --expanded
  troupe agents show reviewer
  troupe agents --registry http://10.0.0.7:50051
  troupe agents --no-cwd
  troupe agents new auditor --persona strict --persona fast --read-only
  troupe agents --output json | jq -r '.agents[].agent_type'";

/// The arguments of `agents`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// The roles to list.
    #[command(flatten)]
    list: List,
}

/// An action on roles.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a template for a new role; existing files are not overwritten
    New(new::Args),
    /// Show one role with its tools and prompts
    Show(show::Args),
    /// List the roles that a thread may spawn
    #[command(after_help = "Example: troupe agents spawnable scout")]
    Spawnable(views::SpawnableArgs),
    /// List the registry's findings about the templates
    #[command(after_help = "Example: troupe agents diagnostics")]
    Diagnostics(ProjectArgs),
    /// Follow changes of the roles
    #[command(after_help = "Example: troupe agents watch")]
    Watch(ProjectArgs),
    /// Show the tools and the hint that describe the roles to a model
    #[command(after_help = "Example: troupe agents spawn-tool")]
    SpawnTool(ProjectArgs),
}

/// The arguments of the listing.
#[derive(Debug, clap::Args)]
struct List {
    /// Role to list; `bug-hunter` and `bug_hunter` are the same
    #[arg(value_name = "TYPE")]
    agent_type: Option<String>,
    /// Include prompts, tool lists and the source of each role
    #[arg(long)]
    expanded: bool,
    /// List graph templates
    #[arg(long)]
    graph: bool,
    /// The project.
    #[command(flatten)]
    project: ProjectArgs,
}

/// Runs the action. Lists the roles by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    match args.action {
        Some(Action::New(args)) => new::run(&args, context),
        Some(Action::Show(args)) => show::run(args, context).await,
        Some(Action::Spawnable(args)) => views::spawnable(args, context).await,
        Some(Action::Diagnostics(project)) => views::diagnostics(project, context).await,
        Some(Action::Watch(project)) => views::watch(project, context).await,
        Some(Action::SpawnTool(project)) => views::spawn_tool(project, context).await,
        None => list(args.list, context).await,
    }
}

/// Lists the roles, together with the findings about broken templates.
async fn list(args: List, context: &Context) -> Result<()> {
    let answer = fetch(&args.project, args.agent_type, args.graph, context).await?;
    let value = || {
        json!({
            "agents": json::list(&answer.agents),
            "diagnostics": json::list(&answer.diagnostics),
        })
    };
    if args.expanded {
        let columns = context.ui.columns();
        context.ui.answer(value, || {
            let sections: Vec<String> = answer
                .agents
                .iter()
                .map(|agent| show::section(agent, columns))
                .collect();
            sections.join("\n\n")
        })?;
    } else {
        context.ui.table(value, || list::table(&answer.agents), "no roles")?;
    }
    for diagnostic in &answer.diagnostics {
        context.ui.note(finding(diagnostic));
    }
    Ok(())
}

/// Fetches the roles of the working directory.
pub(super) async fn roles(context: &Context) -> Result<Vec<Agent>> {
    let project = ProjectArgs::default();
    Ok(fetch(&project, None, false, context).await?.agents)
}

/// Roles and the findings about their files.
struct Answer {
    agents: Vec<Agent>,
    diagnostics: Vec<Diagnostic>,
}

/// Fetches all pages of the roles of a directory, or one role.
async fn fetch(project: &ProjectArgs, agent_type: Option<String>, graph: bool, context: &Context) -> Result<Answer> {
    let namespace = if graph {
        Namespace::RoleTemplate
    } else {
        Namespace::AgentType
    };
    let mut request = ListAgentsRequest {
        cwd: project.cwd()?,
        agent_type,
        namespace: namespace.into(),
        // Always expanded: the table shows model, effort and scope.
        expanded: true,
        allow_partial: true,
        ..ListAgentsRequest::default()
    };
    let mut workspace = Workspace::around(&request.cwd, context)?;
    let mut registry = context.registry().await?;
    let mut answer = Answer {
        agents: Vec::new(),
        diagnostics: Vec::new(),
    };
    loop {
        let page = workspace
            .ask(context, async |digest| {
                request.workspace_digest = digest;
                registry.list_agents(request.clone()).await
            })
            .await?;
        answer.agents.extend(page.agents);
        answer.diagnostics.extend(page.diagnostics);
        if page.next_page_token.is_empty() {
            return Ok(answer);
        }
        request.page_token = page.next_page_token;
    }
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
