//! `troupe budget`: sets the budget of a thread and its descendants.

use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::supervisor::v1::UpdateThreadBudgetRequest;

use super::show;
use crate::{
    complete,
    context::Context,
    error::{Error, Result},
    ids, json,
    options::{NewBudget, budget_in_words},
    ui::style,
};

const AFTER_HELP: &str = "\
Examples:
  troupe budget 0000aa01 --tokens 200000
  troupe budget scout --turns 10 --time 30m
  troupe budget 0000aa01 --unlimited

Bounds that are not given do not change; --unlimited removes them. The budgets of the ancestors apply too.
An agent that was stopped by its budget continues with its next input: `troupe send`.";

/// The arguments of `budget`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// The new budget
    #[command(flatten)]
    budget: NewBudget,
}

/// Sets the budget.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let present = ids::thread_in(&mut supervisor, &args.thread).await?;
    let request = UpdateThreadBudgetRequest {
        request_id: troupe_client::request_id(),
        budget: Some(args.budget.of(present.budget.as_ref())),
        thread_id: present.thread_id,
        ..UpdateThreadBudgetRequest::default()
    };
    let answer = supervisor.update_thread_budget(request).await?.into_inner();
    let thread = answer.thread.ok_or_else(Error::empty_answer)?;
    context.ui.answer(
        || json!({ "thread": json::message(&thread) }),
        || show::line(&thread).word(style::PLAIN, budget_in_words(thread.budget.as_ref())),
    )
}
