//! `troupe budget`: sets the budget of a thread and its descendants.

use serde_json::json;
use tonic::Request;
use troupe_proto::supervisor::v1::{Budget, UpdateThreadBudgetRequest};

use crate::{
    client,
    context::Context,
    error::{Error, Result},
    ids, json, names,
    options::{NewBudget, budget_in_words},
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe budget 0000aa01 --tokens 200000
  troupe budget scout --turns 10 --time 30m
  troupe budget 0000aa01 --unlimited

What is not given is without bound of its own; the budgets above it bind it all the same.
An agent that its budget stopped goes on with its next input: `troupe send`.";

/// The arguments of `budget`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The thread: its id, the end of it, or its alias
    #[arg(value_name = "ID")]
    thread: String,
    /// The new budget
    #[command(flatten)]
    budget: NewBudget,
}

/// Sets the budget.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = UpdateThreadBudgetRequest {
        request_id: client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        budget: Some(Budget::from(args.budget)),
        ..UpdateThreadBudgetRequest::default()
    };
    let answer = supervisor
        .update_thread_budget(Request::new(request))
        .await?
        .into_inner();
    let thread = answer
        .thread
        .ok_or_else(|| Error::failure("the supervisor answered no thread"))?;
    context.ui.answer(
        || json!({ "thread": json::message(&thread) }),
        || {
            let kind = ui::status_of(&thread);
            Line::default()
                .mark(style::PLAIN, thread.thread_id.clone())
                .word(style::of_status(kind), names::status_kind(kind))
                .word(style::PLAIN, budget_in_words(thread.budget.as_ref()))
        },
    )
}
