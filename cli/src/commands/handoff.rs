//! `troupe handoff`: sends a message from one agent to another along an edge.

use serde_json::json;
use troupe_proto::supervisor::v1::{ResponseExpectation, SendHandoffRequest};

use crate::{
    choices,
    context::Context,
    error::{Error, Result},
    ids, json,
    message::TextArgs,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe handoff 0000aa01 scout 'The leak is in pool.rs'
  troupe handoff scout 0000bb02 --file findings.md --answer required

The threads need an edge: `troupe edges` lists edges, `troupe edges create` creates one.";

/// The arguments of `handoff`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Sender: a thread's id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "FROM")]
    from: String,
    /// Receiver, in the session of the sender
    #[arg(value_name = "TO")]
    to: String,
    /// The message.
    #[command(flatten)]
    text: TextArgs,
    /// Expectation of an answer
    #[arg(long, value_name = "HOW", value_parser = choices::response_expectation(), default_value = "none")]
    answer: ResponseExpectation,
    /// Reference to the subject, for the receiver
    #[arg(long, value_name = "REF", default_value = "", hide_default_value = true)]
    about: String,
}

/// Sends the handoff.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let message = args.text.read()?;
    let mut supervisor = context.supervisor().await?;
    let ends = ids::ends(&mut supervisor, &args.from, &args.to).await?;
    let request = SendHandoffRequest {
        request_id: troupe_client::request_id(),
        session_id: ends.session,
        from_thread_id: ends.from,
        to_thread_id: ends.to,
        message,
        expectation: args.answer.into(),
        context_ref: args.about,
        ..SendHandoffRequest::default()
    };
    let answer = supervisor.send_handoff(request).await?.into_inner();
    let sent = answer.handoff.ok_or_else(Error::empty_answer)?;
    context.ui.answer(
        || json!({ "handoff": json::message(&sent) }),
        || {
            Line::default()
                .mark(style::PLAIN, sent.handoff_id.clone())
                .word(style::DIM, format!("to {}", ids::short(&sent.to_thread_id)))
        },
    )
}
