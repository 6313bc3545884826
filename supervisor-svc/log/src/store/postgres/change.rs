//! Writes other than batches. If a write is rejected, it has not changed anything yet.

use bytes::Bytes;
use futures::try_join;
use supervisor_core::{
    ids::{Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
};
use tokio_postgres::Error as SqlError;
use uuid::Uuid;

use super::{
    connection::{Connection, Parameter},
    query::{head_at, is_owned_at, number_at, sequence_at, uuids},
    sql::Statement,
};
use crate::store::{
    batch::{CursorKey, Evidence, Head, MarkKind, Snapshot},
    checksum,
    columns::{bound, cursor_session, integer, millis},
    error::{Invalid, Refusal, WriteError},
    limits::{MAX_COMPACTED, MAX_FORGOTTEN},
    member::{Claim, MemberId},
};

/// A write other than a batch.
pub(super) enum Change {
    Claim(SessionId),
    Release(SessionId, Epoch),
    HandOver(SessionId, Epoch, MemberId),
    PutSnapshot(SessionId, Snapshot),
    Compact(SessionId, Sequence, Evidence),
    PutSummary(SessionId, Sequence, Bytes),
    PutCursor(CursorKey, Option<Bytes>),
    DeleteSession(SessionId, Vec<ThreadId>),
    ForgetRequests(UnixMillis),
}

/// The result of a change.
pub(super) enum Changed {
    /// The result of a claim.
    Claim(Claim),
    /// The number of affected rows. 0 if the change counts no rows.
    Rows(u64),
}

impl Change {
    /// Returns the session that the write changes.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Claim(session)
            | Self::Release(session, _)
            | Self::HandOver(session, ..)
            | Self::PutSnapshot(session, _)
            | Self::Compact(session, ..)
            | Self::PutSummary(session, ..)
            | Self::DeleteSession(session, _) => Some(*session),
            Self::PutCursor(key, _) => key.session,
            Self::ForgetRequests(_) => None,
        }
    }

    /// Returns the session that must be locked before the change, must exist and must belong to this process. The other
    /// changes lock the session with their first statement.
    fn locked(&self) -> Option<SessionId> {
        match self {
            Self::Claim(_) | Self::Release(..) | Self::HandOver(..) => None,
            _ => self.session(),
        }
    }
}

/// Applies a change. The inner error is its rejection.
///
/// # Errors
/// Errors of the database.
pub(super) async fn apply(
    connection: &Connection,
    member: MemberId,
    change: &Change,
) -> Result<Result<Changed, WriteError>, SqlError> {
    // Locked, so that the session is neither deleted nor claimed in the meantime.
    let head = match change.locked() {
        Some(session) => match lock(connection, member, session).await? {
            Some((head, true)) => head.sequence,
            Some((head, false)) => return Ok(Err(WriteError::Fenced { current: head.epoch })),
            None if matches!(change, Change::DeleteSession(..)) => return Ok(Ok(Changed::Rows(0))),
            None => return Ok(Err(WriteError::NotFound { session })),
        },
        None => Sequence::ZERO,
    };
    let rows = match change {
        Change::Claim(session) => {
            let claim = claim(connection, member, *session).await?;
            return Ok(claim.map(Changed::Claim));
        }
        Change::Release(session, epoch) => {
            let parameters: [Parameter<'_>; 3] = [&session.as_uuid(), &member.as_uuid(), &integer(epoch.get())];
            connection.execute(Statement::Release, &parameters).await.map(Ok)
        }
        Change::HandOver(session, epoch, to) => {
            let parameters: [Parameter<'_>; 4] = [
                &session.as_uuid(),
                &member.as_uuid(),
                &integer(epoch.get()),
                &to.as_uuid(),
            ];
            connection.execute(Statement::HandOver, &parameters).await.map(Ok)
        }
        Change::DeleteSession(session, threads) => delete_session(connection, *session, threads).await.map(Ok),
        Change::PutSnapshot(session, snapshot) => put_snapshot(connection, *session, head, snapshot).await,
        Change::Compact(session, until, evidence) => compact(connection, *session, *until, evidence).await,
        Change::PutSummary(session, sequence, bytes) => {
            let parameters: [Parameter<'_>; 3] = [&session.as_uuid(), &integer(sequence.get()), &&bytes[..]];
            connection
                .execute(Statement::PutSummary, &parameters)
                .await
                .map(|_| Ok(0))
        }
        Change::PutCursor(key, value) => put_cursor(connection, key, value.as_ref()).await.map(Ok),
        Change::ForgetRequests(now) => forget_requests(connection, *now).await.map(Ok),
    };
    Ok(rows?.map(Changed::Rows))
}

/// Returns the head of a session and whether the member owns it.
async fn lock(connection: &Connection, member: MemberId, session: SessionId) -> Result<Option<(Head, bool)>, SqlError> {
    let parameters: [Parameter<'_>; 2] = [&session.as_uuid(), &member.as_uuid()];
    let Some(row) = connection.query_first(Statement::LockSession, &parameters).await? else {
        return Ok(None);
    };
    Ok(Some((head_at(&row)?, is_owned_at(&row, 4)?)))
}

/// Takes over a session that no other member owns.
async fn claim(
    connection: &Connection,
    member: MemberId,
    session: SessionId,
) -> Result<Result<Claim, WriteError>, SqlError> {
    let parameters: [Parameter<'_>; 2] = [&session.as_uuid(), &member.as_uuid()];
    if let Some(row) = connection.query_first(Statement::Claim, &parameters).await? {
        return Ok(Ok(Claim::Granted(Epoch::new(number_at(&row, 0)?))));
    }
    let Some(row) = connection.query_first(Statement::Owner, &parameters[..1]).await? else {
        return Ok(Err(WriteError::NotFound { session }));
    };
    let (owner, is_member): (Option<Uuid>, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok(match owner.map(MemberId::from_uuid) {
        Some(owner) if is_member && owner != member => Ok(Claim::OwnedBy(owner)),
        Some(_) | None => Err(Refusal::NotMember.into()),
    })
}

/// Stores a snapshot unless a newer one is stored.
async fn put_snapshot(
    connection: &Connection,
    session: SessionId,
    head: Sequence,
    snapshot: &Snapshot,
) -> Result<Result<u64, WriteError>, SqlError> {
    let sequence = snapshot.sequence;
    if sequence > head {
        return Ok(Err(Invalid::SnapshotAhead { sequence, head }.into()));
    }
    let crc = checksum::numbered(session, sequence, &snapshot.bytes).cast_signed();
    connection
        .execute(
            Statement::PutSnapshot,
            &[&session.as_uuid(), &integer(sequence.get()), &crc, &&snapshot.bytes[..]],
        )
        .await?;
    Ok(Ok(0))
}

/// Updates marks, and removes the records that the snapshot includes, except marked records.
async fn compact(
    connection: &Connection,
    session: SessionId,
    until: Sequence,
    evidence: &Evidence,
) -> Result<Result<u64, WriteError>, SqlError> {
    let id = session.as_uuid();
    let row = connection.query_first(Statement::SnapshotSequence, &[&id]).await?;
    let snapshot = row.map_or(Ok(Sequence::ZERO), |row| sequence_at(&row, 0))?;
    if until > snapshot {
        return Ok(Err(Invalid::CompactedTooFar { until, snapshot }.into()));
    }
    let (until, after) = (integer(until.get()), integer(evidence.after.get()));
    let (kind, expired) = (MarkKind::Evidence as i16, integer(evidence.expired.get()));
    let kinds: Vec<_> = evidence.keep.iter().map(|mark| mark.kind as i16).collect();
    let sequences: Vec<_> = evidence.keep.iter().map(|mark| integer(mark.sequence.get())).collect();
    let threads = uuids(&evidence.keep, |mark| mark.thread.as_uuid());
    let most = bound(MAX_COMPACTED);
    let oldest: [Parameter<'_>; 2] = [&id, &until];
    let old: [Parameter<'_>; 3] = [&id, &kind, &expired];
    let keep: [Parameter<'_>; 4] = [&id, &kinds, &sequences, &threads];
    let range: [Parameter<'_>; 4] = [&id, &after, &until, &most];
    let (_, of_expired, _, _, removed) = try_join!(
        connection.execute(Statement::SetOldest, &oldest),
        connection.execute(Statement::DeleteExpiredEvidence, &old),
        connection.execute(Statement::DeleteExpiredMarks, &old),
        connection.execute(Statement::KeepMarks, &keep),
        connection.execute(Statement::Compact, &range),
    )?;
    Ok(Ok(of_expired + removed))
}

async fn put_cursor(connection: &Connection, key: &CursorKey, value: Option<&Bytes>) -> Result<u64, SqlError> {
    let (session, name) = (cursor_session(key), key.name.as_bytes());
    match value {
        Some(value) => {
            let parameters: [Parameter<'_>; 3] = [&session, &name, &&value[..]];
            connection.execute(Statement::PutCursor, &parameters).await?;
        }
        None => {
            connection.execute(Statement::DeleteCursor, &[&session, &name]).await?;
        }
    }
    Ok(0)
}

/// Deletes a session and its data. Returns 1 if it existed.
async fn delete_session(connection: &Connection, session: SessionId, threads: &[ThreadId]) -> Result<u64, SqlError> {
    let id = session.as_uuid();
    let threads = uuids(threads, |thread| thread.as_uuid());
    let of_session: [Parameter<'_>; 1] = [&id];
    let of_cursors: [Parameter<'_>; 1] = [&&id.as_bytes()[..]];
    let of_threads: [Parameter<'_>; 2] = [&id, &threads];
    let delete = |statement| connection.execute(statement, &of_session);
    // The session's row is deleted first, which locks the session.
    let (found, ..) = try_join!(
        delete(Statement::DeleteSession),
        delete(Statement::DeleteMarks),
        delete(Statement::DeleteSummary),
        delete(Statement::DeleteRecords),
        delete(Statement::DeleteContents),
        delete(Statement::DeleteTranscripts),
        delete(Statement::DeleteEntries),
        delete(Statement::DeleteRequests),
        delete(Statement::DeleteSnapshot),
        delete(Statement::DeleteCreations),
        connection.execute(Statement::DeleteCursors, &of_cursors),
        connection.execute(Statement::DeleteThreads, &of_threads),
    )?;
    Ok(found)
}

/// Deletes expired entries, up to the maximum per call for each kind.
async fn forget_requests(connection: &Connection, now: UnixMillis) -> Result<u64, SqlError> {
    let (now, most) = (millis(now), bound(MAX_FORGOTTEN));
    let parameters: [Parameter<'_>; 2] = [&now, &most];
    let (requests, creations) = try_join!(
        connection.execute(Statement::ForgetRequests, &parameters),
        connection.execute(Statement::ForgetCreations, &parameters),
    )?;
    Ok(requests + creations)
}
