//! Transcripts: writes and queries.

use std::slice;

use bytes::Bytes;
use rusqlite::{Connection, Error as SqlError, OptionalExtension as _, Row, params};
use supervisor_core::{
    ids::{Digest, SessionId, ThreadId},
    transcript::{TranscriptKind, TranscriptSource},
};
use uuid::Uuid;

use super::{
    group::Failure,
    query::{self, blob, bytes_at, number_at},
};
use crate::store::{
    checksum,
    columns::{bound, integer, page},
    error::{ReadError, Side, WriteError},
    limits::{MAX_DROPPED_TEXTS, MAX_LISTED_TEXT_BYTES, MAX_PAGE, MAX_TRANSCRIPT_BYTES, MAX_TRANSCRIPT_ENTRIES},
    transcript::{LongText, NewEntry, StoredEntry, TranscriptQuery},
    transcript_head::TranscriptHead,
};

/// Appends entries of an attempt. Returns the last number, or `None` if the batch has no effect.
pub(super) fn append(
    connection: &Connection,
    source: TranscriptSource,
    entries: &[NewEntry],
    session_bytes: u64,
) -> Result<Option<u64>, Failure> {
    let TranscriptSource { session, thread, .. } = source;
    if query::head(connection, session)?.is_none() {
        return Err(Failure::Rejected(WriteError::NotFound { session }));
    }
    let mut head = head(connection, session, thread)?;
    if !head.advance(source) {
        return Ok(None);
    }
    let last = write(connection, (session, thread), head, entries, session_bytes)?;
    Ok(Some(last))
}

/// Appends an entry of the supervisor, whose texts are short.
pub(super) fn add(
    connection: &Connection,
    session: SessionId,
    thread: ThreadId,
    entry: &NewEntry,
) -> Result<(), SqlError> {
    let head = head(connection, session, thread)?;
    write(connection, (session, thread), head, slice::from_ref(entry), u64::MAX)?;
    Ok(())
}

/// Writes entries and the head, and keeps the transcript within its bounds. Returns the last number.
fn write(
    connection: &Connection,
    of: (SessionId, ThreadId),
    mut head: TranscriptHead,
    entries: &[NewEntry],
    session_bytes: u64,
) -> Result<u64, SqlError> {
    let (session, thread) = (blob(of.0.as_uuid()), blob(of.1.as_uuid()));
    let of_session = connection
        .prepare_cached("SELECT transcript_bytes FROM sessions WHERE session = ?1")?
        .query_row(params![session], |row| number_at(row, 0))?;
    let before = head.bytes;
    let most_bytes = session_bytes.saturating_sub(of_session.saturating_sub(before));
    let mut insert = connection.prepare_cached(
        "INSERT INTO entries (session, thread, number, kind, crc, size, header, text, digest) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for entry in entries {
        let row = head.push(of, entry, most_bytes);
        insert.execute(params![
            session,
            thread,
            integer(row.number),
            row.kind,
            row.crc,
            integer(row.size),
            row.header,
            row.text,
            row.digest.map(|digest| *digest.as_bytes()),
        ])?;
    }
    remove_oldest(connection, of, &mut head)?;
    drop_texts(connection, of, &mut head)?;
    connection
        .prepare_cached("UPDATE sessions SET transcript_bytes = max(0, transcript_bytes + ?2) WHERE session = ?1")?
        .execute(params![session, integer(head.bytes) - integer(before)])?;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO transcripts \
             (session, thread, first, last, bytes, results_dropped, texts_dropped, generation, batch) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            session,
            thread,
            integer(head.first),
            integer(head.last),
            integer(head.bytes),
            integer(head.results_dropped),
            integer(head.texts_dropped),
            integer(head.generation),
            integer(head.batch),
        ])?;
    Ok(head.last)
}

fn head(connection: &Connection, session: SessionId, thread: ThreadId) -> Result<TranscriptHead, SqlError> {
    let stored = connection
        .prepare_cached(
            "SELECT first, last, bytes, results_dropped, texts_dropped, generation, batch FROM transcripts \
             WHERE session = ?1 AND thread = ?2",
        )?
        .query_row(params![blob(session.as_uuid()), blob(thread.as_uuid())], |row| {
            Ok(TranscriptHead {
                first: number_at(row, 0)?,
                last: number_at(row, 1)?,
                bytes: number_at(row, 2)?,
                results_dropped: number_at(row, 3)?,
                texts_dropped: number_at(row, 4)?,
                generation: number_at(row, 5)?,
                batch: number_at(row, 6)?,
            })
        })
        .optional()?;
    Ok(stored.unwrap_or_default())
}

/// Removes the oldest entries beyond the maximum number.
fn remove_oldest(
    connection: &Connection,
    of: (SessionId, ThreadId),
    head: &mut TranscriptHead,
) -> Result<(), SqlError> {
    let first = (head.last + 1).saturating_sub(MAX_TRANSCRIPT_ENTRIES);
    if first <= head.first {
        return Ok(());
    }
    let (session, thread) = (blob(of.0.as_uuid()), blob(of.1.as_uuid()));
    let mut delete = connection.prepare_cached(
        "DELETE FROM entries WHERE session = ?1 AND thread = ?2 AND number < ?3 \
         RETURNING length(header) + coalesce(length(text), 0)",
    )?;
    let mut rows = delete.query(params![session, thread, integer(first)])?;
    while let Some(row) = rows.next()? {
        head.bytes = head.bytes.saturating_sub(number_at(row, 0)?);
    }
    head.first = first;
    Ok(())
}

/// Drops the oldest texts while the transcript is too large, texts of tool results first.
fn drop_texts(connection: &Connection, of: (SessionId, ThreadId), head: &mut TranscriptHead) -> Result<(), SqlError> {
    if head.bytes > MAX_TRANSCRIPT_BYTES {
        let (results, after) = (TranscriptKind::ToolResult as u8, head.results_dropped);
        head.results_dropped = drop_oldest(connection, of, head, results, after)?;
    }
    if head.bytes > MAX_TRANSCRIPT_BYTES {
        let after = head.texts_dropped;
        head.texts_dropped = drop_oldest(connection, of, head, 0, after)?;
    }
    Ok(())
}

/// Drops texts after an entry until the transcript is small enough. Returns the last examined entry. The kind 0 stands
/// for all kinds.
fn drop_oldest(
    connection: &Connection,
    of: (SessionId, ThreadId),
    head: &mut TranscriptHead,
    kind: u8,
    after: u64,
) -> Result<u64, SqlError> {
    let (session, thread) = (blob(of.0.as_uuid()), blob(of.1.as_uuid()));
    let mut select = connection.prepare_cached(
        "SELECT number, kind, header, length(text) FROM entries \
         WHERE session = ?1 AND thread = ?2 AND number > ?3 AND text IS NOT NULL AND (?4 = 0 OR kind = ?4) \
         ORDER BY number LIMIT ?5",
    )?;
    let most = bound(MAX_DROPPED_TEXTS);
    let rows = select.query_map(params![session, thread, integer(after), kind, most], |row| {
        Ok((number_at(row, 0)?, row.get(1)?, bytes_at(row, 2)?, number_at(row, 3)?))
    })?;
    let oldest: Vec<(u64, u8, Bytes, u64)> = rows.collect::<Result<_, _>>()?;
    let mut update = connection.prepare_cached(
        "UPDATE entries SET text = NULL, digest = NULL, crc = ?4 WHERE session = ?1 AND thread = ?2 AND number = ?3",
    )?;
    let mut examined = after;
    for (number, kind, header, size) in oldest {
        if head.bytes <= MAX_TRANSCRIPT_BYTES {
            return Ok(examined);
        }
        let crc = checksum::transcript(of.0, of.1, number, kind, &header, None);
        update.execute(params![session, thread, integer(number), crc])?;
        head.bytes = head.bytes.saturating_sub(size);
        examined = number;
    }
    Ok(examined)
}

/// Returns a page of entries. The checksum covers the text, so it is verified only where the text is read.
pub(super) fn entries(connection: &Connection, query: TranscriptQuery) -> Result<Vec<StoredEntry>, ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT number, kind, crc, size, header, CASE WHEN size <= ?6 THEN text END, digest FROM entries \
         WHERE session = ?1 AND thread = ?2 AND number > ?3 AND (?4 >> kind) & 1 ORDER BY number LIMIT ?5",
    )?;
    let rows = statement.query_map(
        params![
            blob(query.session.as_uuid()),
            blob(query.thread.as_uuid()),
            integer(query.after),
            query.kinds.bits(),
            page(query.limit),
            bound(MAX_LISTED_TEXT_BYTES),
        ],
        entry_at,
    )?;
    rows.map(|row| {
        let (entry, crc) = row?;
        let is_read = entry.digest.is_none();
        let found = checksum::transcript(
            query.session,
            query.thread,
            entry.number,
            entry.kind,
            &entry.header,
            entry.text.as_deref(),
        );
        if is_read && found != crc {
            return Err(corrupt(query.session, query.thread, entry.number));
        }
        Ok(entry)
    })
    .collect()
}

fn entry_at(row: &Row<'_>) -> Result<(StoredEntry, u32), SqlError> {
    let size = number_at(row, 3)?;
    let text: Option<Vec<u8>> = row.get(5)?;
    let digest: Option<[u8; 32]> = row.get(6)?;
    let entry = StoredEntry {
        number: number_at(row, 0)?,
        kind: row.get(1)?,
        header: bytes_at(row, 4)?,
        size,
        text: text.map(Bytes::from),
        digest: digest.map(Digest::from_bytes),
    };
    Ok((entry, row.get(2)?))
}

fn corrupt(session: SessionId, thread: ThreadId, number: u64) -> ReadError {
    let side = Side::Transcript { thread, number };
    ReadError::CorruptSide { session, side }
}

/// Returns the number of the entry before the last `count` entries.
pub(super) fn tail(connection: &Connection, query: TranscriptQuery, count: usize) -> Result<u64, SqlError> {
    let found = connection
        .prepare_cached(
            "SELECT number FROM entries WHERE session = ?1 AND thread = ?2 AND number > ?3 AND (?4 >> kind) & 1 \
             ORDER BY number DESC LIMIT 1 OFFSET ?5",
        )?
        .query_row(
            params![
                blob(query.session.as_uuid()),
                blob(query.thread.as_uuid()),
                integer(query.after),
                query.kinds.bits(),
                bound(count),
            ],
            |row| number_at(row, 0),
        )
        .optional()?;
    Ok(found.unwrap_or(query.after))
}

/// Returns a long text with its threads.
pub(super) fn text(connection: &Connection, session: SessionId, digest: Digest) -> Result<Option<LongText>, ReadError> {
    let key = params![blob(session.as_uuid()), digest.as_bytes()];
    let found = connection
        .prepare_cached("SELECT thread, number, text FROM entries WHERE session = ?1 AND digest = ?2 LIMIT 1")?
        .query_row(key, |row| {
            Ok((thread_at(row, 0)?, number_at(row, 1)?, bytes_at(row, 2)?))
        })
        .optional()?;
    let Some((thread, number, text)) = found else {
        return Ok(None);
    };
    if Digest::of(&text) != digest {
        return Err(corrupt(session, thread, number));
    }
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT thread FROM entries WHERE session = ?1 AND digest = ?2 LIMIT ?3")?;
    let most = page(MAX_PAGE);
    let threads = statement.query_map(params![blob(session.as_uuid()), digest.as_bytes(), most], |row| {
        thread_at(row, 0)
    })?;
    let threads = threads.collect::<Result<_, _>>()?;
    Ok(Some(LongText { threads, text }))
}

fn thread_at(row: &Row<'_>, column: usize) -> Result<ThreadId, SqlError> {
    row.get(column)
        .map(|bytes| ThreadId::from_uuid(Uuid::from_bytes(bytes)))
}

/// Checks all entries of a session, and returns their number and size.
pub(super) fn check(connection: &Connection, session: SessionId) -> Result<(u64, u64), ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT number, kind, crc, size, header, text, digest, thread FROM entries WHERE session = ?1",
    )?;
    let mut rows = statement.query(params![blob(session.as_uuid())])?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let (entry, crc) = entry_at(row)?;
        let thread = thread_at(row, 7)?;
        let text = entry.text.as_deref();
        let is_intact = crc == checksum::transcript(session, thread, entry.number, entry.kind, &entry.header, text)
            && entry.digest.is_none_or(|digest| text.map(Digest::of) == Some(digest));
        if !is_intact {
            return Err(corrupt(session, thread, entry.number));
        }
        count += 1;
        bytes += (entry.header.len() + text.map_or(0, <[u8]>::len)) as u64;
    }
    Ok((count, bytes))
}
