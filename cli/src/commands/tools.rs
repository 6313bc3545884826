//! `troupe tools`: lists the tools that a thread is offered, and checks whether it may use one.

use clap::Subcommand;
use troupe_proto::supervisor::v1::{AuthorizeToolRequest, DescribeToolsRequest, ToolDescription};

use crate::{
    context::Context,
    error::{Error, Result},
    ids, json,
    ui::{Cell, Line, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe tools scout
  troupe tools check scout exec_command";

/// The arguments of `tools`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", required = true)]
    thread: Option<String>,
}

/// An action on tools.
#[derive(Debug, Subcommand)]
enum Action {
    /// Check whether a thread may use a tool
    #[command(after_help = "Example: troupe tools check scout exec_command")]
    Check(CheckArgs),
}

/// The arguments of `tools check`.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD")]
    thread: String,
    /// Tool, as the agent's program or Troupe names it
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Arguments of the call, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Kind of runner that executes the call; its table of native tools applies
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    runner_kind: String,
    /// Path that the call reads or writes, absolute; may be repeated
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
}

/// Runs the action. Lists the tools by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match args.action {
        Some(Action::Check(args)) => {
            let request = AuthorizeToolRequest {
                thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
                tool: args.tool.clone(),
                arguments_json: args.arguments,
                runner_kind: args.runner_kind,
                resolved_paths: args.path,
                ..AuthorizeToolRequest::default()
            };
            let answer = supervisor.authorize_tool(request).await?.into_inner();
            let (look, word) = match (answer.allowed, answer.approval_id.as_str()) {
                (true, _) => (style::GOOD, "allowed"),
                (false, "") => (style::BAD, "denied"),
                (false, _) => (style::WARN, "needs approval"),
            };
            context.ui.answer(
                || json::message(&answer),
                || {
                    Line::default()
                        .mark(look, word)
                        .word(style::NAME, &args.tool)
                        .word(style::PLAIN, &answer.reason)
                },
            )?;
            match answer.allowed {
                true => Ok(()),
                false => Err(Error::reported_refusal()),
            }
        }
        None => {
            let request = DescribeToolsRequest {
                thread_id: ids::thread(&mut supervisor, &args.thread.unwrap_or_default(), None).await?,
                ..DescribeToolsRequest::default()
            };
            let answer = supervisor.describe_tools(request).await?.into_inner();
            context.ui.table(
                || json::message(&answer),
                || table(&answer.tools),
                "the thread is offered no tools",
            )
        }
    }
}

fn table(tools: &[ToolDescription]) -> Table<2> {
    let mut table = Table::new(["TOOL", "DESCRIPTION"]);
    for tool in tools {
        table.row([Cell::new(style::NAME, &tool.name), Cell::plain(&tool.description)]);
    }
    table
}
