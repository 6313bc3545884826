//! Batches of many sessions, written with one statement for each table.

use std::{
    collections::{HashMap, HashSet},
    slice,
};

use futures::try_join;
use supervisor_core::ids::{Epoch, Sequence, SessionId, ThreadId};
use tokio_postgres::Error as SqlError;
use uuid::Uuid;

use super::{
    connection::{Connection, Parameter},
    job::{BatchTask, BatchWrite, Verdict},
    query::{self, is_owned_at, number_at, sequence_at, session_at, thread_at, uuids},
    sql::Statement,
    transcript::{self, Addition},
};
use crate::store::{
    batch::{Batch, Created, CreationKey, RequestKey, RequestRecord},
    checksum,
    columns::{integer, millis},
    error::{Invalid, Refusal, WriteError},
    member::MemberId,
};

/// Writes batches of different sessions and sets their outcomes.
///
/// # Errors
/// Errors of the database.
pub(super) async fn write(
    connection: &Connection,
    member: MemberId,
    tasks: &mut [&mut BatchTask],
) -> Result<Verdict, SqlError> {
    let (moved, new_keys, created) = try_join!(
        move_heads(connection, member, tasks),
        store_keys(connection, tasks),
        insert_sessions(connection, member, tasks),
    )?;
    let has_new_key = |work: &BatchWrite| work.key().is_none() || new_keys.contains(&work.batch.session);
    for task in &mut *tasks {
        let sessions = if task.work.is_append() { &moved } else { &created };
        let is_accepted = sessions.contains(&task.work.batch.session) && has_new_key(&task.work);
        task.outcome = is_accepted.then_some(Ok(Created::New));
    }
    let accepted: Vec<&Batch> = selected(tasks, |task| task.outcome.is_some());
    let rejected = selected(tasks, |task| task.outcome.is_none() && has_new_key(&task.work));
    // The statements are sent together and in this order.
    let (heads, threads, (), (), (), (), ()) = try_join!(
        heads(connection, member, &rejected),
        insert_threads(connection, &accepted),
        insert_records(connection, &accepted),
        insert_marks(connection, &accepted),
        insert_contents(connection, &accepted),
        put_requests(connection, &accepted),
        add_entries(connection, member, &accepted),
    )?;
    let mut verdict = Verdict::Keep;
    for task in tasks {
        let (work, batch) = (&task.work, &task.work.batch);
        let head = heads.get(&batch.session);
        let mut taken = batch
            .new_threads
            .iter()
            .filter(|thread| threads.contains(&(batch.session, **thread)));
        let result = match (task.outcome.is_some(), work.key(), taken.next()) {
            (true, _, None) => continue,
            (true, _, Some(&thread)) => {
                verdict = Verdict::Undo;
                Err(WriteError::Invalid(Invalid::ThreadTaken { thread }))
            }
            (false, Some(key), _) if !has_new_key(work) => existing(connection, key).await?,
            (false, key, _) => {
                if key.is_some() {
                    // The new key is stored, but its session already exists, so the key must be rolled back.
                    verdict = Verdict::Undo;
                }
                Err(rejection(work, head))
            }
        };
        task.outcome = Some(result);
    }
    Ok(verdict)
}

fn selected<'a>(tasks: &'a [&mut BatchTask], is_selected: impl Fn(&BatchTask) -> bool) -> Vec<&'a Batch> {
    let tasks = tasks.iter().filter(|task| is_selected(task));
    tasks.map(|task| &task.work.batch).collect()
}

/// Returns the error of a rejected batch. The writer of a session's first batch does not own the session yet.
fn rejection(work: &BatchWrite, present: Option<&CurrentHead>) -> WriteError {
    match present {
        None => WriteError::NotFound {
            session: work.batch.session,
        },
        Some(&CurrentHead { epoch, is_owned, .. }) if work.is_append() && (epoch != work.batch.epoch || !is_owned) => {
            WriteError::Fenced { current: epoch }
        }
        Some(&CurrentHead { head, .. }) => WriteError::Mismatch { actual: head },
    }
}

/// Moves the heads of the sessions that the writer owns and whose head equals the expected head. Returns these
/// sessions.
async fn move_heads(
    connection: &Connection,
    member: MemberId,
    tasks: &[&mut BatchTask],
) -> Result<HashSet<SessionId>, SqlError> {
    let batches = selected(tasks, |task| task.work.is_append());
    if batches.is_empty() {
        return Ok(HashSet::new());
    }
    let sessions = session_column(&batches);
    let expected = column(&batches, |batch| integer(batch.expected.get()));
    let epochs = column(&batches, |batch| integer(batch.epoch.get()));
    let after = column(&batches, |batch| integer(batch.head_after().get()));
    let due = column(&batches, |batch| batch.due.map(millis));
    let rows = connection
        .query(
            Statement::MoveHeads,
            &[&sessions, &expected, &epochs, &after, &due, &member.as_uuid()],
        )
        .await?;
    rows.iter().map(|row| session_at(row, 0)).collect()
}

/// Stores the creation keys that are new or whose stored key has expired. Returns their sessions.
async fn store_keys(connection: &Connection, tasks: &[&mut BatchTask]) -> Result<HashSet<SessionId>, SqlError> {
    let keyed: Vec<(&CreationKey, Uuid)> = tasks
        .iter()
        .filter_map(|task| Some((task.work.key()?, task.work.batch.session.as_uuid())))
        .collect();
    if keyed.is_empty() {
        return Ok(HashSet::new());
    }
    let creators = column(&keyed, |(key, _)| key.creator.as_bytes());
    let ids = column(&keyed, |(key, _)| key.request_id.as_bytes());
    let present = column(&keyed, |(key, _)| millis(key.now));
    let hashes = column(&keyed, |(key, _)| &key.hash[..]);
    let sessions = uuids(&keyed, |(_, session)| *session);
    let expires = column(&keyed, |(key, _)| millis(key.expires));
    let expired: [Parameter<'_>; 3] = [&creators, &ids, &present];
    let new: [Parameter<'_>; 5] = [&creators, &ids, &hashes, &sessions, &expires];
    let (_, rows) = try_join!(
        connection.execute(Statement::ForgetExpiredCreations, &expired),
        connection.query(Statement::InsertCreations, &new),
    )?;
    rows.iter().map(|row| session_at(row, 0)).collect()
}

/// Returns the creation of a stored key.
async fn existing(connection: &Connection, key: &CreationKey) -> Result<Result<Created, WriteError>, SqlError> {
    let found = query::creation(connection, &key.creator, &key.request_id).await?;
    Ok(match found {
        Some(found) => Ok(Created::Existing {
            session: found.session,
            hash: found.hash,
        }),
        None => Err(WriteError::Refused(Refusal::Engine(String::from(
            "the session of the key was deleted in the meantime",
        )))),
    })
}

/// Inserts the sessions that do not exist yet. A session with a creation key is inserted only if the key is stored for
/// this session. Returns the inserted sessions.
async fn insert_sessions(
    connection: &Connection,
    member: MemberId,
    tasks: &[&mut BatchTask],
) -> Result<HashSet<SessionId>, SqlError> {
    let new: Vec<&BatchWrite> = tasks
        .iter()
        .map(|task| &task.work)
        .filter(|work| !work.is_append())
        .collect();
    if new.is_empty() {
        return Ok(HashSet::new());
    }
    let sessions = uuids(&new, |work| work.batch.session.as_uuid());
    let heads = column(&new, |work| integer(work.batch.head_after().get()));
    let epochs = column(&new, |work| integer(work.batch.epoch.get()));
    let due = column(&new, |work| work.batch.due.map(millis));
    let creators = column(&new, |work| work.key().map(|key| key.creator.as_bytes()));
    let ids = column(&new, |work| work.key().map(|key| key.request_id.as_bytes()));
    let rows = connection
        .query(
            Statement::InsertSessions,
            &[&sessions, &heads, &epochs, &due, &creators, &ids, &member.as_uuid()],
        )
        .await?;
    rows.iter().map(|row| session_at(row, 0)).collect()
}

/// The head of a session, and whether this process owns it.
struct CurrentHead {
    head: Sequence,
    epoch: Epoch,
    is_owned: bool,
}

/// Returns the current state of sessions.
async fn heads(
    connection: &Connection,
    member: MemberId,
    batches: &[&Batch],
) -> Result<HashMap<SessionId, CurrentHead>, SqlError> {
    if batches.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = connection
        .query(Statement::Heads, &[&session_column(batches), &member.as_uuid()])
        .await?;
    rows.iter()
        .map(|row| {
            let present = CurrentHead {
                head: sequence_at(row, 1)?,
                epoch: Epoch::new(number_at(row, 2)?),
                is_owned: is_owned_at(row, 3)?,
            };
            Ok((session_at(row, 0)?, present))
        })
        .collect()
}

/// Inserts the new threads. Returns the threads that belong to another session, with the session of their batch.
async fn insert_threads(
    connection: &Connection,
    batches: &[&Batch],
) -> Result<HashSet<(SessionId, ThreadId)>, SqlError> {
    let new = items(batches, |batch| &batch.new_threads);
    if new.is_empty() {
        return Ok(HashSet::new());
    }
    let threads = uuids(&new, |(_, thread)| thread.as_uuid());
    let sessions = uuids(&new, |(session, _)| session.as_uuid());
    let inserted = connection
        .execute(Statement::InsertThreads, &[&threads, &sessions])
        .await?;
    if usize::try_from(inserted) == Ok(new.len()) {
        return Ok(HashSet::new());
    }
    let rows = connection.query(Statement::Threads, &[&threads]).await?;
    let owners: Result<HashMap<ThreadId, SessionId>, SqlError> = rows
        .iter()
        .map(|row| Ok((thread_at(row, 0)?, session_at(row, 1)?)))
        .collect();
    let owners = owners?;
    let taken = new.into_iter().map(|(session, thread)| (session, *thread));
    Ok(taken
        .filter(|(session, thread)| owners.get(thread) != Some(session))
        .collect())
}

async fn insert_records(connection: &Connection, batches: &[&Batch]) -> Result<(), SqlError> {
    let records = items(batches, |batch| &batch.records);
    if records.is_empty() {
        return Ok(());
    }
    let sessions = uuids(&records, |(session, _)| session.as_uuid());
    let sequences = column(&records, |(_, record)| integer(record.sequence.get()));
    let crcs = column(&records, |(session, record)| {
        checksum::numbered(*session, record.sequence, &record.bytes).cast_signed()
    });
    let bytes = column(&records, |(_, record)| &record.bytes[..]);
    connection
        .execute(Statement::InsertRecords, &[&sessions, &sequences, &crcs, &bytes])
        .await?;
    Ok(())
}

async fn insert_marks(connection: &Connection, batches: &[&Batch]) -> Result<(), SqlError> {
    let marks = items(batches, |batch| &batch.marks);
    if marks.is_empty() {
        return Ok(());
    }
    let sessions = uuids(&marks, |(session, _)| session.as_uuid());
    let kinds = column(&marks, |(_, mark)| mark.kind as i16);
    let sequences = column(&marks, |(_, mark)| integer(mark.sequence.get()));
    let threads = uuids(&marks, |(_, mark)| mark.thread.as_uuid());
    connection
        .execute(Statement::InsertMarks, &[&sessions, &kinds, &sequences, &threads])
        .await?;
    Ok(())
}

/// Writes the contents that the sessions do not have yet, and counts their bytes.
async fn insert_contents(connection: &Connection, batches: &[&Batch]) -> Result<(), SqlError> {
    let contents = items(batches, |batch| &batch.contents);
    if contents.is_empty() {
        return Ok(());
    }
    let sessions = uuids(&contents, |(session, _)| session.as_uuid());
    let digests = column(&contents, |(_, content)| &content.digest.as_bytes()[..]);
    let crcs = column(&contents, |(session, content)| {
        checksum::content(*session, content.digest, &content.bytes).cast_signed()
    });
    let bytes = column(&contents, |(_, content)| &content.bytes[..]);
    connection
        .execute(Statement::InsertContents, &[&sessions, &digests, &crcs, &bytes])
        .await?;
    Ok(())
}

async fn put_requests(connection: &Connection, batches: &[&Batch]) -> Result<(), SqlError> {
    // One statement cannot store a key twice; the last request with a key counts.
    let by_key: HashMap<(SessionId, RequestKey), &RequestRecord> = items(batches, |batch| &batch.requests)
        .into_iter()
        .map(|(session, request)| ((session, request.key()), request))
        .collect();
    let requests: Vec<_> = by_key
        .into_iter()
        .map(|((session, _), request)| (session, request))
        .collect();
    if requests.is_empty() {
        return Ok(());
    }
    let sessions = uuids(&requests, |(session, _)| session.as_uuid());
    let scopes = column(&requests, |(_, request)| request.scope.as_bytes());
    let ids = column(&requests, |(_, request)| request.request_id.as_bytes());
    let hashes = column(&requests, |(_, request)| &request.hash[..]);
    let outcomes = column(&requests, |(_, request)| &request.outcome[..]);
    let expires = column(&requests, |(_, request)| millis(request.expires));
    let crcs = column(&requests, |(session, request)| {
        checksum::request(*session, request).cast_signed()
    });
    connection
        .execute(
            Statement::PutRequests,
            &[&sessions, &scopes, &ids, &hashes, &outcomes, &expires, &crcs],
        )
        .await?;
    Ok(())
}

/// Adds the transcript entries of the batches. The supervisor writes these entries, and they are short.
async fn add_entries(connection: &Connection, member: MemberId, batches: &[&Batch]) -> Result<(), SqlError> {
    let additions = items(batches, |batch| &batch.entries).into_iter();
    let additions: Vec<_> = additions
        .map(|(session, (thread, entry))| Addition {
            key: (session, *thread),
            source: None,
            entries: slice::from_ref(entry),
            session_bytes: u64::MAX,
        })
        .collect();
    transcript::add(connection, member, &additions).await?;
    Ok(())
}

/// Returns the items of all batches, each with its session.
fn items<'a, T>(batches: &[&'a Batch], items: impl Fn(&'a Batch) -> &'a [T]) -> Vec<(SessionId, &'a T)> {
    batches
        .iter()
        .flat_map(|batch| items(batch).iter().map(|item| (batch.session, item)))
        .collect()
}

fn column<'a, I, T>(items: &'a [I], value: impl Fn(&'a I) -> T) -> Vec<T> {
    items.iter().map(value).collect()
}

fn session_column(batches: &[&Batch]) -> Vec<Uuid> {
    uuids(batches, |batch| batch.session.as_uuid())
}
