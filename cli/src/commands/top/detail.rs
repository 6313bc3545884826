//! The details of the selected row: their source, and the calls that load them.

use std::time::{Duration, SystemTime};

use tokio::{sync::mpsc, time::sleep};
use troupe_client::{
    Supervisor,
    follow::{Follow, ThreadWatch, Update, Watch},
};
use troupe_proto::supervisor::v1::{
    Approval, Event, GetPromptRequest, GetSessionRequest, ToolVerdict, TranscriptEntry, TranscriptKind,
    WatchThreadsRequest, WatchTranscriptRequest, watch_threads_response::Message,
};

use crate::{
    commands::{approvals, artifacts, edges, mail, prompts},
    content,
    error::Result,
    listing, sanitize, time, transcript_format,
    ui::style,
};

/// Number of the latest entries of a transcript that are loaded first.
const TAIL: u32 = 200;
/// Number of the latest events of a session in which the thread's events are searched first.
const EVENTS: u64 = 1000;
/// Maximum number of displayed lines of an entry's text.
const MAX_LINES: usize = 40;
/// Maximum number of displayed lines of a tool's result.
const MAX_RESULT_LINES: usize = 8;
/// Maximum size of a displayed diff, in bytes.
const MAX_DIFF: u64 = 256 * 1024;
/// Delay before the details of a selection are loaded. If the selection changes within this time, nothing is loaded.
const REST: Duration = Duration::from_millis(120);

/// A tab of a thread's details.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    /// The end of the transcript, then its new entries.
    #[default]
    Transcript,
    /// The properties of the thread. They are in the model, so nothing is loaded.
    Info,
    /// The latest prompt, and its difference from the earlier prompt.
    Prompt,
    /// The mail and the edges.
    Mail,
    /// The artifacts, and the latest diff.
    Files,
    /// The latest events, then the new ones.
    Events,
}

impl Tab {
    /// The tabs in their order, with their names.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Transcript, "transcript"),
        (Self::Info, "info"),
        (Self::Prompt, "prompt"),
        (Self::Mail, "mail"),
        (Self::Files, "files"),
        (Self::Events, "events"),
    ];

    /// Returns the tab that is `steps` after this one, in a circle.
    pub(super) fn step(self, steps: usize) -> Self {
        let place = Self::ALL.iter().position(|(tab, _)| *tab == self).unwrap_or_default();
        Self::ALL
            .iter()
            .cycle()
            .nth(place + steps)
            .map_or(self, |(tab, _)| *tab)
    }

    /// Returns whether the tab is a log: new lines are added at the end, and the end is shown first.
    pub(super) const fn is_log(self) -> bool {
        matches!(self, Self::Transcript | Self::Events)
    }
}

/// The source of the details.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A tab of a thread. Another width or version loads it again.
    Thread {
        tab: Tab,
        session: String,
        thread: String,
        /// The width of tables, otherwise 0.
        columns: usize,
        /// The number of the thread's last event. 0 for a log, which is followed.
        version: u64,
    },
    /// The action that an approval covers.
    Approval(Box<Approval>),
}

impl Source {
    /// Returns whether both are about the same tab of a thread or the same approval, possibly in different versions.
    pub(super) fn is_same_subject(&self, other: &Self) -> bool {
        self.subject() == other.subject()
    }

    /// Returns the id of the thread or approval, and the tab of the thread.
    fn subject(&self) -> (Option<Tab>, &str) {
        match self {
            Self::Thread { tab, thread, .. } => (Some(*tab), thread),
            Self::Approval(approval) => (None, &approval.approval_id),
        }
    }
}

/// A change of the loaded details.
#[derive(Debug)]
pub(super) enum Change {
    /// These lines, or the error that prevents loading, replace the lines.
    Replace(Vec<String>),
    /// These lines are added at the end.
    Append(Vec<String>),
    /// These events are added at the end.
    Events(Vec<Event>),
}

/// Loads the details and sends them. Follows a log until the log ends or the task is aborted.
pub(super) async fn load(mut supervisor: Supervisor, source: Source, changes: mpsc::Sender<(Source, Change)>) {
    sleep(REST).await;
    let send = async |change| changes.send((source.clone(), change)).await.is_ok();
    let loaded = match &source {
        Source::Approval(approval) => whole_approval(&mut supervisor, approval).await.map(Some),
        Source::Thread {
            tab,
            session,
            thread,
            columns,
            ..
        } => match tab {
            Tab::Transcript => follow_transcript(supervisor, thread, send).await.map(|()| None),
            Tab::Events => follow_events(supervisor, session, thread, send).await.map(|()| None),
            Tab::Prompt => prompt(&mut supervisor, thread).await.map(Some),
            Tab::Mail => mail_and_edges(&mut supervisor, session, thread, *columns)
                .await
                .map(Some),
            Tab::Files => files(&mut supervisor, session, thread, *columns).await.map(Some),
            Tab::Info => return,
        },
    };
    let change = match loaded {
        Ok(Some(lines)) => Change::Replace(lines),
        Ok(None) => return,
        Err(error) => Change::Replace(vec![error.message().to_owned()]),
    };
    // Sending fails only after the screen has ended.
    let _ = changes.send((source.clone(), change)).await;
}

async fn follow_transcript(supervisor: Supervisor, thread: &str, send: impl AsyncFn(Change) -> bool) -> Result<()> {
    let request = WatchTranscriptRequest {
        thread_id: thread.to_owned(),
        tail: TAIL,
        ..WatchTranscriptRequest::default()
    };
    let mut follow = Follow::new(supervisor, request);
    send_updates(&mut follow, send, |message| {
        let lines = message.entries.iter().flat_map(entry_lines).collect();
        (Change::Append(lines), message.closed)
    })
    .await
}

async fn follow_events(
    mut supervisor: Supervisor,
    session: &str,
    thread: &str,
    send: impl AsyncFn(Change) -> bool,
) -> Result<()> {
    let session_id = session.to_owned();
    let answer = supervisor
        .get_session(GetSessionRequest { session_id })
        .await?
        .into_inner();
    let newest = answer.session.map(|session| session.sequence).unwrap_or_default();
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        thread_id: thread.to_owned(),
        after_sequence: Some(newest.saturating_sub(EVENTS)),
        ..WatchThreadsRequest::default()
    };
    let mut follow = Follow::new(supervisor, ThreadWatch::new(request));
    send_updates(&mut follow, send, |message| {
        let events = match message.message {
            Some(Message::Event(event)) => vec![event],
            _ => Vec::new(),
        };
        (Change::Events(events), false)
    })
    .await
}

/// Sends an empty list of lines once the watch is open, and then the change of each message. Ends after the change that
/// `change_of` marks as the last one.
async fn send_updates<W: Watch>(
    follow: &mut Follow<W>,
    send: impl AsyncFn(Change) -> bool,
    change_of: impl Fn(W::Message) -> (Change, bool),
) -> Result<()> {
    let mut is_begun = false;
    loop {
        let (change, is_last) = match follow.next().await? {
            // A reconnected watch continues after the last message, so the lines are kept.
            Update::Opened if is_begun => continue,
            Update::Opened => (Change::Replace(Vec::new()), false),
            Update::Message(message) => change_of(*message),
            Update::Lost { .. } => continue,
        };
        is_begun = true;
        if !send(change).await || is_last {
            return Ok(());
        }
    }
}

async fn prompt(supervisor: &mut Supervisor, thread: &str) -> Result<Vec<String>> {
    let prompts = listing::prompts(supervisor, thread).await?;
    let Some(last) = prompts.last() else {
        return Ok(vec!["no prompt is stored for this thread".to_owned()]);
    };
    let before = prompts.iter().rev().nth(1).map_or(0, |prompt| prompt.turn);
    let request = GetPromptRequest {
        thread_id: thread.to_owned(),
        turn: last.turn,
        diff_with_turn: before,
        ..GetPromptRequest::default()
    };
    let answer = supervisor.get_prompt(request).await?.into_inner();
    let prompt = answer.prompt.unwrap_or_default();
    let mut lines = vec![heading(&format!("prompt of turn {}", last.turn)), String::new()];
    if prompt.texts_left_out {
        lines.push("the session stores digests of prompts only".to_owned());
    }
    lines.extend(prompts::blocks(&prompt).lines().map(ToOwned::to_owned));
    if before > 0 {
        lines.push(String::new());
        lines.push(heading(&format!("difference from turn {before}")));
        let diff = diff_lines(&answer.diff);
        lines.extend(if diff.is_empty() { vec!["none".to_owned()] } else { diff });
    }
    Ok(lines)
}

async fn mail_and_edges(
    supervisor: &mut Supervisor,
    session: &str,
    thread: &str,
    columns: usize,
) -> Result<Vec<String>> {
    let mail = listing::mail(supervisor, thread, true).await?;
    let edges = listing::edges(supervisor, session, Some(thread)).await?;
    let mut lines = vec![heading("mail")];
    if mail.is_empty() {
        lines.push("no mail".to_owned());
    } else {
        let table = mail::table(&mail, SystemTime::now()).render(columns);
        lines.extend(table.lines().map(ToOwned::to_owned));
    }
    lines.extend([String::new(), heading("edges")]);
    if edges.is_empty() {
        lines.push("no edges".to_owned());
    } else {
        lines.extend(edges::table(&edges).render(columns).lines().map(ToOwned::to_owned));
    }
    Ok(lines)
}

async fn files(supervisor: &mut Supervisor, session: &str, thread: &str, columns: usize) -> Result<Vec<String>> {
    let artifacts = listing::artifacts(supervisor, session, thread).await?;
    if artifacts.is_empty() {
        return Ok(vec!["no artifacts".to_owned()]);
    }
    let table = artifacts::table(&artifacts, SystemTime::now()).render(columns);
    let mut lines: Vec<String> = table.lines().map(ToOwned::to_owned).collect();
    let newest = artifacts.iter().rfind(|artifact| artifact.kind == "diff");
    if let Some((diff, content)) = newest.and_then(|diff| Some((diff, diff.content.as_ref()?))) {
        lines.extend([String::new(), heading(&format!("diff of turn {}", diff.turn))]);
        if content.size > MAX_DIFF {
            lines.push(format!("{} bytes: `troupe artifacts get` fetches it", content.size));
        } else {
            lines.extend(diff_lines(&content::text(supervisor, session, &content.digest).await?));
        }
    }
    Ok(lines)
}

async fn whole_approval(supervisor: &mut Supervisor, approval: &Approval) -> Result<Vec<String>> {
    let call = approvals::Call::of(supervisor, approval).await?;
    let text = approvals::section(approval, call.as_ref(), SystemTime::now(), usize::MAX);
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// Returns an entry of a transcript as lines: its time, a mark of its kind, and its text.
fn entry_lines(entry: &TranscriptEntry) -> Vec<String> {
    let (_, color) = transcript_format::label(entry.kind());
    let text = match &entry.content {
        Some(content) => format!("{} … ({} bytes)", content.preview, content.size),
        None => entry.text.clone(),
    };
    let body = transcript_format::body(entry, &text);
    let most = match entry.kind() {
        TranscriptKind::ToolResult => MAX_RESULT_LINES,
        _ => MAX_LINES,
    };
    let color = match entry.tool_call.as_ref().map(|call| call.verdict()) {
        Some(ToolVerdict::Denied) => style::BAD,
        _ => color,
    };
    let clock = time::clock(entry.time.as_ref());
    let head = format!(
        "{} {} ",
        style::paint(style::DIM, clock.get(..5).unwrap_or_default()),
        style::paint(color, mark(entry.kind()))
    );
    let text_color = match entry.kind() {
        TranscriptKind::Reasoning | TranscriptKind::ToolResult => style::DIM,
        TranscriptKind::Error => style::BAD,
        _ => style::PLAIN,
    };
    let count = body.lines().count();
    let mut lines: Vec<String> = body
        .lines()
        .take(most)
        .enumerate()
        .map(|(index, line)| {
            let head = if index == 0 { head.clone() } else { " ".repeat(INDENT) };
            format!("{head}{}", style::paint(text_color, line))
        })
        .collect();
    if count > most {
        let rest = style::paint(style::DIM, format!("… {} more lines", count - most));
        lines.push(format!("{}{rest}", " ".repeat(INDENT)));
    }
    lines
}

/// The columns of an entry's time and mark.
pub(super) const INDENT: usize = "12:03 > ".len();

const fn mark(kind: TranscriptKind) -> &'static str {
    match kind {
        TranscriptKind::Input => "»",
        TranscriptKind::Message => "•",
        TranscriptKind::Reasoning => "~",
        TranscriptKind::ToolCall => "$",
        TranscriptKind::ToolResult => "=",
        TranscriptKind::Plan => "#",
        TranscriptKind::FileChange => "±",
        TranscriptKind::Error => "✗",
        TranscriptKind::Notice => "!",
        TranscriptKind::Unspecified => "?",
    }
}

fn heading(text: &str) -> String {
    style::paint(style::HEADING, text).to_string()
}

/// Returns a unified diff as colored lines.
fn diff_lines(diff: &str) -> Vec<String> {
    let safe = sanitize::block(diff);
    let lines = safe.lines().map(|line| {
        let color = match line.as_bytes().first() {
            Some(b'+') => style::GOOD,
            Some(b'-') => style::BAD,
            Some(b'@') => style::NAME,
            _ => style::PLAIN,
        };
        style::paint(color, line).to_string()
    });
    lines.collect()
}
