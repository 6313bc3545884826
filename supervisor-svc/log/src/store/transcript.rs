//! The store's types for transcripts.

use bytes::Bytes;
use futures::future::BoxFuture;
use supervisor_core::{
    ids::{Digest, SessionId, ThreadId},
    transcript::{TranscriptKinds, TranscriptSource},
};

use super::{
    checksum,
    error::{Invalid, WriteError},
    limits::{MAX_LISTED_TEXT_BYTES, MAX_TRANSCRIPT_BATCH, MAX_TRANSCRIPT_BATCH_BYTES},
};

/// An entry to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The number of its kind.
    pub kind: u8,
    /// All of the entry but its text, opaque to the store.
    pub header: Bytes,
    /// Its text.
    pub text: Bytes,
}

impl NewEntry {
    /// Returns the digest of its text if a listing does not return the text.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        (self.text.len() > MAX_LISTED_TEXT_BYTES).then(|| Digest::of(&self.text))
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.header.len() + self.text.len()
    }
}

/// An entry as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its number in the thread.
    pub number: u64,
    /// The number of its kind.
    pub kind: u8,
    /// All of the entry but its text.
    pub header: Bytes,
    /// The size of its text when it was stored, in bytes.
    pub size: u64,
    /// Its text. `None` if the text is too long for a listing, or was dropped.
    pub text: Option<Bytes>,
    /// The digest of a text that is too long for a listing. `None` if the text was dropped.
    pub digest: Option<Digest>,
}

/// The state of a thread's transcript.
#[derive(Clone, Copy, Debug)]
pub(super) struct TranscriptHead {
    /// The first entry that is left.
    pub(super) first: u64,
    /// The last entry.
    pub(super) last: u64,
    /// The bytes of its headers and texts.
    pub(super) bytes: u64,
    /// Up to here, the texts of tool results were dropped.
    pub(super) results_dropped: u64,
    /// Up to here, all texts were dropped.
    pub(super) texts_dropped: u64,
    /// The attempt of the last batch of entries.
    pub(super) generation: u64,
    /// The number of that batch in its attempt.
    pub(super) batch: u64,
}

impl Default for TranscriptHead {
    fn default() -> Self {
        Self {
            first: 1,
            last: 0,
            bytes: 0,
            results_dropped: 0,
            texts_dropped: 0,
            generation: 0,
            batch: 0,
        }
    }
}

impl TranscriptHead {
    /// Moves to a batch of entries. Returns whether the batch is later than all batches before it.
    pub(super) fn advance(&mut self, source: TranscriptSource) -> bool {
        let position = (u64::from(source.generation.get()), source.batch);
        let is_later = (self.generation, self.batch) < position;
        if is_later {
            (self.generation, self.batch) = position;
        }
        is_later
    }

    /// Adds an entry and returns its row. Leaves the text out if the transcript would be longer than `most_bytes`.
    pub(super) fn push<'a>(&mut self, of: (SessionId, ThreadId), entry: &'a NewEntry, most_bytes: u64) -> EntryRow<'a> {
        self.last += 1;
        self.bytes += entry.header.len() as u64;
        let has_room = |text: &&[u8]| self.bytes + text.len() as u64 <= most_bytes;
        let text = Some(&entry.text[..]).filter(|text| !text.is_empty()).filter(has_room);
        self.bytes += text.map_or(0, |text| text.len() as u64);
        EntryRow {
            number: self.last,
            kind: entry.kind,
            crc: checksum::transcript(of.0, of.1, self.last, entry.kind, &entry.header, text),
            size: entry.text.len() as u64,
            header: &entry.header,
            text,
            digest: text.and_then(|_| entry.digest()),
        }
    }
}

/// An entry as its row stores it.
pub(super) struct EntryRow<'a> {
    pub(super) number: u64,
    pub(super) kind: u8,
    pub(super) crc: u32,
    /// The size of the text that was given.
    pub(super) size: u64,
    pub(super) header: &'a [u8],
    pub(super) text: Option<&'a [u8]>,
    pub(super) digest: Option<Digest>,
}

/// A write to a transcript that has its place among the writes.
pub struct PendingEntries(BoxFuture<'static, Result<Option<u64>, WriteError>>);

impl PendingEntries {
    pub(super) fn new(outcome: impl Future<Output = Result<Option<u64>, WriteError>> + Send + 'static) -> Self {
        Self(Box::pin(outcome))
    }

    /// Completes when the write is durable. Returns the number of the last entry, or `None` if the write is void: it
    /// was made before, or its attempt is over.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if the batch is too large.
    pub async fn durable(self) -> Result<Option<u64>, WriteError> {
        self.0.await
    }
}

/// A text that is too long for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongText {
    /// The threads that have it.
    pub threads: Vec<ThreadId>,
    /// The text.
    pub text: Bytes,
}

/// Which entries to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptQuery {
    /// The session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// Only entries with a higher number.
    pub after: u64,
    /// Only entries of these kinds.
    pub kinds: TranscriptKinds,
    /// Maximum number of entries; more than [`MAX_PAGE`](super::limits::MAX_PAGE) means that much.
    pub limit: usize,
}

/// Checks the bounds of an append and returns its size in bytes.
///
/// # Errors
/// The first bound that it exceeds.
pub(super) fn check_entries(entries: &[NewEntry]) -> Result<usize, Invalid> {
    if entries.len() > MAX_TRANSCRIPT_BATCH {
        return Err(Invalid::TooMany {
            what: "transcript entries",
            count: entries.len(),
            max: MAX_TRANSCRIPT_BATCH,
        });
    }
    let bytes = entries.iter().map(NewEntry::bytes).fold(0, usize::saturating_add);
    if bytes > MAX_TRANSCRIPT_BATCH_BYTES {
        return Err(Invalid::TooLarge {
            what: "transcript entries",
            bytes,
            max: MAX_TRANSCRIPT_BATCH_BYTES,
        });
    }
    Ok(bytes)
}
