//! `troupe close`: closes a thread and its descendants, leaf first.

use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{CloseAgentRequest, ClosePolicy, CloseSessionRequest, StatusKind};

use crate::{
    choices, complete,
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
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "ID", required_unless_present = "session", conflicts_with = "session", add = ArgValueCompleter::new(complete::threads))]
    thread: Option<String>,
    /// Session to close instead of a thread
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// The end of running turns.
    #[command(flatten)]
    manner: Manner,
    /// Reason for the log
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    reason: Option<String>,
}

/// How running turns are ended, and whether to wait for the end.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Manner {
    /// Wait until all threads are closed
    #[arg(long)]
    wait: bool,
    /// End of running turns [default: as each thread was spawned]
    #[arg(long, value_name = "HOW", value_parser = choices::close_policy())]
    how: Option<ClosePolicy>,
}

impl Manner {
    fn policy(self) -> ClosePolicy {
        self.how.unwrap_or_default()
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
        (None, None) => Err(Error::usage("pass a thread, or a session with --session")),
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
        request_id: troupe_client::request_id(),
        session_id: ids::session(supervisor, text).await?,
        wait: manner.wait,
        close_policy: manner.policy().into(),
        ..CloseSessionRequest::default()
    };
    let answer = supervisor.close_session(request).await?.into_inner();
    let session = answer.session.ok_or_else(Error::empty_answer)?;
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
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(supervisor, text, None).await?,
        wait: manner.wait,
        close_policy: manner.policy().into(),
        reason,
        ..CloseAgentRequest::default()
    };
    let closed = supervisor.close_agent(request).await?.into_inner();
    context.ui.answer(
        || json::message(&closed),
        || {
            let before = closed.status_before.clone().unwrap_or_default().kind();
            let thread = closed.thread.clone().unwrap_or_default();
            let now = ui::status_of(&thread);
            let line = Line::default()
                .mark(style::PLAIN, thread.thread_id)
                .word(style::DIM, format!("was {}", names::status_kind(before)));
            match now {
                StatusKind::Shutdown => line.word(style::of_status(now), names::status_kind(now)),
                _ => line.word(style::DIM, "is closing"),
            }
        },
    )
}
