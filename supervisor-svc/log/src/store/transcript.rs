//! The store's types for transcripts.

use bytes::Bytes;
use futures::future::BoxFuture;
use supervisor_core::{
    ids::{Digest, SessionId, ThreadId},
    transcript::TranscriptKinds,
};

use super::{
    error::{Invalid, WriteError},
    limits::{MAX_LISTED_TEXT_BYTES, MAX_TRANSCRIPT_BATCH, MAX_TRANSCRIPT_BATCH_BYTES},
};

/// An entry to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The number of its kind.
    pub kind: u8,
    /// The entry without its text, opaque to the store.
    pub header: Bytes,
    /// Its text.
    pub text: Bytes,
}

impl NewEntry {
    /// Returns the digest of its text if the text is too long for a listing.
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
    /// The entry without its text.
    pub header: Bytes,
    /// The size of its text when it was stored, in bytes.
    pub size: u64,
    /// Its text. `None` if the text is too long for a listing, or was dropped.
    pub text: Option<Bytes>,
    /// The digest of a text that is too long for a listing. `None` if the text was dropped.
    pub digest: Option<Digest>,
}

/// A queued write to a transcript.
pub struct PendingEntries(BoxFuture<'static, Result<Option<u64>, WriteError>>);

impl PendingEntries {
    pub(super) fn new(outcome: impl Future<Output = Result<Option<u64>, WriteError>> + Send + 'static) -> Self {
        Self(Box::pin(outcome))
    }

    /// Completes when the write is durable. Returns the number of the last entry, or `None` if the write had no effect,
    /// because the batch is already stored or its attempt is over.
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
    /// The threads whose transcripts contain it.
    pub threads: Vec<ThreadId>,
    /// The text.
    pub text: Bytes,
}

/// The selection of entries to read.
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
    /// Maximum number of entries. Larger values mean [`MAX_PAGE`](super::limits::MAX_PAGE).
    pub limit: usize,
}

/// Checks the bounds of an append and returns its size in bytes.
///
/// # Errors
/// The first limit that the append exceeds.
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
