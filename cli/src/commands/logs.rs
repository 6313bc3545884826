//! `troupe logs`: shows the transcript of a thread, and follows it.

use clap_complete::ArgValueCompleter;
use troupe_client::{Supervisor, follow::Follow};
use troupe_proto::supervisor::v1::{ListTranscriptRequest, TranscriptEntry, TranscriptKind, WatchTranscriptRequest};

use crate::{
    choices, complete, content, context::Context, error::Result, follow::next_message, ids, json, transcript_format,
    ui::style,
};

const AFTER_HELP: &str = "\
Examples:
  troupe logs scout
  troupe logs scout --follow --tail 20
  troupe logs scout --kinds tool-call,tool-result
  troupe logs scout --output json | jq -r 'select(.kind == \"TRANSCRIPT_KIND_MESSAGE\").text'";

/// Maximum page size of the supervisor.
const PAGE: i32 = 1000;

/// The arguments of `logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Show new entries until the thread is closed
    #[arg(short, long)]
    follow: bool,
    /// Show only the last entries
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    tail: Option<u32>,
    /// Show only entries of these kinds, separated by commas
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = choices::transcript_kind())]
    kinds: Vec<TranscriptKind>,
}

/// Shows the entries.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread = ids::thread_in(&mut supervisor, &args.thread).await?;
    let mut printer = Printer {
        supervisor: supervisor.clone(),
        session_id: thread.session_id,
        turn: 0,
        context,
    };
    let kinds: Vec<i32> = args.kinds.iter().map(|kind| (*kind).into()).collect();
    let tail = args.tail.unwrap_or_default();
    if args.follow {
        let request = WatchTranscriptRequest {
            thread_id: thread.thread_id,
            kinds,
            tail,
            ..WatchTranscriptRequest::default()
        };
        return follow(Follow::new(supervisor, request), printer).await;
    }
    let mut request = ListTranscriptRequest {
        thread_id: thread.thread_id,
        kinds,
        tail,
        page_size: PAGE,
        ..ListTranscriptRequest::default()
    };
    loop {
        let page = supervisor.list_transcript(request.clone()).await?.into_inner();
        for entry in &page.entries {
            printer.show(entry).await?;
        }
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = page.next_page_token;
    }
}

async fn follow(mut follow: Follow<WatchTranscriptRequest>, mut printer: Printer<'_>) -> Result<()> {
    loop {
        let message = next_message(&mut follow, &printer.context.ui).await?;
        for entry in &message.entries {
            printer.show(entry).await?;
        }
        if message.closed {
            return Ok(());
        }
    }
}

/// Prints the entries of one transcript.
struct Printer<'c> {
    supervisor: Supervisor,
    session_id: String,
    /// The turn of the last entry.
    turn: u32,
    context: &'c Context,
}

impl Printer<'_> {
    async fn show(&mut self, entry: &TranscriptEntry) -> Result<()> {
        let ui = &self.context.ui;
        if !ui.is_text() {
            return ui.value(&json::message(entry));
        }
        if entry.turn != 0 && entry.turn != self.turn {
            self.turn = entry.turn;
            ui.line(style::paint(style::DIM, format_args!("── turn {} ──", entry.turn)))?;
        }
        let text = self.long_text(entry).await?;
        ui.line(transcript_format::lines(entry, text.as_deref()))
    }

    /// Returns a text that is too long to be part of its entry. Viewers do not receive it.
    async fn long_text(&mut self, entry: &TranscriptEntry) -> Result<Option<String>> {
        let Some(content) = entry.content.as_ref().filter(|content| !content.preview.is_empty()) else {
            return Ok(None);
        };
        let text = content::text(&mut self.supervisor, &self.session_id, &content.digest).await?;
        Ok(Some(text))
    }
}
