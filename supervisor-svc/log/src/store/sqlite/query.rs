//! Database queries, and conversions between the store's types and database rows.

use bytes::{Bytes, BytesMut};
use rusqlite::{Connection, Error as SqlError, OptionalExtension as _, Row, params};
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
};
use uuid::Uuid;

use crate::store::{
    batch::{
        Creation, CursorKey, Due, Head, MarkKind, RequestKey, RequestRecord, SessionEntry, Snapshot, StoredRecord,
    },
    checksum,
    columns::{cursor_session, first_request, integer, millis, page},
    error::{ReadError, Side},
    limits::MAX_PAGE,
};

/// Size of a memory block that records share, in bytes.
const BLOCK_BYTES: usize = 64 * 1024;

impl From<SqlError> for ReadError {
    fn from(error: SqlError) -> Self {
        Self::Engine(error.to_string())
    }
}

/// Converts the id of a session or a thread to its column type.
pub(super) fn blob(uuid: Uuid) -> [u8; 16] {
    uuid.into_bytes()
}

pub(super) fn number_at(row: &Row<'_>, column: usize) -> Result<u64, SqlError> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| SqlError::IntegralValueOutOfRange(column, number))
}

pub(super) fn sequence_at(row: &Row<'_>, column: usize) -> Result<Sequence, SqlError> {
    number_at(row, column).map(Sequence::new)
}

fn millis_at(row: &Row<'_>, column: usize) -> Result<UnixMillis, SqlError> {
    number_at(row, column).map(UnixMillis::new)
}

fn session_at(row: &Row<'_>, column: usize) -> Result<SessionId, SqlError> {
    row.get(column)
        .map(|bytes| SessionId::from_uuid(Uuid::from_bytes(bytes)))
}

pub(super) fn bytes_at(row: &Row<'_>, column: usize) -> Result<Bytes, SqlError> {
    row.get::<_, Vec<u8>>(column).map(Bytes::from)
}

/// Returns the head of a session.
pub(super) fn head(connection: &Connection, session: SessionId) -> Result<Option<Head>, SqlError> {
    connection
        .prepare_cached("SELECT head, epoch, oldest, content_bytes FROM sessions WHERE session = ?1")?
        .query_row(params![blob(session.as_uuid())], |row| {
            Ok(Head {
                sequence: sequence_at(row, 0)?,
                epoch: Epoch::new(number_at(row, 1)?),
                oldest: sequence_at(row, 2)?,
                content_bytes: number_at(row, 3)?,
            })
        })
        .optional()
}

/// Returns the session that a request created.
pub(super) fn creation(connection: &Connection, creator: &str, request_id: &str) -> Result<Option<Creation>, SqlError> {
    connection
        .prepare_cached("SELECT session, hash, expires FROM creations WHERE creator = ?1 AND request_id = ?2")?
        .query_row(params![creator, request_id], |row| {
            Ok(Creation {
                session: session_at(row, 0)?,
                hash: row.get(1)?,
                expires: millis_at(row, 2)?,
            })
        })
        .optional()
}

/// Returns the session of a thread.
pub(super) fn session_of(connection: &Connection, thread: ThreadId) -> Result<Option<SessionId>, SqlError> {
    connection
        .prepare_cached("SELECT session FROM threads WHERE thread = ?1")?
        .query_row(params![blob(thread.as_uuid())], |row| session_at(row, 0))
        .optional()
}

/// Returns a page of records from one consistent view.
pub(super) fn records(
    connection: &Connection,
    session: SessionId,
    after: Sequence,
    limit: usize,
) -> Result<Vec<StoredRecord>, ReadError> {
    let transaction = connection.unchecked_transaction()?;
    let Some(head) = head(&transaction, session)? else {
        return Ok(Vec::new());
    };
    if after < head.oldest {
        return Err(ReadError::Compacted {
            session,
            oldest: head.oldest,
            head: head.sequence,
        });
    }
    let waiting = usize::try_from(head.sequence.get().saturating_sub(after.get())).unwrap_or(usize::MAX);
    let wanted = waiting.min(limit).min(MAX_PAGE);
    let mut records = Vec::with_capacity(wanted);
    let mut statement = transaction.prepare_cached(
        "SELECT sequence, crc, bytes FROM records WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",
    )?;
    let mut rows = statement.query(params![blob(session.as_uuid()), integer(after.get()), page(wanted)])?;
    // Records share memory blocks of bounded size, so retaining one record retains at most one block.
    let mut block = BytesMut::new();
    let mut expected = after.next();
    while let Some(row) = rows.next()? {
        let sequence = sequence_at(row, 0)?;
        let crc: u32 = row.get(1)?;
        let stored = row.get_ref(2)?.as_blob().map_err(SqlError::from)?;
        if block.capacity() < stored.len() {
            let left = wanted.saturating_sub(records.len());
            block.reserve(stored.len().max(BLOCK_BYTES.min(stored.len() * left)));
        }
        block.extend_from_slice(stored);
        let bytes = block.split().freeze();
        if sequence != expected || crc != checksum::numbered(session, sequence, &bytes) {
            return Err(ReadError::Corrupt {
                session,
                sequence: expected,
            });
        }
        records.push(StoredRecord { sequence, bytes });
        expected = expected.next();
    }
    if records.len() < wanted {
        Err(ReadError::Corrupt {
            session,
            sequence: expected,
        })
    } else {
        Ok(records)
    }
}

/// Returns a page of marked records.
pub(super) fn marked(
    connection: &Connection,
    session: SessionId,
    kind: MarkKind,
    thread: Option<ThreadId>,
    after: Sequence,
    limit: usize,
) -> Result<Vec<StoredRecord>, ReadError> {
    let sql = match thread {
        Some(_) => {
            "SELECT records.sequence, crc, bytes FROM marks JOIN records USING (session, sequence) \
             WHERE marks.session = ?1 AND kind = ?2 AND marks.sequence > ?3 AND thread = ?5 \
             ORDER BY marks.sequence LIMIT ?4"
        }
        None => {
            "SELECT records.sequence, crc, bytes FROM marks JOIN records USING (session, sequence) \
             WHERE marks.session = ?1 AND kind = ?2 AND marks.sequence > ?3 AND ?5 IS NULL \
             ORDER BY marks.sequence LIMIT ?4"
        }
    };
    let thread = thread.map(|thread| blob(thread.as_uuid()));
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(
        params![
            blob(session.as_uuid()),
            kind as i64,
            integer(after.get()),
            page(limit),
            thread
        ],
        record_at,
    )?;
    checked_records(session, rows)
}

/// Returns a page of the records that compaction retained.
pub(super) fn left(
    connection: &Connection,
    session: SessionId,
    after: Sequence,
    until: Sequence,
) -> Result<Vec<StoredRecord>, ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, crc, bytes FROM records WHERE session = ?1 AND sequence > ?2 AND sequence <= ?3 \
         ORDER BY sequence LIMIT ?4",
    )?;
    let rows = statement.query_map(
        params![
            blob(session.as_uuid()),
            integer(after.get()),
            integer(until.get()),
            page(MAX_PAGE)
        ],
        record_at,
    )?;
    checked_records(session, rows)
}

fn record_at(row: &Row<'_>) -> Result<(Sequence, u32, Bytes), SqlError> {
    Ok((sequence_at(row, 0)?, row.get(1)?, bytes_at(row, 2)?))
}

fn checked_records(
    session: SessionId,
    rows: impl Iterator<Item = Result<(Sequence, u32, Bytes), SqlError>>,
) -> Result<Vec<StoredRecord>, ReadError> {
    rows.map(|row| {
        let (sequence, crc, bytes) = row?;
        if crc == checksum::numbered(session, sequence, &bytes) {
            Ok(StoredRecord { sequence, bytes })
        } else {
            Err(ReadError::Corrupt { session, sequence })
        }
    })
    .collect()
}

/// Returns a content.
pub(super) fn content(connection: &Connection, session: SessionId, digest: Digest) -> Result<Option<Bytes>, ReadError> {
    let found = connection
        .prepare_cached("SELECT crc, bytes FROM contents WHERE session = ?1 AND digest = ?2")?
        .query_row(params![blob(session.as_uuid()), digest.as_bytes()], |row| {
            Ok((row.get::<_, u32>(0)?, bytes_at(row, 1)?))
        })
        .optional()?;
    match found {
        Some((crc, bytes)) if crc == checksum::content(session, digest, &bytes) => Ok(Some(bytes)),
        Some(_) => Err(ReadError::CorruptSide {
            session,
            side: Side::Content(digest),
        }),
        None => Ok(None),
    }
}

/// Returns a snapshot.
pub(super) fn snapshot(connection: &Connection, session: SessionId) -> Result<Option<Snapshot>, ReadError> {
    let found = connection
        .prepare_cached("SELECT sequence, crc, bytes FROM snapshots WHERE session = ?1")?
        .query_row(params![blob(session.as_uuid())], |row| {
            Ok((
                row.get::<_, u32>(1)?,
                Snapshot {
                    sequence: sequence_at(row, 0)?,
                    bytes: bytes_at(row, 2)?,
                },
            ))
        })
        .optional()?;
    match found {
        Some((crc, snapshot)) if crc == checksum::numbered(session, snapshot.sequence, &snapshot.bytes) => {
            Ok(Some(snapshot))
        }
        Some(_) => Err(ReadError::CorruptSide {
            session,
            side: Side::Snapshot,
        }),
        None => Ok(None),
    }
}

/// Returns a stored request.
pub(super) fn request(
    connection: &Connection,
    session: SessionId,
    key: &RequestKey,
) -> Result<Option<RequestRecord>, ReadError> {
    connection
        .prepare_cached(
            "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
             WHERE session = ?1 AND scope = ?2 AND request_id = ?3",
        )?
        .query_row(params![blob(session.as_uuid()), key.scope, key.request_id], request_at)
        .optional()?
        .map(|found| checked_request(session, found))
        .transpose()
}

/// Returns a page of stored requests.
pub(super) fn requests(
    connection: &Connection,
    session: SessionId,
    after: Option<&RequestKey>,
    limit: usize,
) -> Result<Vec<RequestRecord>, ReadError> {
    let (scope, request_id) = first_request(after);
    let mut statement = connection.prepare_cached(
        "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
         WHERE session = ?1 AND (scope, request_id) >= (?2, ?3) ORDER BY scope, request_id LIMIT ?4",
    )?;
    let rows = statement.query_map(
        params![blob(session.as_uuid()), scope, request_id, page(limit)],
        request_at,
    )?;
    rows.map(|found| {
        found
            .map_err(ReadError::from)
            .and_then(|found| checked_request(session, found))
    })
    .collect()
}

fn request_at(row: &Row<'_>) -> Result<(u32, RequestRecord), SqlError> {
    let request = RequestRecord {
        scope: row.get(0)?,
        request_id: row.get(1)?,
        hash: row.get(2)?,
        outcome: bytes_at(row, 3)?,
        expires: millis_at(row, 4)?,
    };
    Ok((row.get(5)?, request))
}

fn checked_request(session: SessionId, (crc, request): (u32, RequestRecord)) -> Result<RequestRecord, ReadError> {
    if crc == checksum::request(session, &request) {
        Ok(request)
    } else {
        Err(ReadError::CorruptSide {
            session,
            side: Side::Request,
        })
    }
}

/// Returns a page of sessions.
pub(super) fn sessions(
    connection: &Connection,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionId>, ReadError> {
    // An empty blob is less than every id.
    let after = after.map_or_else(Vec::new, |session| blob(session.as_uuid()).to_vec());
    let mut statement =
        connection.prepare_cached("SELECT session FROM sessions WHERE session > ?1 ORDER BY session LIMIT ?2")?;
    let rows = statement.query_map(params![after, page(limit)], |row| session_at(row, 0))?;
    rows.map(|session| session.map_err(ReadError::from)).collect()
}

/// Returns a page of sessions with the summary of each, without loading the sessions.
pub(super) fn summaries(
    connection: &Connection,
    before: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionEntry>, ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT sessions.session, head, bytes FROM sessions \
         LEFT JOIN summaries ON summaries.session = sessions.session AND sequence = head \
         WHERE ?1 IS NULL OR sessions.session < ?1 ORDER BY sessions.session DESC LIMIT ?2",
    )?;
    let before = before.map(|session| blob(session.as_uuid()));
    let rows = statement.query_map(params![before, page(limit)], |row| {
        Ok(SessionEntry {
            session: session_at(row, 0)?,
            head: sequence_at(row, 1)?,
            summary: row.get::<_, Option<Vec<u8>>>(2)?.map(Bytes::from),
            owner: None,
        })
    })?;
    rows.map(|entry| entry.map_err(ReadError::from)).collect()
}

/// Returns a page of sessions that are due.
pub(super) fn due_before(
    connection: &Connection,
    time: UnixMillis,
    after: Option<Due>,
    limit: usize,
) -> Result<Vec<Due>, ReadError> {
    let (at, session) = match after {
        Some(due) => (millis(due.at), blob(due.session.as_uuid()).to_vec()),
        None => (i64::MIN, Vec::new()),
    };
    let mut statement = connection.prepare_cached(
        "SELECT due, session FROM sessions WHERE due IS NOT NULL AND due <= ?1 AND (due, session) > (?2, ?3) \
         ORDER BY due, session LIMIT ?4",
    )?;
    let rows = statement.query_map(params![millis(time), at, session, page(limit)], |row| {
        Ok(Due {
            at: millis_at(row, 0)?,
            session: session_at(row, 1)?,
        })
    })?;
    rows.map(|due| due.map_err(ReadError::from)).collect()
}

/// Returns a cursor's value.
pub(super) fn cursor(connection: &Connection, key: &CursorKey) -> Result<Option<Bytes>, ReadError> {
    let found = connection
        .prepare_cached("SELECT value FROM cursors WHERE session = ?1 AND name = ?2")?
        .query_row(params![cursor_session(key), key.name], |row| bytes_at(row, 0))
        .optional()?;
    Ok(found)
}
