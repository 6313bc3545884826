//! Transcripts: writes and queries.

use std::collections::HashMap;

use futures::try_join;
use supervisor_core::{
    ids::{Digest, Epoch, SessionId, ThreadId},
    transcript::{TranscriptKind, TranscriptSource},
};
use tokio_postgres::{Error as SqlError, Row};
use uuid::Uuid;

use super::{
    connection::Connection,
    query::{
        QueryError, bytes_at, crc_at, is_owned_at, number_at, optional_bytes_at, optional_digest_at, session_at,
        thread_at, uuids,
    },
    sql::Statement,
};
use crate::store::{
    checksum,
    columns::{bound, integer, page},
    error::{ReadError, Side, WriteError},
    limits::{MAX_DROPPED_TEXTS, MAX_LISTED_TEXT_BYTES, MAX_PAGE, MAX_TRANSCRIPT_BYTES, MAX_TRANSCRIPT_ENTRIES},
    member::MemberId,
    transcript::{LongText, NewEntry, StoredEntry, TranscriptQuery},
    transcript_head::{EntryRow, TranscriptHead},
};

/// The key of a thread's transcript.
type TranscriptKey = (SessionId, ThreadId);

/// Entries to add to a transcript.
pub(super) struct Addition<'a> {
    pub(super) key: TranscriptKey,
    /// The batch of a runner. `None` for entries of the supervisor.
    pub(super) source: Option<TranscriptSource>,
    pub(super) entries: &'a [NewEntry],
    /// The maximum size of the transcripts of the session.
    pub(super) session_bytes: u64,
}

/// The result of an addition: the number of the last entry, or `None` if the batch has no effect.
pub(super) type Added = Result<Option<u64>, WriteError>;

/// Adds entries to transcripts, in order, and keeps the transcripts within their bounds.
///
/// # Errors
/// Errors of the database.
pub(super) async fn add(
    connection: &Connection,
    member: MemberId,
    additions: &[Addition<'_>],
) -> Result<Vec<Added>, SqlError> {
    if additions.is_empty() {
        return Ok(Vec::new());
    }
    // The sessions are locked first, so that the data does not change after it is read.
    let (mut sizes, mut heads) = try_join!(sizes(connection, member, additions), heads(connection, additions))?;
    let mut rows = Vec::new();
    let mut results = Vec::with_capacity(additions.len());
    let mut changed = Vec::new();
    for addition in additions {
        let (session, key) = (addition.key.0, addition.key);
        let size = match sizes.get_mut(&session) {
            Some(Ok(size)) => size,
            Some(Err(fenced)) => {
                results.push(Err(fenced.clone()));
                continue;
            }
            None => {
                results.push(Err(WriteError::NotFound { session }));
                continue;
            }
        };
        let head = heads.entry(key).or_default();
        if addition.source.is_some_and(|source| !head.advance(source)) {
            results.push(Ok(None));
            continue;
        }
        let before = head.bytes;
        let most_bytes = addition.session_bytes.saturating_sub(size.saturating_sub(before));
        rows.extend(
            addition
                .entries
                .iter()
                .map(|entry| (key, head.push(key, entry, most_bytes))),
        );
        *size += head.bytes - before;
        results.push(Ok(Some(head.last)));
        if !changed.contains(&key) {
            changed.push(key);
        }
    }
    if changed.is_empty() {
        return Ok(results);
    }
    if changed.iter().filter_map(|key| heads.get(key)).any(is_full) {
        insert(connection, &rows).await?;
        rows.clear();
        for key in &changed {
            let (Some(head), Some(Ok(size))) = (heads.get_mut(key), sizes.get_mut(&key.0)) else {
                continue;
            };
            let before = head.bytes;
            remove_oldest(connection, *key, head).await?;
            drop_texts(connection, *key, head).await?;
            *size = size.saturating_sub(before - head.bytes);
        }
    }
    let changed: Vec<_> = changed
        .iter()
        .filter_map(|key| Some((*key, *heads.get(key)?)))
        .collect();
    // The statements are sent together.
    try_join!(
        insert(connection, &rows),
        put_heads(connection, &changed),
        put_sizes(connection, &sizes),
    )?;
    Ok(results)
}

/// Returns whether a transcript exceeds one of its bounds.
fn is_full(head: &TranscriptHead) -> bool {
    head.bytes > MAX_TRANSCRIPT_BYTES || head.last + 1 > head.first + MAX_TRANSCRIPT_ENTRIES
}

/// Locks the sessions. Returns the transcripts' size of each session, or the error for a session of another member.
async fn sizes(
    connection: &Connection,
    member: MemberId,
    additions: &[Addition<'_>],
) -> Result<HashMap<SessionId, Result<u64, WriteError>>, SqlError> {
    let sessions = uuids(additions, |addition| addition.key.0.as_uuid());
    let rows = connection
        .query(Statement::LockTranscriptSizes, &[&sessions, &member.as_uuid()])
        .await?;
    rows.iter()
        .map(|row| {
            let size = if is_owned_at(row, 3)? {
                Ok(number_at(row, 1)?)
            } else {
                let current = Epoch::new(number_at(row, 2)?);
                Err(WriteError::Fenced { current })
            };
            Ok((session_at(row, 0)?, size))
        })
        .collect()
}

async fn heads(
    connection: &Connection,
    additions: &[Addition<'_>],
) -> Result<HashMap<TranscriptKey, TranscriptHead>, SqlError> {
    let sessions = uuids(additions, |addition| addition.key.0.as_uuid());
    let threads = uuids(additions, |addition| addition.key.1.as_uuid());
    let rows = connection
        .query(Statement::TranscriptHeads, &[&sessions, &threads])
        .await?;
    rows.iter()
        .map(|row| {
            let head = TranscriptHead {
                first: number_at(row, 2)?,
                last: number_at(row, 3)?,
                bytes: number_at(row, 4)?,
                results_dropped: number_at(row, 5)?,
                texts_dropped: number_at(row, 6)?,
                generation: number_at(row, 7)?,
                batch: number_at(row, 8)?,
            };
            Ok(((session_at(row, 0)?, thread_at(row, 1)?), head))
        })
        .collect()
}

async fn insert(connection: &Connection, rows: &[(TranscriptKey, EntryRow<'_>)]) -> Result<(), SqlError> {
    if rows.is_empty() {
        return Ok(());
    }
    let sessions = uuids(rows, |(key, _)| key.0.as_uuid());
    let threads = uuids(rows, |(key, _)| key.1.as_uuid());
    let rows = || rows.iter().map(|(_, row)| row);
    let numbers: Vec<_> = rows().map(|row| integer(row.number)).collect();
    let kinds: Vec<_> = rows().map(|row| i16::from(row.kind)).collect();
    let crcs: Vec<_> = rows().map(|row| row.crc.cast_signed()).collect();
    let sizes: Vec<_> = rows().map(|row| integer(row.size)).collect();
    let headers: Vec<_> = rows().map(|row| row.header).collect();
    let texts: Vec<_> = rows().map(|row| row.text).collect();
    let digests: Vec<_> = rows().map(|row| row.digest).collect();
    let digests: Vec<_> = digests
        .iter()
        .map(|digest| digest.as_ref().map(|digest| &digest.as_bytes()[..]))
        .collect();
    connection
        .execute(
            Statement::InsertEntries,
            &[
                &sessions, &threads, &numbers, &kinds, &crcs, &sizes, &headers, &texts, &digests,
            ],
        )
        .await?;
    Ok(())
}

async fn put_heads(connection: &Connection, changed: &[(TranscriptKey, TranscriptHead)]) -> Result<(), SqlError> {
    let sessions = uuids(changed, |(key, _)| key.0.as_uuid());
    let threads = uuids(changed, |(key, _)| key.1.as_uuid());
    let column = |value: fn(&TranscriptHead) -> u64| -> Vec<i64> {
        changed.iter().map(|(_, head)| integer(value(head))).collect()
    };
    connection
        .execute(
            Statement::PutTranscriptHeads,
            &[
                &sessions,
                &threads,
                &column(|head| head.first),
                &column(|head| head.last),
                &column(|head| head.bytes),
                &column(|head| head.results_dropped),
                &column(|head| head.texts_dropped),
                &column(|head| head.generation),
                &column(|head| head.batch),
            ],
        )
        .await?;
    Ok(())
}

async fn put_sizes(
    connection: &Connection,
    sizes: &HashMap<SessionId, Result<u64, WriteError>>,
) -> Result<(), SqlError> {
    let (sessions, bytes): (Vec<Uuid>, Vec<i64>) = sizes
        .iter()
        .filter_map(|(session, bytes)| Some((session.as_uuid(), integer(*bytes.as_ref().ok()?))))
        .unzip();
    connection
        .execute(Statement::PutTranscriptSizes, &[&sessions, &bytes])
        .await?;
    Ok(())
}

/// Removes the oldest entries beyond the maximum number.
async fn remove_oldest(connection: &Connection, key: TranscriptKey, head: &mut TranscriptHead) -> Result<(), SqlError> {
    let first = (head.last + 1).saturating_sub(MAX_TRANSCRIPT_ENTRIES);
    if first <= head.first {
        return Ok(());
    }
    let (session, thread) = (key.0.as_uuid(), key.1.as_uuid());
    let removed = connection
        .query(Statement::DeleteOldestEntries, &[&session, &thread, &integer(first)])
        .await?;
    for row in &removed {
        head.bytes = head.bytes.saturating_sub(number_at(row, 0)?);
    }
    head.first = first;
    Ok(())
}

/// Drops the oldest texts while the transcript is too large, texts of tool results first.
async fn drop_texts(connection: &Connection, key: TranscriptKey, head: &mut TranscriptHead) -> Result<(), SqlError> {
    if head.bytes > MAX_TRANSCRIPT_BYTES {
        let (results, after) = (TranscriptKind::ToolResult as i16, head.results_dropped);
        head.results_dropped = drop_oldest(connection, key, head, results, after).await?;
    }
    if head.bytes > MAX_TRANSCRIPT_BYTES {
        let after = head.texts_dropped;
        head.texts_dropped = drop_oldest(connection, key, head, 0, after).await?;
    }
    Ok(())
}

/// Drops texts after an entry until the transcript is small enough. Returns the last examined entry. The kind 0 stands
/// for all kinds.
async fn drop_oldest(
    connection: &Connection,
    key: TranscriptKey,
    head: &mut TranscriptHead,
    kind: i16,
    after: u64,
) -> Result<u64, SqlError> {
    let (session, thread) = (key.0.as_uuid(), key.1.as_uuid());
    let oldest = connection
        .query(
            Statement::OldestTexts,
            &[&session, &thread, &integer(after), &kind, &bound(MAX_DROPPED_TEXTS)],
        )
        .await?;
    let mut examined = after;
    let (mut numbers, mut crcs): (Vec<i64>, Vec<i32>) = (Vec::new(), Vec::new());
    for row in &oldest {
        if head.bytes <= MAX_TRANSCRIPT_BYTES {
            break;
        }
        examined = number_at(row, 0)?;
        let crc = checksum::transcript(key.0, key.1, examined, kind_at(row, 1)?, row.try_get(2)?, None);
        numbers.push(integer(examined));
        crcs.push(crc.cast_signed());
        head.bytes = head.bytes.saturating_sub(number_at(row, 3)?);
    }
    connection
        .execute(Statement::DropTexts, &[&session, &thread, &numbers, &crcs])
        .await?;
    Ok(examined)
}

/// Reads an entry's kind. Numbers out of range become [`u8::MAX`], which is not a kind.
fn kind_at(row: &Row, column: usize) -> Result<u8, SqlError> {
    let kind: i16 = row.try_get(column)?;
    Ok(u8::try_from(kind).unwrap_or(u8::MAX))
}

/// Returns a page of entries. The checksum covers the text, so it is verified only where the text is read.
pub(super) async fn entries(connection: &Connection, query: TranscriptQuery) -> Result<Vec<StoredEntry>, QueryError> {
    let rows = connection
        .query(
            Statement::Entries,
            &[
                &query.session.as_uuid(),
                &query.thread.as_uuid(),
                &integer(query.after),
                &i64::from(query.kinds.bits()),
                &page(query.limit),
                &bound(MAX_LISTED_TEXT_BYTES),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let entry = StoredEntry {
                number: number_at(row, 0)?,
                kind: kind_at(row, 1)?,
                header: bytes_at(row, 4)?,
                size: number_at(row, 3)?,
                text: optional_bytes_at(row, 5)?,
                digest: optional_digest_at(row, 6)?,
            };
            let (number, text) = (entry.number, entry.text.as_deref());
            let found = checksum::transcript(query.session, query.thread, number, entry.kind, &entry.header, text);
            if entry.digest.is_none() && found != crc_at(row, 2)? {
                return Err(corrupt(query.session, query.thread, number));
            }
            Ok(entry)
        })
        .collect()
}

fn corrupt(session: SessionId, thread: ThreadId, number: u64) -> QueryError {
    let side = Side::Transcript { thread, number };
    ReadError::CorruptSide { session, side }.into()
}

/// Returns the number of the entry before the last `count` entries.
pub(super) async fn tail(connection: &Connection, query: TranscriptQuery, count: usize) -> Result<u64, QueryError> {
    let found = connection
        .query_first(
            Statement::EntriesTail,
            &[
                &query.session.as_uuid(),
                &query.thread.as_uuid(),
                &integer(query.after),
                &i64::from(query.kinds.bits()),
                &bound(count),
            ],
        )
        .await?;
    Ok(found.map_or(Ok(query.after), |row| number_at(&row, 0))?)
}

/// Returns a long text with its threads.
pub(super) async fn text(
    connection: &Connection,
    session: SessionId,
    digest: Digest,
) -> Result<Option<LongText>, QueryError> {
    let (id, key) = (session.as_uuid(), &digest.as_bytes()[..]);
    let Some(row) = connection.query_first(Statement::LongText, &[&id, &key]).await? else {
        return Ok(None);
    };
    let text = bytes_at(&row, 2)?;
    if Digest::of(&text) != digest {
        return Err(corrupt(session, thread_at(&row, 0)?, number_at(&row, 1)?));
    }
    let rows = connection
        .query(Statement::LongTextThreads, &[&id, &key, &page(MAX_PAGE)])
        .await?;
    let threads: Result<_, SqlError> = rows.iter().map(|row| thread_at(row, 0)).collect();
    Ok(Some(LongText {
        threads: threads?,
        text,
    }))
}
