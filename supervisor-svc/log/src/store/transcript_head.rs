//! The state of a thread's transcript, and the rows of its entries, for all database engines.

use supervisor_core::{
    ids::{Digest, SessionId, ThreadId},
    transcript::TranscriptSource,
};

use super::{checksum, transcript::NewEntry};

/// The state of a thread's transcript.
#[derive(Clone, Copy, Debug)]
pub(super) struct TranscriptHead {
    /// The number of the first entry that was not removed.
    pub(super) first: u64,
    /// The number of the last entry.
    pub(super) last: u64,
    /// Total size of its headers and texts, in bytes.
    pub(super) bytes: u64,
    /// The texts of tool results were dropped up to this entry.
    pub(super) results_dropped: u64,
    /// All texts were dropped up to this entry.
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

    /// Adds an entry and returns its row. Omits the text if the transcript would exceed `most_bytes`.
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

/// The row of an entry.
pub(super) struct EntryRow<'a> {
    pub(super) number: u64,
    pub(super) kind: u8,
    pub(super) crc: u32,
    /// The size of the text, even if the text is omitted.
    pub(super) size: u64,
    pub(super) header: &'a [u8],
    pub(super) text: Option<&'a [u8]>,
    pub(super) digest: Option<Digest>,
}
