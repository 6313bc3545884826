//! Database queries, and conversions between the store's types and database rows.

use std::error::Error as StdError;

use bytes::Bytes;
use futures::try_join;
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
};
use tokio_postgres::{
    Error as SqlError, Row,
    types::{FromSql, Type, accepts},
};
use uuid::Uuid;

use super::{
    connection::{Connection, Parameter},
    sql::Statement,
};
use crate::store::{
    batch::{
        Creation, CursorKey, Due, Head, MarkKind, RequestKey, RequestRecord, SessionEntry, Snapshot, StoredRecord,
    },
    checksum,
    columns::{cursor_session, first_request, integer, millis, page},
    error::{ReadError, Side},
    limits::MAX_PAGE,
    member::{Beat, DatabaseInfo, Member, MemberId, MemberState, NewMember},
};

/// The error of a query.
#[derive(Debug)]
pub(super) enum QueryError {
    /// The query has this result, and the connection is still usable.
    Read(ReadError),
    /// The database failed.
    Engine(SqlError),
}

impl From<SqlError> for QueryError {
    fn from(error: SqlError) -> Self {
        Self::Engine(error)
    }
}

impl From<ReadError> for QueryError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// A non-negative number.
struct Number(u64);

impl FromSql<'_> for Number {
    fn from_sql(kind: &Type, raw: &[u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(u64::try_from(i64::from_sql(kind, raw)?)?))
    }

    accepts!(INT8);
}

/// A hash or a digest.
struct Hash([u8; 32]);

impl FromSql<'_> for Hash {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(BYTEA);
}

pub(super) fn number_at(row: &Row, column: usize) -> Result<u64, SqlError> {
    row.try_get(column).map(|Number(number)| number)
}

pub(super) fn sequence_at(row: &Row, column: usize) -> Result<Sequence, SqlError> {
    number_at(row, column).map(Sequence::new)
}

pub(super) fn session_at(row: &Row, column: usize) -> Result<SessionId, SqlError> {
    row.try_get(column).map(SessionId::from_uuid)
}

pub(super) fn thread_at(row: &Row, column: usize) -> Result<ThreadId, SqlError> {
    row.try_get(column).map(ThreadId::from_uuid)
}

pub(super) fn bytes_at(row: &Row, column: usize) -> Result<Bytes, SqlError> {
    row.try_get(column).map(Bytes::copy_from_slice)
}

pub(super) fn optional_bytes_at(row: &Row, column: usize) -> Result<Option<Bytes>, SqlError> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    Ok(bytes.map(Bytes::copy_from_slice))
}

pub(super) fn optional_digest_at(row: &Row, column: usize) -> Result<Option<Digest>, SqlError> {
    let digest: Option<Hash> = row.try_get(column)?;
    Ok(digest.map(|Hash(bytes)| Digest::from_bytes(bytes)))
}

/// Reads a checksum. The column stores the same bits as a signed number.
pub(super) fn crc_at(row: &Row, column: usize) -> Result<u32, SqlError> {
    row.try_get(column).map(i32::cast_unsigned)
}

/// Reads whether a session belongs to this process. A session without an owner belongs to no process.
pub(super) fn is_owned_at(row: &Row, column: usize) -> Result<bool, SqlError> {
    let is_owned: Option<bool> = row.try_get(column)?;
    Ok(is_owned == Some(true))
}

pub(super) fn head_at(row: &Row) -> Result<Head, SqlError> {
    Ok(Head {
        sequence: sequence_at(row, 0)?,
        epoch: Epoch::new(number_at(row, 1)?),
        oldest: sequence_at(row, 2)?,
        content_bytes: number_at(row, 3)?,
    })
}

pub(super) fn creation_at(row: &Row) -> Result<Creation, SqlError> {
    let Hash(hash) = row.try_get(1)?;
    Ok(Creation {
        session: session_at(row, 0)?,
        hash,
        expires: UnixMillis::new(number_at(row, 2)?),
    })
}

/// Returns the head of a session.
pub(super) async fn head(connection: &Connection, session: SessionId) -> Result<Option<Head>, QueryError> {
    let row = connection.query_first(Statement::Head, &[&session.as_uuid()]).await?;
    Ok(row.as_ref().map(head_at).transpose()?)
}

/// Returns the session that a request created.
pub(super) async fn creation(
    connection: &Connection,
    creator: &str,
    request_id: &str,
) -> Result<Option<Creation>, SqlError> {
    let key = (creator.as_bytes(), request_id.as_bytes());
    let row = connection.query_first(Statement::Creation, &[&key.0, &key.1]).await?;
    row.as_ref().map(creation_at).transpose()
}

/// Returns the session of a thread.
pub(super) async fn session_of(connection: &Connection, thread: ThreadId) -> Result<Option<SessionId>, QueryError> {
    let row = connection
        .query_first(Statement::SessionOf, &[&thread.as_uuid()])
        .await?;
    Ok(row.map(|row| session_at(&row, 0)).transpose()?)
}

/// Returns a page of records. One statement reads the records and the head, so that they are consistent.
pub(super) async fn records(
    connection: &Connection,
    session: SessionId,
    after: Sequence,
    limit: usize,
) -> Result<Vec<StoredRecord>, QueryError> {
    let id = session.as_uuid();
    let rows = connection
        .query(Statement::Records, &[&id, &integer(after.get()), &page(limit)])
        .await?;
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let (head, oldest) = (sequence_at(first, 0)?, sequence_at(first, 1)?);
    if after < oldest {
        return Err(ReadError::Compacted { session, oldest, head }.into());
    }
    let waiting = usize::try_from(head.get().saturating_sub(after.get())).unwrap_or(usize::MAX);
    let wanted = waiting.min(limit).min(MAX_PAGE);
    let mut records = Vec::with_capacity(wanted);
    let mut expected = after.next();
    for row in rows.iter().take(wanted) {
        let found: Option<i64> = row.try_get(2)?;
        if found != Some(integer(expected.get())) {
            break;
        }
        let bytes = bytes_at(row, 4)?;
        if crc_at(row, 3)? != checksum::numbered(session, expected, &bytes) {
            break;
        }
        records.push(StoredRecord {
            sequence: expected,
            bytes,
        });
        expected = expected.next();
    }
    if records.len() < wanted {
        Err(ReadError::Corrupt {
            session,
            sequence: expected,
        }
        .into())
    } else {
        Ok(records)
    }
}

/// Returns a page of marked records.
pub(super) async fn marked(
    connection: &Connection,
    session: SessionId,
    kind: MarkKind,
    thread: Option<ThreadId>,
    after: Sequence,
    limit: usize,
) -> Result<Vec<StoredRecord>, QueryError> {
    let (id, thread) = (session.as_uuid(), thread.map(ThreadId::as_uuid));
    let (kind, after, limit) = (kind as i16, integer(after.get()), page(limit));
    let rows = connection
        .query(Statement::Marked, &[&id, &kind, &after, &limit, &thread])
        .await?;
    rows.iter()
        .map(|row| {
            let (sequence, crc, bytes) = (sequence_at(row, 0)?, crc_at(row, 1)?, bytes_at(row, 2)?);
            if crc == checksum::numbered(session, sequence, &bytes) {
                Ok(StoredRecord { sequence, bytes })
            } else {
                Err(ReadError::Corrupt { session, sequence }.into())
            }
        })
        .collect()
}

fn corrupt(session: SessionId, side: Side) -> QueryError {
    ReadError::CorruptSide { session, side }.into()
}

/// Returns a content.
pub(super) async fn content(
    connection: &Connection,
    session: SessionId,
    digest: Digest,
) -> Result<Option<Bytes>, QueryError> {
    let parameters = (session.as_uuid(), &digest.as_bytes()[..]);
    let row = connection
        .query_first(Statement::Content, &[&parameters.0, &parameters.1])
        .await?;
    let Some(row) = row else { return Ok(None) };
    let bytes = bytes_at(&row, 1)?;
    if crc_at(&row, 0)? == checksum::content(session, digest, &bytes) {
        Ok(Some(bytes))
    } else {
        Err(corrupt(session, Side::Content(digest)))
    }
}

/// Returns a snapshot.
pub(super) async fn snapshot(connection: &Connection, session: SessionId) -> Result<Option<Snapshot>, QueryError> {
    let row = connection
        .query_first(Statement::Snapshot, &[&session.as_uuid()])
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (sequence, bytes) = (sequence_at(&row, 0)?, bytes_at(&row, 2)?);
    if crc_at(&row, 1)? == checksum::numbered(session, sequence, &bytes) {
        Ok(Some(Snapshot { sequence, bytes }))
    } else {
        Err(corrupt(session, Side::Snapshot))
    }
}

/// Returns a stored request.
pub(super) async fn request(
    connection: &Connection,
    session: SessionId,
    key: RequestKey,
) -> Result<Option<RequestRecord>, QueryError> {
    let parameters = (session.as_uuid(), key.scope.as_bytes(), key.request_id.as_bytes());
    let row = connection
        .query_first(Statement::Request, &[&parameters.0, &parameters.1, &parameters.2])
        .await?;
    row.map(|row| checked_request(session, &row)).transpose()
}

/// Returns a page of stored requests.
pub(super) async fn requests(
    connection: &Connection,
    session: SessionId,
    after: Option<RequestKey>,
    limit: usize,
) -> Result<Vec<RequestRecord>, QueryError> {
    let (scope, request_id) = first_request(after.as_ref());
    let (scope, request_id) = (scope.as_bytes(), request_id.as_bytes());
    let rows = connection
        .query(
            Statement::Requests,
            &[&session.as_uuid(), &page(limit), &scope, &request_id],
        )
        .await?;
    rows.iter().map(|row| checked_request(session, row)).collect()
}

fn checked_request(session: SessionId, row: &Row) -> Result<RequestRecord, QueryError> {
    let text_at = |column| -> Result<String, QueryError> {
        let bytes: Vec<u8> = row.try_get(column)?;
        String::from_utf8(bytes).map_err(|_| corrupt(session, Side::Request))
    };
    let Hash(hash) = row.try_get(2)?;
    let request = RequestRecord {
        scope: text_at(0)?,
        request_id: text_at(1)?,
        hash,
        outcome: bytes_at(row, 3)?,
        expires: UnixMillis::new(number_at(row, 4)?),
    };
    if crc_at(row, 5)? == checksum::request(session, &request) {
        Ok(request)
    } else {
        Err(corrupt(session, Side::Request))
    }
}

/// Returns a page of sessions. No session has the smallest id, which stands for the position before the first page.
pub(super) async fn sessions(
    connection: &Connection,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionId>, QueryError> {
    let after = after.map_or(Uuid::nil(), SessionId::as_uuid);
    let rows = connection.query(Statement::Sessions, &[&page(limit), &after]).await?;
    rows.iter().map(|row| Ok(session_at(row, 0)?)).collect()
}

/// Returns a page of sessions with the summary of each, without loading the sessions. No session has the largest id,
/// which stands for the position before the first page.
pub(super) async fn summaries(
    connection: &Connection,
    member: MemberId,
    before: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionEntry>, QueryError> {
    let before = before.map_or(Uuid::max(), SessionId::as_uuid);
    let rows = connection
        .query(Statement::Summaries, &[&page(limit), &member.as_uuid(), &before])
        .await?;
    rows.iter()
        .map(|row| {
            Ok(SessionEntry {
                session: session_at(row, 0)?,
                head: sequence_at(row, 1)?,
                summary: optional_bytes_at(row, 2)?,
                owner: row.try_get::<_, Option<Uuid>>(3)?.map(MemberId::from_uuid),
            })
        })
        .collect()
}

/// Returns a page of sessions that are due.
pub(super) async fn due_before(
    connection: &Connection,
    member: MemberId,
    time: UnixMillis,
    after: Option<Due>,
    limit: usize,
) -> Result<Vec<Due>, QueryError> {
    let (time, limit, member) = (millis(time), page(limit), member.as_uuid());
    let (at, session) = after.map_or((i64::MIN, Uuid::nil()), |due| (millis(due.at), due.session.as_uuid()));
    let rows = connection
        .query(Statement::Due, &[&time, &limit, &member, &at, &session])
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Due {
                at: UnixMillis::new(number_at(row, 0)?),
                session: session_at(row, 1)?,
            })
        })
        .collect()
}

/// Returns a cursor's value.
pub(super) async fn cursor(connection: &Connection, key: CursorKey) -> Result<Option<Bytes>, QueryError> {
    let parameters = (cursor_session(&key), key.name.as_bytes());
    let row = connection
        .query_first(Statement::Cursor, &[&parameters.0, &parameters.1])
        .await?;
    Ok(row.map(|row| bytes_at(&row, 0)).transpose()?)
}

/// Describes the server.
pub(super) async fn database(connection: &Connection) -> Result<DatabaseInfo, QueryError> {
    let (mut version, mut synchronous_standbys) = (String::new(), String::new());
    for row in connection.query(Statement::Settings, &[]).await? {
        let (name, value): (&str, String) = (row.try_get(0)?, row.try_get(1)?);
        match name {
            "server_version" => version = value,
            "synchronous_standby_names" => synchronous_standbys = value,
            _ => {}
        }
    }
    // A distribution adds its own name after the number.
    let number = version.split_whitespace().next().unwrap_or_default();
    Ok(DatabaseInfo {
        engine: format!("PostgreSQL {number}"),
        synchronous_standbys,
    })
}

/// Makes a process a member.
pub(super) async fn join(connection: &Connection, member: MemberId, new: NewMember) -> Result<(), QueryError> {
    let id = member.as_uuid();
    connection.execute(Statement::RemoveNamesake, &[&id, &new.name]).await?;
    connection
        .execute(Statement::Join, &[&id, &new.name, &new.address, &new.release])
        .await?;
    Ok(())
}

/// Counts a beat of a member and returns all members; `None` if the member was removed.
pub(super) async fn beat(
    connection: &Connection,
    member: MemberId,
    beat: Beat,
) -> Result<Option<Vec<Member>>, QueryError> {
    let (state, sessions, runners) = (beat.state as i16, integer(beat.sessions), integer(beat.runners));
    let parameters: [Parameter<'_>; 4] = [&member.as_uuid(), &state, &sessions, &runners];
    // Both statements are sent together.
    let (updated, members) = try_join!(connection.execute(Statement::Beat, &parameters), members(connection))?;
    Ok((updated > 0).then_some(members))
}

/// Returns all members.
pub(super) async fn members(connection: &Connection) -> Result<Vec<Member>, SqlError> {
    let rows = connection.query(Statement::Members, &[]).await?;
    rows.iter().map(member_at).collect()
}

/// Removes a member that has not beaten since it had the given number of beats.
pub(super) async fn remove_member(connection: &Connection, member: MemberId, beats: u64) -> Result<bool, QueryError> {
    let parameters: [Parameter<'_>; 2] = [&member.as_uuid(), &integer(beats)];
    Ok(connection.execute(Statement::RemoveMember, &parameters).await? > 0)
}

/// Stores a value unless one is stored, and returns the stored value.
pub(super) async fn agree(connection: &Connection, key: &str, proposal: String) -> Result<String, QueryError> {
    connection.execute(Statement::PutMeta, &[&key, &proposal]).await?;
    let row = connection.query_first(Statement::Meta, &[&key]).await?;
    Ok(row.map_or(Ok(proposal), |row| row.try_get(0))?)
}

fn member_at(row: &Row) -> Result<Member, SqlError> {
    let state: i16 = row.try_get(4)?;
    Ok(Member {
        id: MemberId::from_uuid(row.try_get(0)?),
        info: NewMember {
            name: row.try_get(1)?,
            address: row.try_get(2)?,
            release: row.try_get(3)?,
        },
        last: Beat {
            state: if state == MemberState::Active as i16 {
                MemberState::Active
            } else {
                MemberState::Leaving
            },
            sessions: number_at(row, 6)?,
            runners: number_at(row, 7)?,
        },
        beats: number_at(row, 5)?,
    })
}

/// Returns a column of ids.
pub(super) fn uuids<I>(items: &[I], uuid: impl Fn(&I) -> Uuid) -> Vec<Uuid> {
    items.iter().map(uuid).collect()
}
