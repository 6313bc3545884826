//! Commit groups: writes of many sessions that share one transaction.
//!
//! Savepoints are not available everywhere, so a group is first written as a whole. A write that is rejected before it
//! has changed anything does not affect the other writes. If a write is rejected later, which is rare, the group is
//! rolled back and each write gets a separate transaction.

use std::collections::HashMap;

use futures::try_join;
use supervisor_core::ids::SessionId;
use tokio_postgres::Error as SqlError;
use uuid::Uuid;

use super::{
    batches, change,
    connection::{Connection, Parameter},
    job::{EntriesTask, Job, Verdict},
    sql::{BEGIN, Statement},
    transcript::{self, Addition},
};
use crate::store::member::MemberId;

/// Data that a write changes. Two writes that change the same data are executed one after the other.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Session(SessionId),
    Creation(&'a str, &'a str),
    /// Data that belongs to no session.
    Shared,
}

impl Job {
    fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let (session, creation) = match self {
            Self::Batch(task) => (Some(task.work.batch.session), task.work.key()),
            Self::Entries(task) => (Some(task.work.source.session), None),
            Self::Change(task) => (task.work.session(), None),
        };
        let creation = creation.map(|key| Key::Creation(&key.creator, &key.request_id));
        [session.map_or(Key::Shared, Key::Session)].into_iter().chain(creation)
    }
}

/// Returns the round of each job. Jobs of one round change different data. A job's round follows the rounds of earlier
/// jobs that change the same data.
fn rounds(jobs: &[Job]) -> Vec<usize> {
    let mut next: HashMap<Key<'_>, usize> = HashMap::new();
    let mut rounds = Vec::with_capacity(jobs.len());
    for job in jobs {
        let round = job.keys().filter_map(|key| next.get(&key).copied()).max().unwrap_or(0);
        next.extend(job.keys().map(|key| (key, round + 1)));
        rounds.push(round);
    }
    rounds
}

/// Runs all jobs in a transaction, which stays open. `number` is the number of the group's commit in its lane.
///
/// # Errors
/// Errors of the database.
pub(super) async fn work(
    connection: &Connection,
    lane: Uuid,
    member: MemberId,
    number: i64,
    jobs: &mut [Job],
) -> Result<Verdict, SqlError> {
    let begin = async {
        let parameters: [Parameter<'_>; 2] = [&lane, &number];
        try_join!(
            connection.run(BEGIN),
            connection.execute(Statement::Advance, &parameters)
        )
    };
    // Sent together: `begin` is polled first.
    let (((), advanced), verdict) = try_join!(begin, write(connection, member, jobs))?;
    Ok(if advanced == 0 { Verdict::Behind } else { verdict })
}

async fn write(connection: &Connection, member: MemberId, jobs: &mut [Job]) -> Result<Verdict, SqlError> {
    let rounds = rounds(jobs);
    let last = rounds.iter().copied().max().unwrap_or(0);
    for round in 0..=last {
        let (mut batches, mut entries, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for (job, _) in jobs.iter_mut().zip(&rounds).filter(|(_, of)| **of == round) {
            match job {
                Job::Batch(task) => batches.push(&mut **task),
                Job::Entries(task) => entries.push(task),
                Job::Change(task) => changes.push(task),
            }
        }
        if batches::write(connection, member, &mut batches).await? == Verdict::Undo {
            return Ok(Verdict::Undo);
        }
        add_entries(connection, member, &mut entries).await?;
        // Members that claim the same sessions lock them in the same order. Otherwise they could deadlock.
        changes.sort_by_key(|task| task.work.session());
        for task in changes {
            task.outcome = Some(change::apply(connection, member, &task.work).await?);
        }
    }
    Ok(Verdict::Keep)
}

async fn add_entries(
    connection: &Connection,
    member: MemberId,
    tasks: &mut [&mut EntriesTask],
) -> Result<(), SqlError> {
    let additions: Vec<_> = tasks
        .iter()
        .map(|task| Addition {
            key: (task.work.source.session, task.work.source.thread),
            source: Some(task.work.source),
            entries: &task.work.entries,
            session_bytes: task.work.session_bytes,
        })
        .collect();
    let added = transcript::add(connection, member, &additions).await?;
    for (task, added) in tasks.iter_mut().zip(added) {
        task.outcome = Some(added);
    }
    Ok(())
}
