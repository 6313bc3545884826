//! `troupe thread`: all verbs of threads.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::supervisor::v1::{
    AppendTranscriptRequest, AskParentRequest, InterruptAgentRequest, OnLimit, ReportResultRequest, ResumeAgentRequest,
    SetActiveThreadRequest, SetThreadNoteRequest, TranscriptEntry, TranscriptKind,
};

use super::{budget, close, ps, send, show, spawn, wait};
use crate::{
    choices, complete,
    context::Context,
    error::{Error, Result},
    ids, json,
    message::TextArgs,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe thread list --tree
  troupe thread interrupt scout
  troupe thread focus scout

THREAD is an id, the beginning or the end of one, an alias, or @last.";

/// An action on threads.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// List sessions and their threads
    List(ps::Args),
    /// Show a thread
    Show(show::Args),
    /// Spawn an agent
    Spawn(Box<spawn::Args>),
    /// Send input to a thread
    Send(send::Args),
    /// Wait until threads are settled
    Wait(wait::Args),
    /// Interrupt the running turn of a thread and its descendants
    Interrupt(InterruptArgs),
    /// Close a thread and its descendants, leaf first
    Close(close::Args),
    /// Reopen a closed thread
    Resume(ResumeArgs),
    /// Set or clear the note of a thread
    Note(NoteArgs),
    /// Set the budget of a thread and its descendants
    Budget(budget::Args),
    /// Report the result of a running turn
    Report(ReportArgs),
    /// Ask the parent of a running thread a question
    Ask(AskArgs),
    /// Append an entry to the transcript of a root that a client executes
    Record(RecordArgs),
    /// Suppress turn notifications of the thread that a client displays
    #[command(after_help = "Example: troupe thread focus scout ")]
    Focus(FocusArgs),
}

/// The arguments of `interrupt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe interrupt 0000aa01
  troupe interrupt scout --only --reason 'wrong branch'")]
pub(crate) struct InterruptArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Keep descendants running
    #[arg(long)]
    only: bool,
    /// Interrupt this turn only; a later turn is not interrupted
    #[arg(long, value_name = "NUMBER")]
    turn: Option<u32>,
    /// Reason for the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// The arguments of `resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe resume 0000aa01
  troupe resume scout && troupe send scout 'Continue with the tests'")]
pub(crate) struct ResumeArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
}

/// The arguments of `note`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe note scout 'waits for the release'
  troupe note scout ''")]
pub(crate) struct NoteArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Note; an empty text clears it
    #[arg(value_name = "TEXT")]
    note: String,
}

/// The arguments of `thread report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe thread report scout '{\"findings\": []}'
  troupe thread report scout --file findings.json

For programs that work on a turn and for operators. The result must match the JSON Schema of the turn's input.")]
pub(crate) struct ReportArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// The result, a JSON document.
    #[command(flatten)]
    text: TextArgs,
}

/// The arguments of `thread ask`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  troupe thread ask scout 'Which branch shall I use?'

For programs that work on a turn and for operators. The next input of the thread answers the question.")]
pub(crate) struct AskArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// The question.
    #[command(flatten)]
    text: TextArgs,
}

/// The arguments of `thread record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe thread record 0000aa01 'Now I compare both designs.'
  git log -1 | troupe thread record 0000aa01 - --kind notice

The root of a session from `troupe session create` is executed by a client. Runners record what other threads do.")]
pub(crate) struct RecordArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Kind of the entry
    #[arg(long, value_name = "KIND", default_value = "message", value_parser = choices::transcript_kind())]
    kind: TranscriptKind,
    /// The text.
    #[command(flatten)]
    text: TextArgs,
}

/// The arguments of `thread focus`.
#[derive(Debug, clap::Args)]
pub(crate) struct FocusArgs {
    /// Thread, or nothing to display no thread
    #[arg(
        value_name = "THREAD",
        required_unless_present = "session",
        conflicts_with = "session"
    )]
    thread: Option<String>,
    /// Session in which the client displays no thread any longer
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Client whose notifications are affected
    #[arg(long, value_name = "NAME", default_value = "troupe")]
    client_id: String,
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    match action {
        Action::List(args) => ps::run(args, context).await,
        Action::Show(args) => show::run(args, context).await,
        Action::Spawn(args) => Box::pin(spawn::run(*args, context)).await,
        Action::Send(args) => send::run(args, context).await,
        Action::Wait(args) => wait::run(args, context).await,
        Action::Interrupt(args) => interrupt(args, context).await,
        Action::Close(args) => close::run(args, context).await,
        Action::Resume(args) => resume(args, context).await,
        Action::Note(args) => note(args, context).await,
        Action::Budget(args) => budget::run(args, context).await,
        Action::Report(args) => report(args, context).await,
        Action::Ask(args) => ask(args, context).await,
        Action::Record(args) => record(args, context).await,
        Action::Focus(args) => focus(args, context).await,
    }
}

/// Interrupts the running turn of a thread, and of its descendants by default.
pub(crate) async fn interrupt(args: InterruptArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = InterruptAgentRequest {
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        turn: args.turn,
        only_this: args.only,
        reason: args.reason,
        ..InterruptAgentRequest::default()
    };
    let answer = supervisor.interrupt_agent(request).await?.into_inner();
    let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
    let count = answer.interrupted_thread_ids.len();
    context.ui.answer(
        || json::message(&answer),
        || show::line(thread).word(style::DIM, format!("{count} threads interrupted")),
    )
}

/// Reopens a closed thread.
pub(crate) async fn resume(args: ResumeArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = ResumeAgentRequest {
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        on_limit: OnLimit::Refuse.into(),
        ..ResumeAgentRequest::default()
    };
    let answer = supervisor.resume_agent(request).await?.into_inner();
    let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
    context
        .ui
        .answer(|| json!({ "thread": json::message(thread) }), || show::line(thread))
}

/// Sets or clears the note of a thread.
pub(crate) async fn note(args: NoteArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = SetThreadNoteRequest {
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        thread_note: args.note,
        ..SetThreadNoteRequest::default()
    };
    let answer = supervisor.set_thread_note(request).await?.into_inner();
    let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
    context.ui.answer(
        || json::message(&answer),
        || show::line(thread).word(style::PLAIN, &thread.thread_note),
    )
}

async fn report(args: ReportArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = ReportResultRequest {
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        document_json: args.text.read()?,
        ..ReportResultRequest::default()
    };
    let answer = supervisor.report_result(request).await?.into_inner();
    let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
    context.ui.answer(|| json::message(&answer), || show::line(thread))
}

async fn ask(args: AskArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = AskParentRequest {
        request_id: troupe_client::request_id(),
        thread_id: ids::thread(&mut supervisor, &args.thread, None).await?,
        question: args.text.read()?,
        ..AskParentRequest::default()
    };
    let answer = supervisor.ask_parent(request).await?.into_inner();
    let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
    context.ui.answer(|| json::message(&answer), || show::line(thread))
}

async fn record(args: RecordArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread = ids::thread(&mut supervisor, &args.thread, None).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let request = AppendTranscriptRequest {
        thread_id: thread,
        batch: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
        entries: vec![TranscriptEntry {
            time: Some(SystemTime::now().into()),
            kind: args.kind.into(),
            text: args.text.read()?,
            ..TranscriptEntry::default()
        }],
        ..AppendTranscriptRequest::default()
    };
    let answer = supervisor.append_transcript(request).await?.into_inner();
    context.ui.answer(
        || json::message(&answer),
        || match answer.last_number {
            0 => Line::default().word(style::PLAIN, "the session keeps no entries of this kind"),
            number => Line::default().word(style::PLAIN, format!("entry {number}")),
        },
    )
}

async fn focus(args: FocusArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut request = SetActiveThreadRequest {
        client_id: args.client_id,
        ..SetActiveThreadRequest::default()
    };
    if let Some(text) = &args.thread {
        let thread = ids::thread_in(&mut supervisor, text).await?;
        request.session_id = thread.session_id;
        request.thread_id = thread.thread_id;
    } else if let Some(text) = &args.session {
        request.session_id = ids::session(&mut supervisor, text).await?;
    }
    let text = match request.thread_id.as_str() {
        "" => format!("client {} displays no thread", request.client_id),
        id => format!("client {} displays thread {id}", request.client_id),
    };
    supervisor.set_active_thread(request).await?;
    context.ui.answer(|| json!({}), || text)
}
