//! `troupe send`: sends input to a thread.

use clap_complete::ArgValueCompleter;
use troupe_proto::supervisor::v1::{OnLimit, SendInputRequest};

use crate::{
    complete,
    context::Context,
    error::Result,
    ids, json,
    message::TextArgs,
    names,
    options::ResultArgs,
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe send @last 'Look at the tests as well'
  troupe send scout 'Stop that, do this instead' --interrupt
  troupe send scout 'The tests are in t/, not in tests/' --steer
  troupe send 0000aa01 --file notes.md
  troupe send scout 'Report what you found' --schema findings.json";

/// The arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// The input.
    #[command(flatten)]
    text: TextArgs,
    /// Interrupt the running turn first
    #[arg(long)]
    interrupt: bool,
    /// Deliver to the running turn, if the agent's program supports it; otherwise with the next turn
    #[arg(long, conflicts_with = "interrupt")]
    steer: bool,
    /// Queue the thread if no slot is free
    #[arg(long)]
    queue: bool,
    /// The requested result.
    #[command(flatten)]
    result: ResultArgs,
}

/// Sends the input.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let message = args.text.read()?;
    let mut supervisor = context.supervisor().await?;
    let thread_id = ids::thread(&mut supervisor, &args.thread, None).await?;
    let on_limit = if args.queue { OnLimit::Queue } else { OnLimit::Refuse };
    let request = SendInputRequest {
        request_id: troupe_client::request_id(),
        thread_id: thread_id.clone(),
        message: Some(message),
        interrupt: args.interrupt,
        steer: args.steer,
        on_limit: on_limit.into(),
        result_schema: args.result.schema()?,
        result_repairs: args.result.repairs,
        ..SendInputRequest::default()
    };
    let sent = supervisor.send_input(request).await?.into_inner();
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
