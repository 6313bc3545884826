//! The writes. Each function does the work of one job inside a commit group.

use bytes::Bytes;
use rusqlite::{Connection, params};
use supervisor_core::{
    ids::{Sequence, SessionId, ThreadId},
    time::UnixMillis,
};

use super::{
    group::Failure,
    query::{self, blob},
    transcript,
};
use crate::store::{
    batch::{Batch, Created, CreationKey, CursorKey, Evidence, Head, MarkKind, Snapshot},
    checksum,
    columns::{bound, cursor_session, integer, millis},
    error::{Invalid, WriteError},
    limits::{MAX_COMPACTED, MAX_FORGOTTEN},
    member::Claim,
};

/// Creates a session, unless its key is stored and not expired.
pub(super) fn create(connection: &Connection, key: Option<&CreationKey>, batch: &Batch) -> Result<Created, Failure> {
    if let Some(key) = key
        && let Some(found) = query::creation(connection, &key.creator, &key.request_id)?
        && found.expires > key.now
    {
        return Ok(Created::Existing {
            session: found.session,
            hash: found.hash,
        });
    }
    if let Some(head) = query::head(connection, batch.session)? {
        return Err(Failure::Rejected(WriteError::Mismatch { actual: head.sequence }));
    }
    connection
        .prepare_cached("INSERT INTO sessions (session, head, epoch, due) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            blob(batch.session.as_uuid()),
            integer(batch.head_after().get()),
            integer(batch.epoch.get()),
            batch.due.map(millis)
        ])?;
    if let Some(key) = key {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO creations (creator, request_id, hash, session, expires) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                key.creator,
                key.request_id,
                key.hash,
                blob(batch.session.as_uuid()),
                millis(key.expires)
            ])?;
    }
    write(connection, batch)?;
    Ok(Created::New)
}

/// Appends a batch if its epoch is the session's current epoch and its expected head is the session's head.
pub(super) fn append(connection: &Connection, batch: &Batch) -> Result<(), Failure> {
    let session = batch.session;
    let moved = connection
        .prepare_cached("UPDATE sessions SET head = ?2 WHERE session = ?1 AND head = ?3 AND epoch = ?4")?
        .execute(params![
            blob(session.as_uuid()),
            integer(batch.head_after().get()),
            integer(batch.expected.get()),
            integer(batch.epoch.get())
        ])?;
    if moved > 0 {
        // The time is updated by a separate statement, because it seldom changes. An update rewrites the index even if
        // the value stays the same.
        connection
            .prepare_cached("UPDATE sessions SET due = ?2 WHERE session = ?1 AND due IS NOT ?2")?
            .execute(params![blob(session.as_uuid()), batch.due.map(millis)])?;
        return write(connection, batch);
    }
    Err(Failure::Rejected(match query::head(connection, session)? {
        None => WriteError::NotFound { session },
        Some(head) if head.epoch != batch.epoch => WriteError::Fenced { current: head.epoch },
        Some(head) => WriteError::Mismatch { actual: head.sequence },
    }))
}

/// Writes the data of a batch. The caller has already moved the session's head.
fn write(connection: &Connection, batch: &Batch) -> Result<(), Failure> {
    let session = blob(batch.session.as_uuid());
    write_threads(connection, batch)?;
    let mut insert =
        connection.prepare_cached("INSERT INTO records (session, sequence, crc, bytes) VALUES (?1, ?2, ?3, ?4)")?;
    for record in &batch.records {
        let crc = checksum::numbered(batch.session, record.sequence, &record.bytes);
        insert.execute(params![session, integer(record.sequence.get()), crc, &record.bytes[..]])?;
    }
    let mut insert =
        connection.prepare_cached("INSERT INTO marks (session, kind, sequence, thread) VALUES (?1, ?2, ?3, ?4)")?;
    for mark in &batch.marks {
        let thread = blob(mark.thread.as_uuid());
        insert.execute(params![session, mark.kind as i64, integer(mark.sequence.get()), thread])?;
    }
    write_contents(connection, batch)?;
    for (thread, entry) in &batch.entries {
        transcript::add(connection, batch.session, *thread, entry)?;
    }
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO requests (session, scope, request_id, hash, outcome, expires, crc) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for request in &batch.requests {
        let crc = checksum::request(batch.session, request);
        insert.execute(params![
            session,
            request.scope,
            request.request_id,
            request.hash,
            &request.outcome[..],
            millis(request.expires),
            crc
        ])?;
    }
    Ok(())
}

fn write_threads(connection: &Connection, batch: &Batch) -> Result<(), Failure> {
    let session = blob(batch.session.as_uuid());
    let mut insert =
        connection.prepare_cached("INSERT INTO threads (thread, session) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    for &thread in &batch.new_threads {
        let new = insert.execute(params![blob(thread.as_uuid()), session])? > 0;
        if !new && query::session_of(connection, thread)? != Some(batch.session) {
            return Err(Failure::Rejected(WriteError::Invalid(Invalid::ThreadTaken { thread })));
        }
    }
    Ok(())
}

/// Writes the contents that the session does not have yet, and counts their bytes.
fn write_contents(connection: &Connection, batch: &Batch) -> Result<(), Failure> {
    let session = blob(batch.session.as_uuid());
    let mut insert = connection.prepare_cached(
        "INSERT INTO contents (session, digest, crc, bytes) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?;
    let mut new_bytes = 0_u64;
    for content in &batch.contents {
        let crc = checksum::content(batch.session, content.digest, &content.bytes);
        let rows = insert.execute(params![session, content.digest.as_bytes(), crc, &content.bytes[..]])?;
        if rows > 0 {
            new_bytes = new_bytes.saturating_add(content.bytes.len() as u64);
        }
    }
    if new_bytes > 0 {
        connection
            .prepare_cached("UPDATE sessions SET content_bytes = content_bytes + ?2 WHERE session = ?1")?
            .execute(params![session, integer(new_bytes)])?;
    }
    Ok(())
}

/// Increments a session's epoch.
pub(super) fn claim(connection: &Connection, session: SessionId) -> Result<Claim, Failure> {
    let epoch = existing(connection, session)?.epoch.next();
    connection
        .prepare_cached("UPDATE sessions SET epoch = ?2 WHERE session = ?1")?
        .execute(params![blob(session.as_uuid()), integer(epoch.get())])?;
    Ok(Claim::Granted(epoch))
}

/// Stores a snapshot unless a newer one is stored.
pub(super) fn put_snapshot(connection: &Connection, session: SessionId, snapshot: &Snapshot) -> Result<(), Failure> {
    let head = existing(connection, session)?.sequence;
    if snapshot.sequence > head {
        let invalid = Invalid::SnapshotAhead {
            sequence: snapshot.sequence,
            head,
        };
        return Err(Failure::Rejected(WriteError::Invalid(invalid)));
    }
    let crc = checksum::numbered(session, snapshot.sequence, &snapshot.bytes);
    connection
        .prepare_cached(
            "INSERT INTO snapshots (session, sequence, crc, bytes) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (session) DO UPDATE SET sequence = excluded.sequence, crc = excluded.crc, \
             bytes = excluded.bytes WHERE excluded.sequence >= snapshots.sequence",
        )?
        .execute(params![
            blob(session.as_uuid()),
            integer(snapshot.sequence.get()),
            crc,
            &snapshot.bytes[..]
        ])?;
    Ok(())
}

/// Updates marks, and removes the records that the snapshot includes, except marked records.
pub(super) fn compact(
    connection: &Connection,
    session: SessionId,
    until: Sequence,
    evidence: &Evidence,
) -> Result<u64, Failure> {
    existing(connection, session)?;
    let snapshot = connection
        .prepare_cached("SELECT coalesce(max(sequence), 0) FROM snapshots WHERE session = ?1")?
        .query_row(params![blob(session.as_uuid())], |row| query::sequence_at(row, 0))?;
    if until > snapshot {
        let invalid = Invalid::CompactedTooFar { until, snapshot };
        return Err(Failure::Rejected(WriteError::Invalid(invalid)));
    }
    let (session, until) = (blob(session.as_uuid()), integer(until.get()));
    connection
        .prepare_cached("UPDATE sessions SET oldest = max(oldest, ?2) WHERE session = ?1")?
        .execute(params![session, until])?;
    let kind = MarkKind::Evidence as i64;
    let expired = params![session, kind, integer(evidence.expired.get())];
    let of_expired = connection
        .prepare_cached(
            "DELETE FROM records WHERE session = ?1 AND sequence IN ( \
             SELECT sequence FROM marks WHERE session = ?1 AND kind = ?2 AND sequence <= ?3 AND NOT EXISTS ( \
             SELECT 1 FROM marks AS other WHERE other.session = ?1 AND other.sequence = marks.sequence \
             AND other.kind <> ?2))",
        )?
        .execute(expired)?;
    connection
        .prepare_cached("DELETE FROM marks WHERE session = ?1 AND kind = ?2 AND sequence <= ?3")?
        .execute(expired)?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO marks (session, kind, sequence, thread) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?;
    for mark in &evidence.keep {
        let thread = blob(mark.thread.as_uuid());
        insert.execute(params![session, mark.kind as i64, integer(mark.sequence.get()), thread])?;
    }
    let most = bound(MAX_COMPACTED);
    let removed = connection
        .prepare_cached(
            "DELETE FROM records WHERE session = ?1 AND sequence IN ( \
             SELECT sequence FROM records WHERE session = ?1 AND sequence > ?4 AND sequence <= ?2 AND NOT EXISTS ( \
             SELECT 1 FROM marks WHERE marks.session = ?1 AND marks.sequence = records.sequence) LIMIT ?3)",
        )?
        .execute(params![session, until, most, integer(evidence.after.get())])?;
    Ok((of_expired + removed) as u64)
}

/// Stores a summary.
pub(super) fn put_summary(
    connection: &Connection,
    session: SessionId,
    sequence: Sequence,
    bytes: &Bytes,
) -> Result<(), Failure> {
    existing(connection, session)?;
    connection
        .prepare_cached("INSERT OR REPLACE INTO summaries (session, sequence, bytes) VALUES (?1, ?2, ?3)")?
        .execute(params![blob(session.as_uuid()), integer(sequence.get()), &bytes[..]])?;
    Ok(())
}

/// Sets or removes a cursor.
pub(super) fn put_cursor(connection: &Connection, key: &CursorKey, value: Option<&Bytes>) -> Result<(), Failure> {
    if let Some(session) = key.session {
        existing(connection, session)?;
    }
    match value {
        Some(value) => connection
            .prepare_cached("INSERT OR REPLACE INTO cursors (session, name, value) VALUES (?1, ?2, ?3)")?
            .execute(params![cursor_session(key), key.name, &value[..]])?,
        None => connection
            .prepare_cached("DELETE FROM cursors WHERE session = ?1 AND name = ?2")?
            .execute(params![cursor_session(key), key.name])?,
    };
    Ok(())
}

/// Deletes a session and its data. Returns whether it existed.
pub(super) fn delete_session(
    connection: &Connection,
    session: SessionId,
    threads: &[ThreadId],
) -> Result<bool, Failure> {
    const BELONGINGS: [&str; 10] = [
        "DELETE FROM marks WHERE session = ?1",
        "DELETE FROM summaries WHERE session = ?1",
        "DELETE FROM records WHERE session = ?1",
        "DELETE FROM contents WHERE session = ?1",
        "DELETE FROM transcripts WHERE session = ?1",
        "DELETE FROM entries WHERE session = ?1",
        "DELETE FROM requests WHERE session = ?1",
        "DELETE FROM snapshots WHERE session = ?1",
        "DELETE FROM cursors WHERE session = ?1",
        "DELETE FROM creations WHERE session = ?1",
    ];
    let session = blob(session.as_uuid());
    for belongings in BELONGINGS {
        connection.prepare_cached(belongings)?.execute(params![session])?;
    }
    let mut delete = connection.prepare_cached("DELETE FROM threads WHERE thread = ?1 AND session = ?2")?;
    for thread in threads {
        delete.execute(params![blob(thread.as_uuid()), session])?;
    }
    let sessions = connection
        .prepare_cached("DELETE FROM sessions WHERE session = ?1")?
        .execute(params![session])?;
    Ok(sessions > 0)
}

/// Deletes expired entries, up to the maximum per call for each kind.
pub(super) fn forget_requests(connection: &Connection, now: UnixMillis) -> Result<u64, Failure> {
    const KINDS: [&str; 2] = [
        "DELETE FROM requests WHERE (session, scope, request_id) IN \
         (SELECT session, scope, request_id FROM requests WHERE expires <= ?1 LIMIT ?2)",
        "DELETE FROM creations WHERE (creator, request_id) IN \
         (SELECT creator, request_id FROM creations WHERE expires <= ?1 LIMIT ?2)",
    ];
    let most = bound(MAX_FORGOTTEN);
    let mut forgotten = 0_u64;
    for kind in KINDS {
        let rows = connection.prepare_cached(kind)?.execute(params![millis(now), most])?;
        forgotten = forgotten.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
    }
    Ok(forgotten)
}

fn existing(connection: &Connection, session: SessionId) -> Result<Head, Failure> {
    query::head(connection, session)?.ok_or(Failure::Rejected(WriteError::NotFound { session }))
}
