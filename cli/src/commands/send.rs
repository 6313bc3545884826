//! `troupe send`: sends input to a thread.

use tonic::Request;
use troupe_proto::supervisor::v1::{OnLimit, SendInputRequest};

use crate::{
    client,
    context::Context,
    error::Result,
    ids, json, message, names,
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe send 0000aa01 -m 'Look at the tests as well'
  troupe send scout -m 'Stop that, do this instead' --interrupt
  troupe send scout -m 'The tests lie in t/, not in tests/' --steer
  troupe send 0000aa01 -m - < notes.md";

/// The arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The thread: its id, the end of it, or its alias
    #[arg(value_name = "ID")]
    thread: String,
    /// What to do; `-` reads standard input
    #[arg(short, long, value_name = "TEXT")]
    message: String,
    /// Stop a running turn first
    #[arg(long)]
    interrupt: bool,
    /// Give it to a running turn; where the agent's program takes nothing more in one, it waits for the next turn
    #[arg(long, conflicts_with = "interrupt")]
    steer: bool,
    /// Wait in the queue when no slot is free, instead of failing
    #[arg(long)]
    queue: bool,
}

/// Sends the input.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let message = message::read(&args.message)?;
    let mut supervisor = context.supervisor().await?;
    let thread_id = ids::thread(&mut supervisor, &args.thread, None).await?;
    let on_limit = if args.queue { OnLimit::Queue } else { OnLimit::Refuse };
    let request = SendInputRequest {
        request_id: client::request_id(),
        thread_id: thread_id.clone(),
        message: Some(message),
        interrupt: args.interrupt,
        steer: args.steer,
        on_limit: on_limit.into(),
        ..SendInputRequest::default()
    };
    let sent = supervisor.send_input(Request::new(request)).await?.into_inner();
    context.ui.answer(
        || json::message(&sent),
        || {
            let kind = sent.thread.as_ref().map(ui::status_of).unwrap_or_default();
            Line::default()
                .mark(style::PLAIN, thread_id.clone())
                .word(style::of_status(kind), names::status_kind(kind))
                .word(style::DIM, format!("input {}", sent.input_number))
        },
    )
}
