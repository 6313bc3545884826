//! `troupe close`: closes a thread and its descendants, leaf first.

use clap::ValueEnum;
use serde_json::json;
use tonic::Request;
use troupe_proto::supervisor::v1::{CloseAgentRequest, ClosePolicy, CloseSessionRequest};

use crate::{
    client::{self, Supervisor},
    context::Context,
    error::{Error, Result},
    ids, json, names,
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe close 0000aa01
  troupe close 0000aa01 --wait --how finish-turn
  troupe close --session 0000cc03 --wait";

/// The arguments of `close`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The thread: its id, the end of it, or its alias
    #[arg(value_name = "ID", required_unless_present = "session", conflicts_with = "session")]
    thread: Option<String>,
    /// A whole session instead
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How it goes down
    #[command(flatten)]
    manner: Manner,
    /// Why, for the log
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    reason: Option<String>,
}

/// How something is closed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Manner {
    /// Answer only when everything is down
    #[arg(long)]
    wait: bool,
    /// How running turns end [default: what each thread was spawned with]
    #[arg(long, value_enum, value_name = "HOW")]
    how: Option<How>,
}

impl Manner {
    fn policy(self) -> ClosePolicy {
        self.how.map_or(ClosePolicy::Unspecified, ClosePolicy::from)
    }
}

/// How running turns end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Ask the program to end, kill it after its grace.
    Terminate,
    /// Let the turn finish within the deadline.
    FinishTurn,
    /// Kill at once.
    Kill,
}

impl From<How> for ClosePolicy {
    fn from(how: How) -> Self {
        match how {
            How::Terminate => Self::Terminate,
            How::FinishTurn => Self::FinishTurn,
            How::Kill => Self::Kill,
        }
    }
}

/// Closes a thread.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match (&args.session, &args.thread) {
        (Some(session), _) => close_session(&mut supervisor, session, args.manner, context).await,
        (None, Some(thread)) => {
            let reason = args.reason.clone().unwrap_or_default();
            close_thread(&mut supervisor, thread, args.manner, reason, context).await
        }
        (None, None) => Err(Error::usage("name a thread, or a session with --session")),
    }
}

/// Closes a session and reports its state afterwards.
pub(super) async fn close_session(
    supervisor: &mut Supervisor,
    text: &str,
    manner: Manner,
    context: &Context,
) -> Result<()> {
    let request = CloseSessionRequest {
        request_id: client::request_id(),
        session_id: ids::session(supervisor, text).await?,
        wait: manner.wait,
        close_policy: manner.policy().into(),
        ..CloseSessionRequest::default()
    };
    let answer = supervisor.close_session(Request::new(request)).await?.into_inner();
    let session = answer
        .session
        .ok_or_else(|| Error::failure("the supervisor answered no session"))?;
    let state = if session.closed { "closed" } else { "closing" };
    context.ui.answer(
        || json!({ "session": json::message(&session) }),
        || format!("session {} {state}", session.session_id),
    )
}

async fn close_thread(
    supervisor: &mut Supervisor,
    text: &str,
    manner: Manner,
    reason: String,
    context: &Context,
) -> Result<()> {
    let request = CloseAgentRequest {
        request_id: client::request_id(),
        thread_id: ids::thread(supervisor, text, None).await?,
        wait: manner.wait,
        close_policy: manner.policy().into(),
        reason,
        ..CloseAgentRequest::default()
    };
    let closed = supervisor.close_agent(Request::new(request)).await?.into_inner();
    context.ui.answer(
        || json::message(&closed),
        || {
            let before = closed
                .status_before
                .as_ref()
                .map(|status| status.kind())
                .unwrap_or_default();
            let now = closed.thread.as_ref().map(ui::status_of).unwrap_or_default();
            let id = closed.thread.as_ref().map(|thread| thread.thread_id.clone());
            Line::default()
                .mark(style::PLAIN, id.unwrap_or_default())
                .word(style::DIM, format!("was {}, now", names::status_kind(before)))
                .word(style::of_status(now), names::status_kind(now))
        },
    )
}
