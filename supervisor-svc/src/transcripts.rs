//! Transcripts of threads: entries from runners are bounded, stored, and announced to their watchers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::{
    codec::{
        WireEnum as _,
        parts::{content_to_pb, time_from_pb, time_to_pb},
    },
    store::{EventStore, NewEntry, PendingEntries, Refusal, StoredEntry, WriteError, limits::MAX_TRANSCRIPT_BATCH},
};
use tokio::sync::watch;
use troupe_proto::supervisor::v1 as pb;

use crate::domain::{
    content::{ContentRef, preview, truncate},
    event::{ConditionKind, Event, Recorded, ThreadEvent},
    ids::{Generation, ReportSequence, ThreadId},
    settings::TranscriptLog,
    state::session::Session,
    status::Settled,
    time::UnixMillis,
    transcript::{TranscriptKind, TranscriptSource},
};

/// Maximum number of entries of a batch. A notice may precede them.
pub(crate) const BATCH_ENTRIES: usize = MAX_TRANSCRIPT_BATCH - 1;
/// Maximum size of the texts of a batch, in bytes.
pub(crate) const BATCH_TEXT_BYTES: usize = 2 * 1_024 * 1_024;
/// Maximum length of the stored text of a tool's result, in bytes.
pub(crate) const RESULT_TEXT_BYTES: usize = 4 * 1_024;
/// Maximum lengths of the fields of an entry, in bytes.
const NAME_BYTES: usize = 256;
const REASON_BYTES: usize = 4 * 1_024;
const PATH_BYTES: usize = 4 * 1_024;
/// Maximum number of steps of a plan, and the maximum length of a step, in bytes.
const PLAN_STEPS: usize = 64;
const STEP_BYTES: usize = 1_024;

/// Stores transcripts and announces new entries. Cheap to clone.
#[derive(Clone)]
pub struct Transcripts {
    store: Arc<dyn EventStore>,
    /// Maximum size of the transcripts of a session, in bytes.
    session_bytes: u64,
    watched: Arc<Mutex<HashMap<ThreadId, watch::Sender<()>>>>,
    /// The number of entries of each thread that were lost since the last stored one, because the store refused them.
    lost: Arc<Mutex<HashMap<ThreadId, usize>>>,
}

impl Transcripts {
    /// Creates transcripts without watchers. A text is left out if the session's transcripts would exceed
    /// `session_bytes` with it.
    #[must_use]
    pub fn new(store: Arc<dyn EventStore>, session_bytes: u64) -> Self {
        Self {
            store,
            session_bytes,
            watched: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// Begins to store a batch. Completes when the write is queued. If entries of the thread were lost before, a notice
    /// precedes the batch.
    pub async fn append(&self, source: TranscriptSource, mut entries: Vec<NewEntry>, now: UnixMillis) -> PendingBatch {
        let earlier = self.lost().remove(&source.thread).unwrap_or_default();
        let at_stake = earlier + entries.len();
        if earlier > 0 {
            entries.insert(0, notice_of_loss(earlier, source.generation, now));
        }
        PendingBatch {
            transcripts: self.clone(),
            thread: source.thread,
            at_stake,
            entries: match entries.is_empty() {
                true => None,
                false => Some(self.store.append_transcript(source, entries, self.session_bytes).await),
            },
        }
    }

    /// Stores a batch of a client. Returns the number of the last entry; `None` if nothing was stored, because the
    /// batch is an old one or has no entries.
    ///
    /// # Errors
    /// See [`PendingEntries::durable`].
    pub async fn append_now(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
    ) -> Result<Option<u64>, WriteError> {
        if entries.is_empty() {
            return Ok(None);
        }
        let pending = self.store.append_transcript(source, entries, self.session_bytes).await;
        let last = pending.durable().await?;
        if last.is_some() {
            self.announce(source.thread);
        }
        Ok(last)
    }

    /// Returns a receiver that changes after every new entry of a thread. Subscribe first, then read the entries.
    #[must_use]
    pub fn changes(&self, thread: ThreadId) -> watch::Receiver<()> {
        let mut watched = self.watched();
        watched.retain(|_, changes| changes.receiver_count() > 0);
        watched.entry(thread).or_default().subscribe()
    }

    fn announce(&self, thread: ThreadId) {
        if let Some(changes) = self.watched().get(&thread) {
            changes.send_replace(());
        }
    }

    fn lost(&self) -> MutexGuard<'_, HashMap<ThreadId, usize>> {
        // A panic while the lock is held leaves the map unchanged or with one changed number.
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<ThreadId, watch::Sender<()>>> {
        // A panic while the lock is held leaves the map unchanged or with one more sender.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch whose write is queued.
pub struct PendingBatch {
    transcripts: Transcripts,
    thread: ThreadId,
    /// The number of entries that are lost if the store refuses the write.
    at_stake: usize,
    /// `None` if the session stores none of the entries.
    entries: Option<PendingEntries>,
}

impl PendingBatch {
    /// Completes when the batch is durable or void. A batch that the store refuses, for example because the disk is
    /// full, is void: reports, and commands that close threads, must not wait for transcripts.
    ///
    /// # Errors
    /// See [`PendingEntries::durable`]. The runner resends the batch on its next stream.
    pub async fn durable(self) -> Result<(), WriteError> {
        let Some(entries) = self.entries else {
            return Ok(());
        };
        match entries.durable().await {
            Ok(Some(_)) => self.transcripts.announce(self.thread),
            Ok(None) | Err(WriteError::NotFound { .. }) => {}
            Err(
                error @ (WriteError::Fenced { .. }
                | WriteError::Mismatch { .. }
                | WriteError::Refused(Refusal::Closed)
                | WriteError::Stopped
                | WriteError::Unknown(_)),
            ) => return Err(error),
            Err(error @ (WriteError::Refused(_) | WriteError::Invalid(_))) => {
                tracing::warn!(thread = %self.thread, entries = self.at_stake, %error, "a part of a transcript is lost");
                *self.transcripts.lost().entry(self.thread).or_default() += self.at_stake;
            }
        }
        Ok(())
    }
}

/// Returns the entries of a batch in stored form, within their bounds and as far as the session keeps them. Entries of
/// an unknown kind are dropped.
#[must_use]
pub fn stored(
    generation: Generation,
    entries: Vec<pb::TranscriptEntry>,
    log: TranscriptLog,
    now: UnixMillis,
) -> Vec<NewEntry> {
    let mut room = BATCH_TEXT_BYTES;
    let entries = entries.into_iter().take(BATCH_ENTRIES);
    entries
        .filter_map(|entry| {
            let kind = TranscriptKind::from_number(entry.kind).ok()?;
            let entry = kept(kind, entry, log)?;
            let most = match kind {
                TranscriptKind::ToolResult => RESULT_TEXT_BYTES,
                _ => room,
            };
            let text = truncate(&entry.text, most.min(room)).to_owned();
            room -= text.len();
            Some(to_stored(kind, generation, entry, text, now))
        })
        .collect()
}

/// Returns the part of an entry that the session stores. `None` if it stores nothing.
fn kept(kind: TranscriptKind, mut entry: pb::TranscriptEntry, log: TranscriptLog) -> Option<pb::TranscriptEntry> {
    use TranscriptKind as K;
    match (log, kind) {
        (TranscriptLog::Off, _) | (TranscriptLog::Tools, K::Message | K::Reasoning | K::Plan) => return None,
        (TranscriptLog::Tools, K::ToolResult) => {
            entry.text_left_out |= !entry.text.is_empty();
            entry.text.clear();
        }
        (TranscriptLog::Full, _)
        | (TranscriptLog::Tools, K::Input | K::ToolCall | K::FileChange | K::Error | K::Notice) => {}
    }
    Some(entry)
}

fn to_stored(
    kind: TranscriptKind,
    generation: Generation,
    entry: pb::TranscriptEntry,
    text: String,
    now: UnixMillis,
) -> NewEntry {
    let cut = |text: &str, most: usize| truncate(text, most).to_owned();
    let time = entry.time.and_then(time_from_pb).map_or(now, |time| time.min(now));
    let mut new = NewEntry {
        kind: kind as u8,
        header: Bytes::new(),
        text: Bytes::from(text),
    };
    let content = new.digest().map(|digest| {
        let text = String::from_utf8_lossy(&new.text);
        content_to_pb(&ContentRef {
            digest,
            size: new.text.len() as u64,
            preview: preview(&text),
        })
    });
    let header = pb::TranscriptEntry {
        number: 0,
        time: Some(time_to_pb(time)),
        turn: entry.turn,
        generation: generation.get(),
        kind: entry.kind,
        text: String::new(),
        content,
        text_left_out: entry.text_left_out,
        tool_call: entry.tool_call.map(|call| pb::TranscriptToolCall {
            call_id: cut(&call.call_id, NAME_BYTES),
            tool: cut(&call.tool, NAME_BYTES),
            native_tool: cut(&call.native_tool, NAME_BYTES),
            verdict: call.verdict().into(),
            reason: cut(&call.reason, REASON_BYTES),
            approval_id: cut(&call.approval_id, NAME_BYTES),
        }),
        tool_result: entry.tool_result.map(|result| pb::TranscriptToolResult {
            call_id: cut(&result.call_id, NAME_BYTES),
            ..result
        }),
        plan: entry
            .plan
            .into_iter()
            .take(PLAN_STEPS)
            .map(|step| pb::PlanStep {
                step: cut(&step.step, STEP_BYTES),
                ..step
            })
            .collect(),
        file_change: entry.file_change.map(|change| pb::TranscriptFileChange {
            path: cut(&change.path, PATH_BYTES),
            ..change
        }),
    };
    new.header = header.encode_to_vec().into();
    new
}

fn notice_of_loss(lost: usize, generation: Generation, now: UnixMillis) -> NewEntry {
    let entry = pb::TranscriptEntry {
        kind: pb::TranscriptKind::Notice.into(),
        ..pb::TranscriptEntry::default()
    };
    let text = format!("{lost} entries are missing: the supervisor could not store them");
    to_stored(TranscriptKind::Notice, generation, entry, text, now)
}

/// Returns the entry that an event adds to the transcript of its thread: a condition changed, an attempt after the
/// first one began, or a turn ended without a report of its runner. Other entries come from runners.
#[must_use]
pub fn notice(recorded: &Recorded, session: &Session) -> Option<(ThreadId, NewEntry)> {
    let (id, text) = match &recorded.event {
        Event::Thread(id, ThreadEvent::ConditionChanged { kind, active, reason }) => {
            let name = condition_name(*kind);
            let text = match (active, reason.as_str()) {
                (true, "") => name.to_owned(),
                (true, reason) => format!("{name}: {reason}"),
                (false, _) => format!("no longer {name}"),
            };
            (id, text)
        }
        Event::Thread(id, ThreadEvent::Placed { runner, generation }) if generation.get() > 1 => {
            (id, format!("attempt {generation} begins on runner {runner}"))
        }
        // The runner records how a turn ends, unless the runner is lost.
        Event::Thread(id, ThreadEvent::TurnEnded { outcome, report, .. }) if *report == ReportSequence::ZERO => {
            let text = match outcome {
                Settled::Completed { .. } => return None,
                Settled::Errored { message, .. } => format!("the attempt ended: {message}"),
                Settled::Interrupted { reason } => format!("the attempt was interrupted: {reason}"),
            };
            (id, text)
        }
        Event::Session(_) | Event::Thread(..) => return None,
    };
    if session.settings.transcript == TranscriptLog::Off {
        return None;
    }
    let thread = session.thread(*id)?;
    let entry = pb::TranscriptEntry {
        kind: pb::TranscriptKind::Notice.into(),
        turn: thread.turn.number().get(),
        ..pb::TranscriptEntry::default()
    };
    let new = to_stored(TranscriptKind::Notice, thread.generation, entry, text, recorded.time);
    Some((*id, new))
}

fn condition_name(kind: ConditionKind) -> &'static str {
    let name = kind.wire().as_str_name();
    name.strip_prefix("CONDITION_KIND_").unwrap_or(name)
}

/// Returns a stored entry as clients receive it.
///
/// # Errors
/// The entry cannot be decoded.
pub fn shown(stored: StoredEntry) -> Result<pb::TranscriptEntry, prost::DecodeError> {
    let mut entry = pb::TranscriptEntry::decode(stored.header)?;
    entry.number = stored.number;
    entry.text_left_out |= stored.size > 0 && stored.text.is_none() && stored.digest.is_none();
    if stored.digest.is_none() {
        entry.content = None;
    }
    entry.text = String::from_utf8_lossy(&stored.text.unwrap_or_default()).into_owned();
    Ok(entry)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use supervisor_log::store::limits::MAX_LISTED_TEXT_BYTES;

    use super::*;

    const NOW: UnixMillis = UnixMillis::new(1_000);

    fn entry(kind: pb::TranscriptKind, text: impl Into<String>) -> pb::TranscriptEntry {
        pb::TranscriptEntry {
            kind: kind.into(),
            text: text.into(),
            turn: 3,
            ..Default::default()
        }
    }

    fn read(entries: Vec<pb::TranscriptEntry>) -> Vec<pb::TranscriptEntry> {
        let stored = stored(Generation::new(2), entries, TranscriptLog::Full, NOW);
        let listed = (1..).zip(stored).map(|(number, new)| StoredEntry {
            number,
            kind: new.kind,
            digest: new.digest(),
            size: new.text.len() as u64,
            text: Some(new.text.clone()).filter(|text| text.len() <= MAX_LISTED_TEXT_BYTES),
            header: new.header,
        });
        listed.map(|entry| shown(entry).unwrap()).collect()
    }

    #[test]
    fn entries_are_bounded() {
        let long = "é".repeat(MAX_LISTED_TEXT_BYTES);
        let huge = "x".repeat(BATCH_TEXT_BYTES);
        let entries = vec![
            entry(pb::TranscriptKind::Message, long.clone()),
            entry(pb::TranscriptKind::ToolResult, long.clone()),
            entry(pb::TranscriptKind::Unspecified, "of a newer release"),
            pb::TranscriptEntry {
                kind: 99,
                ..Default::default()
            },
            entry(pb::TranscriptKind::Message, huge.clone()),
            entry(pb::TranscriptKind::Message, huge),
        ];
        let read = read(entries);
        let sizes = |entry: &pb::TranscriptEntry| {
            entry
                .content
                .as_ref()
                .map_or(entry.text.len() as u64, |content| content.size)
        };
        let expected = [
            long.len(),
            RESULT_TEXT_BYTES,
            BATCH_TEXT_BYTES - long.len() - RESULT_TEXT_BYTES,
            0,
        ];
        assert_eq!(
            read.iter().map(sizes).collect::<Vec<_>>(),
            expected.map(|size| size as u64)
        );
        assert_eq!(read[0].text, "");
        assert_eq!((read[0].number, read[0].generation, read[0].turn), (1, 2, 3));
        let many = vec![entry(pb::TranscriptKind::Notice, "n"); 2 * BATCH_ENTRIES];
        assert_eq!(
            stored(Generation::new(1), many, TranscriptLog::Full, NOW).len(),
            BATCH_ENTRIES
        );
    }

    #[test]
    fn time_of_entry_is_never_later_than_now() {
        for (given, expected) in [(None, 1), (Some(0), 0), (Some(7_000), 1), (Some(-5), 1)] {
            let time = given.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 });
            let entry = pb::TranscriptEntry {
                time,
                ..entry(pb::TranscriptKind::Notice, "n")
            };
            let read = read(vec![entry]);
            assert_eq!(read[0].time.unwrap().seconds, expected, "{given:?}");
        }
    }

    #[test]
    fn dropped_text_is_reported() {
        let new = stored(
            Generation::new(1),
            vec![entry(pb::TranscriptKind::Message, "x".repeat(20_000))],
            TranscriptLog::Full,
            NOW,
        );
        let dropped = StoredEntry {
            number: 1,
            kind: new[0].kind,
            header: new[0].header.clone(),
            size: 20_000,
            text: None,
            digest: None,
        };
        let shown = shown(dropped).unwrap();
        assert!(shown.text_left_out && shown.content.is_none());
    }
}
