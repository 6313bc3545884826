//! Commit groups: several writes in one transaction. A rejected write is undone, and the other writes are kept.

use crate::store::{
    error::{Refusal, WriteError},
    queue::{Ending, Queued, Reply},
};
use rusqlite::{Connection, Error as SqlError, ErrorCode};

/// The error of one write's work.
#[derive(Debug)]
pub(super) enum Failure {
    /// The write is invalid or lost a race. The caller receives the error, and the group continues.
    Rejected(WriteError),
    /// The engine failed.
    Engine(SqlError),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Engine(error)
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(error) => error,
            Failure::Engine(error) => Self::Refused(refusal(&error)),
        }
    }
}

/// Whether a write's changes are kept after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Undo,
}

/// A write of a group.
pub(super) trait Job: Send {
    /// Returns the size of the write in bytes.
    fn weight(&self) -> usize;

    /// Does the work inside the group's transaction and stores the outcome for [`answer`](Self::answer). If the group's
    /// changes are rolled back, the work runs again and replaces the outcome.
    ///
    /// # Errors
    /// Errors of the database engine. The caller decides whether an error affects the whole group.
    fn work(&mut self, connection: &Connection) -> Result<Verdict, SqlError>;

    /// Replaces the outcome with a rejection.
    fn refuse(&mut self, refusal: Refusal);

    /// Sends the result to the caller: the outcome if the group was committed, otherwise the group's error.
    fn answer(self: Box<Self>, ending: &Ending);
}

/// A [`Job`] that runs a closure and replies with its result.
pub(super) struct Task<T, F> {
    work: F,
    outcome: Option<Result<T, WriteError>>,
    reply: Reply<T>,
}

impl<T, F> Task<T, F> {
    pub(super) fn new(work: F, reply: Reply<T>) -> Self {
        Self {
            work,
            outcome: None,
            reply,
        }
    }
}

impl Queued for Box<dyn Job> {
    fn weight(&self) -> usize {
        (**self).weight()
    }

    fn answer(self, ending: &Ending) {
        Job::answer(self, ending);
    }
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: Fn(&Connection) -> Result<T, Failure> + Send,
{
    fn weight(&self) -> usize {
        self.reply.weight()
    }

    fn work(&mut self, connection: &Connection) -> Result<Verdict, SqlError> {
        match (self.work)(connection) {
            Ok(value) => {
                self.outcome = Some(Ok(value));
                Ok(Verdict::Keep)
            }
            Err(Failure::Rejected(error)) => {
                self.outcome = Some(Err(error));
                Ok(Verdict::Undo)
            }
            Err(Failure::Engine(error)) => Err(error),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.outcome = Some(Err(WriteError::Refused(refusal)));
    }

    fn answer(self: Box<Self>, ending: &Ending) {
        self.reply.send(self.outcome, ending);
    }
}

/// Runs all jobs in one transaction and commits it. Does not answer the jobs.
pub(super) fn commit(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Ending {
    if let Err(error) = work(connection, jobs) {
        return abandon(connection, &error);
    }
    match run(connection, "COMMIT") {
        Ok(()) => Ending::Committed,
        Err(error) => commit_failed(connection, &error),
    }
}

/// Runs all jobs in a transaction, which stays open.
fn work(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), SqlError> {
    run(connection, "BEGIN IMMEDIATE")?;
    // The first attempt uses no savepoints, because the engine copies each page that changes after a savepoint. They
    // are almost never needed.
    if work_without_savepoints(connection, jobs)? == Verdict::Undo {
        run(connection, "ROLLBACK")?;
        run(connection, "BEGIN IMMEDIATE")?;
        for job in jobs {
            work_with_savepoint(connection, job.as_mut())?;
        }
    }
    Ok(())
}

/// Runs the jobs in order, without savepoints. Returns [`Verdict::Undo`] if the whole transaction must be rolled back:
/// a rejected job has already written, or a job failed because of its own data.
fn work_without_savepoints(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<Verdict, SqlError> {
    for job in jobs {
        let rows = connection.total_changes();
        match job.work(connection) {
            Ok(Verdict::Keep) => {}
            Ok(Verdict::Undo) if connection.total_changes() == rows => {}
            Ok(Verdict::Undo) => return Ok(Verdict::Undo),
            Err(error) if can_be_undone(connection, &error) => return Ok(Verdict::Undo),
            Err(error) => return Err(error),
        }
    }
    Ok(Verdict::Keep)
}

fn work_with_savepoint(connection: &Connection, job: &mut dyn Job) -> Result<(), SqlError> {
    run(connection, "SAVEPOINT job")?;
    match job.work(connection) {
        Ok(Verdict::Keep) => run(connection, "RELEASE job"),
        Ok(Verdict::Undo) => undo(connection),
        Err(error) if can_be_undone(connection, &error) => {
            job.refuse(refusal(&error));
            undo(connection)
        }
        Err(error) => Err(error),
    }
}

fn undo(connection: &Connection) -> Result<(), SqlError> {
    run(connection, "ROLLBACK TO job")?;
    run(connection, "RELEASE job")
}

fn run(connection: &Connection, sql: &str) -> Result<(), SqlError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

/// Returns whether the group can continue without this write.
fn can_be_undone(connection: &Connection, error: &SqlError) -> bool {
    is_caused_by_one_write(error) && !connection.is_autocommit()
}

/// Returns whether the error is caused by the data of a single write.
fn is_caused_by_one_write(error: &SqlError) -> bool {
    match error.sqlite_error_code() {
        // The error comes from the conversion of a value, not from the engine.
        None => true,
        Some(code) => {
            matches!(
                code,
                ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
            )
        }
    }
}

/// Classifies a failed commit. A commit that failed for lack of space, permissions or the lock left no changes. After
/// any other failure, especially of an fsync, the pages may or may not be on the disk, and a second fsync proves
/// nothing. Only a replay can determine the outcome.
fn commit_failed(connection: &Connection, error: &SqlError) -> Ending {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            abandon(connection, error)
        }
        Some(_) | None => Ending::Stop(WriteError::Unknown(error.to_string())),
    }
}

/// Ends a transaction that was not committed. If the rollback fails, the open transaction can still never be committed,
/// but the connection cannot be used again.
fn abandon(connection: &Connection, error: &SqlError) -> Ending {
    let refusal = refusal(error);
    // The engine rolls back automatically after some errors. If the transaction did not begin, none is open.
    if connection.is_autocommit() || run(connection, "ROLLBACK").is_ok() || connection.is_autocommit() {
        Ending::Refused(refusal)
    } else {
        Ending::Stop(WriteError::Refused(refusal))
    }
}

fn refusal(error: &SqlError) -> Refusal {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Refusal::DiskFull,
        Some(ErrorCode::ReadOnly) => Refusal::ReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Refusal::Busy,
        Some(ErrorCode::SystemIoFailure) => Refusal::Io(error.to_string()),
        Some(_) | None => Refusal::Engine(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use rusqlite::ffi;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::store::queue::Outcome;

    type Answer = Outcome<u64>;

    fn job<F>(work: F) -> (Box<dyn Job>, Answer)
    where
        F: Fn(&Connection) -> Result<u64, Failure> + Send + 'static,
    {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (reply, answer) = Reply::new(1, permit);
        (Box::new(Task::new(work, reply)), answer)
    }

    fn insert(value: &'static str) -> (Box<dyn Job>, Answer) {
        job(move |connection| {
            connection.execute("INSERT INTO t (value) VALUES (?1)", [value])?;
            Ok(7)
        })
    }

    fn fill() -> (Box<dyn Job>, Answer) {
        job(|connection| {
            connection.execute("INSERT INTO t (value) VALUES (zeroblob(1000000))", [])?;
            Ok(8)
        })
    }

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (value NOT NULL UNIQUE)")
            .unwrap();
        connection
    }

    fn rows(connection: &Connection) -> i64 {
        connection
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap()
    }

    /// Commits the jobs as one group. Returns its ending and the answer of each job.
    fn commit_all<const N: usize>(
        connection: &Connection,
        jobs: [(Box<dyn Job>, Answer); N],
    ) -> (Ending, Vec<Result<u64, WriteError>>) {
        let (mut jobs, mut answers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let ending = commit(connection, &mut jobs);
        for job in jobs {
            job.answer(&ending);
        }
        (
            ending,
            answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect(),
        )
    }

    #[test]
    fn job_rejected_before_write_does_not_affect_others() {
        let connection = table();
        let worked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&worked);
        let counted = job(move |connection| {
            count.fetch_add(1, Ordering::Relaxed);
            connection.execute("INSERT INTO t (value) VALUES ('a')", [])?;
            Ok(7)
        });
        let rejected = job(|_| Err(Failure::Rejected(WriteError::Stopped)));
        let (ending, answers) = commit_all(&connection, [counted, rejected]);
        assert_eq!(ending, Ending::Committed);
        assert_eq!(answers, [Ok(7), Err(WriteError::Stopped)]);
        assert_eq!((worked.load(Ordering::Relaxed), rows(&connection)), (1, 1));
    }

    #[test]
    fn constraint_violation_rejects_only_its_job() {
        let connection = table();
        let (ending, answers) = commit_all(&connection, [insert("a"), insert("a"), insert("b")]);
        assert_eq!(ending, Ending::Committed);
        assert!(matches!(answers[1], Err(WriteError::Refused(Refusal::Engine(_)))));
        assert_eq!(rows(&connection), 2);
    }

    #[test]
    fn full_disk_rejects_group_and_next_one_continues() {
        let connection = table();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = |pages: i64| {
            connection
                .execute_batch(&format!("PRAGMA max_page_count = {pages}"))
                .unwrap();
        };
        limit(pages + 1);
        let (ending, answers) = commit_all(&connection, [insert("a"), fill()]);
        let full = WriteError::Refused(Refusal::DiskFull);
        assert_eq!(ending, Ending::Refused(Refusal::DiskFull));
        assert_eq!(answers, [Err(full.clone()), Err(full)]);
        assert_eq!(rows(&connection), 0);
        limit(1_000_000);
        assert_eq!(commit_all(&connection, [insert("a"), fill()]).0, Ending::Committed);
        assert_eq!(rows(&connection), 2);
    }

    #[test]
    fn read_only_database_rejects_group() {
        let connection = table();
        connection.execute_batch("PRAGMA query_only = ON").unwrap();
        let (ending, _) = commit_all(&connection, [insert("a")]);
        assert_eq!(ending, Ending::Refused(Refusal::ReadOnly));
    }

    #[test]
    fn locked_database_rejects_group() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.db");
        let connection = Connection::open(&path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection
            .execute_batch("CREATE TABLE t (value NOT NULL UNIQUE)")
            .unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert_eq!(commit_all(&connection, [insert("a")]).0, Ending::Refused(Refusal::Busy));
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(commit_all(&connection, [insert("a")]).0, Ending::Committed);
    }

    #[test]
    fn io_error_at_commit_stops_with_unknown_outcome() {
        let connection = table();
        let failed = |code| commit_failed(&connection, &SqlError::SqliteFailure(ffi::Error::new(code), None));
        for code in [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOMEM,
        ] {
            assert!(matches!(failed(code), Ending::Stop(WriteError::Unknown(_))), "{code}");
        }
        assert_eq!(failed(ffi::SQLITE_FULL), Ending::Refused(Refusal::DiskFull));
        assert_eq!(failed(ffi::SQLITE_BUSY), Ending::Refused(Refusal::Busy));
    }
}
