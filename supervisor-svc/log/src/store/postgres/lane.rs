//! A lane: a connection that commits groups of writes, and settles commits whose outcome is unknown.
//!
//! Each commit of a lane has a number, which the transaction stores in the lane's row. A connection that is lost during
//! COMMIT leaves the outcome open. The lane then updates its row on another connection. That update waits until the
//! open transaction has ended, and the number tells whether it was committed. The number also shows whether the
//! database has lost acknowledged commits, for example in a failover to a standby that is not synchronous.

use std::{
    pin::pin,
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use opentelemetry::metrics::{Counter, Histogram};
use svc_kit::instruments::counter;
use tokio::time::{sleep, timeout};
use tokio_postgres::Error as SqlError;
use uuid::Uuid;

use super::{
    connection::Connection,
    error::{Meaning, describe, meaning, refusal},
    group,
    job::{Job, Verdict},
    options::PostgresOptions,
    query::number_at,
    sql::{BEGIN, COMMIT, ROLLBACK, Statement},
};
use crate::store::{
    columns::integer,
    error::{PostgresError, Refusal, WriteError},
    limits::{DATABASE_TIMEOUT, RETRY_TIMEOUT},
    member::MemberId,
    queue::{Ending, Inbox, Queued as _, commit_durations},
};

/// Pause before the first retry. It doubles with each further retry.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Maximum pause between two retries.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// State that the lanes of a store share.
#[derive(Default)]
pub(super) struct Shared {
    /// Whether the store is being closed. The time to wait for an unknown outcome is then limited.
    pub(super) is_closing: AtomicBool,
    /// Whether a lane has stopped. The other lanes then stop too.
    has_stopped: AtomicBool,
}

/// The result of an attempt to commit jobs.
enum Attempt {
    Ended(Ending),
    /// Nothing was committed.
    Refused(Refusal),
    /// Nothing was committed, because of one of the jobs.
    Undone(Option<Refusal>),
    /// Nothing was committed. Another attempt may succeed.
    Retry(Refusal),
}

/// A lane with its connection, if it has one.
pub(super) struct Lane {
    id: Uuid,
    member: MemberId,
    options: Arc<PostgresOptions>,
    connection: Option<Connection>,
    /// The number of the last commit.
    committed: u64,
    inbox: Inbox<Job>,
    shared: Arc<Shared>,
    commits: Histogram<f64>,
    /// The number of repeated attempts to commit a group.
    retries: Counter<u64>,
    /// The number of commits whose outcome was unknown.
    settled: Counter<u64>,
}

impl Lane {
    /// Opens a lane with a connection.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub(super) async fn open(
        options: Arc<PostgresOptions>,
        member: MemberId,
        inbox: Inbox<Job>,
        shared: Arc<Shared>,
    ) -> Result<Self, PostgresError> {
        let id = Uuid::new_v4();
        let connection = Connection::open(&options).await?;
        connection.execute(Statement::StartLane, &[&id]).await?;
        Ok(Self {
            id,
            member,
            options,
            connection: Some(connection),
            committed: 0,
            inbox,
            shared,
            commits: commit_durations(),
            retries: counter("troupe.log.retries", "Repeated attempts to commit writes"),
            settled: counter(
                "troupe.log.settled",
                "Commits with an unknown outcome that a query of the database determined",
            ),
        })
    }

    /// Commits writes until the queue is closed.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.inbox.receive().await {
            let jobs = self.inbox.gather(first);
            if let Some(error) = self.commit(jobs).await {
                tracing::error!(%error, "the store stopped writing; the process must exit and replay the log");
                self.shared.has_stopped.store(true, Ordering::Release);
                self.inbox.refuse_rest(&Ending::Stop(WriteError::Stopped)).await;
                return;
            }
        }
        self.inbox.refuse_rest(&Ending::Refused(Refusal::Closed)).await;
        if let Some(connection) = &self.connection
            && !matches!(
                timeout(RETRY_TIMEOUT, connection.execute(Statement::EndLane, &[&self.id])).await,
                Ok(Ok(_))
            )
        {
            tracing::warn!(lane = %self.id, "the row of a lane was not deleted");
        }
        self.inbox.confirm();
    }

    /// Commits and answers a group. Returns an error if the lane must stop.
    async fn commit(&mut self, mut jobs: Vec<Job>) -> Option<WriteError> {
        if jobs.is_empty() {
            return None;
        }
        let begun = Instant::now();
        let stop = match self.commit_together(&mut jobs).await {
            Some(ending) => {
                for job in jobs {
                    job.answer(&ending);
                }
                stop_of(&ending)
            }
            None => self.commit_alone(jobs).await,
        };
        self.commits.record(begun.elapsed().as_secs_f64(), &[]);
        stop
    }

    /// Commits and answers each job in a separate transaction. Returns an error if the lane must stop.
    async fn commit_alone(&mut self, jobs: Vec<Job>) -> Option<WriteError> {
        let mut stop = None;
        for mut job in jobs {
            let ending = if stop.is_some() {
                Ending::Stop(WriteError::Stopped)
            } else {
                let alone = self.commit_together(slice::from_mut(&mut job)).await;
                // A job that was rejected has already stored its outcome.
                alone.unwrap_or(Ending::Committed)
            };
            job.answer(&ending);
            stop = stop.or_else(|| stop_of(&ending));
        }
        stop
    }

    /// Commits jobs in one transaction, with retries. Returns `None` if the transaction was rolled back because of one
    /// job.
    async fn commit_together(&mut self, jobs: &mut [Job]) -> Option<Ending> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            if self.shared.has_stopped.load(Ordering::Acquire) {
                return Some(Ending::Stop(WriteError::Stopped));
            }
            let refusal = match self.attempt(jobs).await {
                Attempt::Retry(_) if begun.elapsed() < RETRY_TIMEOUT => {
                    self.retries.add(1, &[]);
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                    continue;
                }
                Attempt::Undone(Some(_)) if jobs.len() > 1 => return None,
                Attempt::Undone(None) => return None,
                Attempt::Ended(ending) => return Some(ending),
                Attempt::Refused(refusal) | Attempt::Retry(refusal) | Attempt::Undone(Some(refusal)) => refusal,
            };
            tracing::warn!(%refusal, writes = jobs.len(), "a commit group was refused");
            return Some(Ending::Refused(refusal));
        }
    }

    async fn attempt(&mut self, jobs: &mut [Job]) -> Attempt {
        // The connection closes when it is dropped. If it is still usable after the attempt, it is stored again.
        let connection = match self.connection.take().filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => match Connection::open(&self.options).await {
                Ok(connection) => connection,
                Err(error) => return Attempt::Retry(Refusal::Unreachable(error.to_string())),
            },
        };
        let number = self.committed + 1;
        let work = group::work(&connection, self.id, self.member, integer(number), jobs);
        let verdict = match timeout(DATABASE_TIMEOUT, Box::pin(work)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => return self.handle_error(connection, &error).await,
            Err(elapsed) => return Attempt::Retry(Refusal::Unreachable(elapsed.to_string())),
        };
        match verdict {
            Verdict::Keep => {}
            Verdict::Undo => {
                self.roll_back(connection).await;
                return Attempt::Undone(None);
            }
            Verdict::Behind => return Attempt::Ended(Ending::Stop(lost_commits())),
        }
        let error = match timeout(DATABASE_TIMEOUT, connection.run(COMMIT)).await {
            Ok(Ok(())) if !connection.has_unconfirmed_commit() => {
                self.committed = number;
                self.connection = Some(connection);
                return Attempt::Ended(Ending::Committed);
            }
            Ok(Ok(())) => "the wait for the synchronous standby was cancelled".to_owned(),
            // The server has rolled the transaction back.
            Ok(Err(error)) if meaning(&error) == Meaning::Conflict => {
                self.connection = Some(connection);
                return Attempt::Retry(refusal(&error));
            }
            Ok(Err(error)) => describe(&error),
            Err(elapsed) => elapsed.to_string(),
        };
        drop(connection);
        tracing::warn!(error, "the outcome of a commit is unknown; asking the database");
        let attempt = self.settle(number, error).await;
        self.settled.add(1, &[]);
        attempt
    }

    /// Handles the error of a statement. The transaction was not committed.
    async fn handle_error(&mut self, connection: Connection, error: &SqlError) -> Attempt {
        match meaning(error) {
            Meaning::Lost => Attempt::Retry(Refusal::Unreachable(describe(error))),
            Meaning::Conflict => {
                self.roll_back(connection).await;
                Attempt::Retry(refusal(error))
            }
            Meaning::Data => {
                self.roll_back(connection).await;
                Attempt::Undone(Some(refusal(error)))
            }
            Meaning::Refused => Attempt::Refused(refusal(error)),
        }
    }

    /// Rolls back and keeps the connection if that succeeds.
    async fn roll_back(&mut self, connection: Connection) {
        if let Ok(Ok(())) = timeout(DATABASE_TIMEOUT, connection.run(ROLLBACK)).await {
            self.connection = Some(connection);
        }
    }

    /// Determines whether a commit happened. Waits for the database as long as the store is open.
    async fn settle(&mut self, number: u64, cause: String) -> Attempt {
        let shared = Arc::clone(&self.shared);
        let is_closing = || shared.is_closing.load(Ordering::Acquire);
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = {
                let mut question = pin!(self.last_commit());
                loop {
                    match timeout(RETRY_TIMEOUT, question.as_mut()).await {
                        Ok(answer) => break answer.ok(),
                        Err(_) if is_closing() => break None,
                        Err(_) => {}
                    }
                }
            };
            match answer {
                Some(Some(last)) if last == number => {
                    tracing::info!("the commit happened");
                    self.committed = number;
                    return Attempt::Ended(Ending::Committed);
                }
                Some(Some(last)) if last == self.committed => {
                    tracing::info!("the commit had no effect");
                    return Attempt::Retry(Refusal::Unreachable(cause));
                }
                Some(_) => return Attempt::Ended(Ending::Stop(lost_commits())),
                None if is_closing() => return Attempt::Ended(Ending::Stop(WriteError::Unknown(cause))),
                None => {}
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Returns the number of the lane's last commit once no transaction of the lane is open. The call makes a commit
    /// itself. When that commit has reached the synchronous standbys, all earlier commits have too.
    async fn last_commit(&mut self) -> Result<Option<u64>, PostgresError> {
        let connection = Connection::open(&self.options).await?;
        connection.run(BEGIN).await?;
        let row = connection.query_first(Statement::Settle, &[&self.id]).await?;
        connection.run(COMMIT).await?;
        if connection.has_unconfirmed_commit() {
            return Err(PostgresError::Engine(String::from(
                "the standby did not confirm the commit",
            )));
        }
        self.connection = Some(connection);
        Ok(row.map(|row| number_at(&row, 0)).transpose()?)
    }
}

/// Returns the error with which a group stops the lane.
fn stop_of(ending: &Ending) -> Option<WriteError> {
    match ending {
        Ending::Stop(error) => Some(error.clone()),
        Ending::Committed | Ending::Refused(_) => None,
    }
}

fn lost_commits() -> WriteError {
    WriteError::Unknown(String::from(
        "the database has lost acknowledged commits, for example in a failover to a standby that is not synchronous",
    ))
}
