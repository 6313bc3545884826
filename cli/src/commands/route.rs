//! `troupe route`: shows which role the registry selects for a task.

use troupe_proto::registry::v1::{RouteAgentRequest, RouteAgentResponse, RouteScore};

use crate::{
    context::Context,
    error::Result,
    json,
    message::TextArgs,
    options::ProjectArgs,
    sanitize,
    ui::{Cell, Table, style},
    workspace::Workspace,
};

const AFTER_HELP: &str = "\
Examples:
  troupe route 'Review the last commit for leaks'
  troupe route --file task.md --output json

`troupe spawn --route TASK` spawns the selected role.";

/// The arguments of `route`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The task.
    #[command(flatten)]
    text: TextArgs,
    /// Role that a caller requested; it takes precedence if it exists
    #[arg(long, value_name = "ROLE", default_value = "", hide_default_value = true)]
    explicit: String,
    /// The project.
    #[command(flatten)]
    project: ProjectArgs,
}

/// Routes the task without a spawn.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut request = RouteAgentRequest {
        cwd: args.project.cwd()?,
        text: args.text.read()?,
        explicit_agent: args.explicit,
        auto_route: true,
        ..RouteAgentRequest::default()
    };
    let mut workspace = Workspace::around(&request.cwd, context)?;
    let mut registry = context.registry().await?;
    let answer = workspace
        .ask(context, async |digest| {
            request.workspace_digest = digest;
            registry.route_agent(request.clone()).await
        })
        .await?;
    context.ui.note(outcome(&answer));
    context.ui.table(
        || json::message(&answer),
        || table(&answer.scores),
        "no role matches the task",
    )
}

fn outcome(answer: &RouteAgentResponse) -> String {
    let role = match answer.agent_type.as_str() {
        "" => "no role",
        role => role,
    };
    format!(
        "{} {}",
        style::paint(style::NAME, sanitize::line(role)),
        sanitize::line(&answer.reason)
    )
}

fn table(scores: &[RouteScore]) -> Table<3> {
    let mut table = Table::new(["ROLE", "SCORE", "KEYWORDS"]);
    for score in scores {
        table.row([
            Cell::new(style::NAME, &score.agent_type),
            Cell::plain(score.score.to_string()),
            Cell::plain(score.keywords.join(", ")),
        ]);
    }
    table
}
