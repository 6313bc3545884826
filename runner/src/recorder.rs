//! Records the tool calls of an MCP client in the transcript of its thread. The client executes this thread, so no
//! runner records its calls.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{ToolVerdict, TranscriptEntry, TranscriptKind, TranscriptToolCall, TranscriptToolResult},
};
use uuid::Uuid;

use crate::{
    redact,
    text::cut,
    tool_line::ToolCall,
    tools::{ToolAnswer, Toolbox, answer_text},
};

/// Maximum number of entries that wait.
const MAX_WAITING: usize = 256;
/// Maximum number of entries of a batch.
const MAX_BATCH: usize = 64;
/// Maximum length of the text of an entry, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1_024;
/// Maximum length of the name of a tool, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Time limit for sending the last entries after the client has disconnected.
const LAST_ENTRIES: Duration = Duration::from_secs(5);

/// Accepts entries for the transcript. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(mpsc::Sender<TranscriptEntry>);

/// Sends the entries until all recorders are dropped.
#[derive(Debug)]
pub(crate) struct Recording(JoinHandle<()>);

/// A call whose result will be recorded.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    id: String,
    since: Instant,
}

impl Recorder {
    pub(crate) fn start(toolbox: Toolbox) -> (Self, Recording) {
        let (sender, entries) = mpsc::channel(MAX_WAITING);
        (Self(sender), Recording(tokio::spawn(send(toolbox, entries))))
    }

    /// Records a call before it is executed.
    pub(crate) async fn call(&self, call: &ToolCall) -> RecordedCall {
        let recorded = RecordedCall {
            id: Uuid::now_v7().to_string(),
            since: Instant::now(),
        };
        let arguments = redact::arguments(&call.args.clone().into());
        self.record(TranscriptEntry {
            kind: TranscriptKind::ToolCall.into(),
            text: cut(arguments.to_string(), MAX_TEXT_BYTES),
            tool_call: Some(TranscriptToolCall {
                call_id: recorded.id.clone(),
                tool: cut(call.name.clone(), MAX_NAME_BYTES),
                native_tool: cut(call.name.clone(), MAX_NAME_BYTES),
                verdict: ToolVerdict::Unspecified.into(),
                ..TranscriptToolCall::default()
            }),
            ..TranscriptEntry::default()
        })
        .await;
        recorded
    }

    /// Records the result of a call.
    pub(crate) async fn result(&self, call: RecordedCall, answer: &ToolAnswer) {
        let text = answer_text(answer);
        self.record(TranscriptEntry {
            kind: TranscriptKind::ToolResult.into(),
            tool_result: Some(TranscriptToolResult {
                call_id: call.id,
                failed: answer.is_err(),
                duration: call.since.elapsed().try_into().ok(),
                size: text.len() as u64,
            }),
            text: cut(text, MAX_TEXT_BYTES),
            ..TranscriptEntry::default()
        })
        .await;
    }

    async fn record(&self, entry: TranscriptEntry) {
        let time = Some(SystemTime::now().into());
        // The channel is closed if the transcript accepts no entries. That does not affect the call itself.
        let _ = self.0.send(TranscriptEntry { time, ..entry }).await;
    }
}

impl Recording {
    /// Waits until the last entries are stored, within a time limit.
    pub(crate) async fn finish(mut self) {
        if timeout(LAST_ENTRIES, &mut self.0).await.is_err() {
            self.0.abort();
        }
    }
}

async fn send(toolbox: Toolbox, mut waiting: mpsc::Receiver<TranscriptEntry>) {
    let mut last = 0;
    let mut entries = Vec::new();
    while waiting.recv_many(&mut entries, MAX_BATCH).await > 0 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        last = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).max(last + 1);
        if let Err(failure) = toolbox.append_transcript(last, std::mem::take(&mut entries)).await {
            // A runner executes the thread and records its calls.
            if failure.reason() != Some(Reason::IllegalTransition) {
                tracing::warn!(
                    error = failure.text(),
                    "tool calls are no longer recorded in the transcript"
                );
            }
            return;
        }
    }
}
