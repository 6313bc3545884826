//! `troupe handoff`: sends a message from one agent to another along an edge.

use clap::ValueEnum;
use serde_json::json;
use tonic::Request;
use troupe_proto::supervisor::v1::{ResponseExpectation, SendHandoffRequest};

use crate::{
    client,
    context::Context,
    error::{Error, Result},
    ids, json, message,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe handoff 0000aa01 scout -m 'The leak is in pool.rs'
  troupe handoff scout 0000bb02 -m - --answer required < findings.md

It goes along an edge: `troupe edges` lists them, `troupe edges create` makes one.";

/// The arguments of `handoff`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The sender: its id, the end of it, or its alias
    #[arg(value_name = "FROM")]
    from: String,
    /// The receiver, likewise
    #[arg(value_name = "TO")]
    to: String,
    /// What is handed over; `-` reads standard input
    #[arg(short, long, value_name = "TEXT")]
    message: String,
    /// Whether an answer is expected
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Answer::None)]
    answer: Answer,
    /// A reference to what this is about
    #[arg(long, value_name = "REF", default_value = "", hide_default_value = true)]
    about: String,
}

/// Whether a response is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Answer {
    /// No
    None,
    /// It is welcome
    Optional,
    /// Yes
    Required,
}

impl From<Answer> for ResponseExpectation {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::None => Self::None,
            Answer::Optional => Self::Optional,
            Answer::Required => Self::Required,
        }
    }
}

/// Sends the handoff.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let message = message::read(&args.message)?;
    let mut supervisor = context.supervisor().await?;
    let ends = ids::ends(&mut supervisor, &args.from, &args.to).await?;
    let request = SendHandoffRequest {
        request_id: client::request_id(),
        session_id: ends.session,
        from_thread_id: ends.from,
        to_thread_id: ends.to,
        message,
        expectation: ResponseExpectation::from(args.answer).into(),
        context_ref: args.about,
        ..SendHandoffRequest::default()
    };
    let answer = supervisor.send_handoff(Request::new(request)).await?.into_inner();
    let sent = answer
        .handoff
        .ok_or_else(|| Error::failure("the supervisor answered no handoff"))?;
    context.ui.answer(
        || json!({ "handoff": json::message(&sent) }),
        || {
            Line::default()
                .mark(style::PLAIN, sent.handoff_id.clone())
                .word(style::DIM, format!("to {}", ids::short(&sent.to_thread_id)))
        },
    )
}
